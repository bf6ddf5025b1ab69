"""N-grams as targets (ALBERT §4.1; create_pretraining_data.py: create_masked_lm_predictions), and SpanBERT's spans
(Joshi et al. 2020, §3.1), which are taken in the same way.

The original walks over the words in random order. At each it draws how many words n the span that starts there has,
shortens the span while it would exceed what is left of the budget, and takes it unless it meets one taken before. Here
every word decides at once, given what the words before it decided, and all decide again until none changes its mind:
that is the walk's result, because by then the first word decided as the walk does, so the second did, and so on. The
rounds are few, five on average at length 512 with n up to 3, since a word depends on its neighbours and on a sum.
"""

from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

# Name → p(n) up to a factor, for n = 1 … ngram.
FAVOR = {
  "short": lambda n: 1 / n,
  "long": lambda n: (1 / n)[::-1],
  "geometric": lambda n: 0.8 ** (n - 1.0),  # SpanBERT's p = 0.2; its longest n is 10, so the mean is 3.8
}


def draw(key: Array, available: Int[Array, " words"], ngram: int, favor: str) -> Int[Array, " words"]:
  """Returns each word's n in 1 … min(ngram, available), 1 where nothing is available.

  "short": p(n) ∝ 1/n, for ngram=3 6/11, 3/11, 2/11; "long": these reversed; "geometric": p(n) ∝ 0.8^(n-1). Where fewer
  words follow, the shorter spans keep their proportions.
  """
  below = jnp.asarray(np.cumsum(FAVOR[favor](np.arange(1, ngram + 1))), jnp.float32)  # n or shorter
  available = jnp.clip(available, 1, ngram)
  u = jax.random.uniform(key, available.shape) * below[available - 1]
  return jnp.minimum(1 + sum((u >= below[n - 1]).astype(jnp.int32) for n in range(1, ngram)), available)


def take(
  key: Array,
  size: Int[Array, " length"],
  sequence_ids: Int[Array, " length"],
  budget: Int[Array, " sequences"],
  ngram: int,
  favor: str,
) -> Int[Array, " length"]:
  """Returns which words of a row are taken, at the position where each starts: 1 + the position where its span starts,
  and 0 of a word that is not taken.

  Args:
    key: decides order and lengths.
    size: at a word's first position its number of tokens, 0 elsewhere. Words with a gap between them, such as a special
      token, do not join.
    sequence_ids: the sequence of each position; a span stays inside one.
    budget: by sequence id, the most tokens to take.
    ngram: the most words of a span.
    favor: which n are likely, one of FAVOR.
  """
  length = size.shape[0]
  order_key, length_key = jax.random.split(key)

  # From here on, arrays are indexed by word, in the row's order; the slots after the last word hold size 0.
  (start,) = jnp.nonzero(size, size=length, fill_value=length)
  words = size.at[start].get(mode="fill", fill_value=0)
  sequence = sequence_ids.at[start].get(mode="fill", fill_value=0)
  joined = (start + words == _ahead(start, 1, -1)) & (sequence == _ahead(sequence, 1, 0))  # to the next word
  reach, tokens = [words > 0], [words]  # of the span of k + 1 words: is there one, and its tokens
  for k in range(1, ngram):
    reach.append(reach[-1] & _ahead(joined, k - 1, False))
    tokens.append(tokens[-1] + _ahead(words, k, 0))
  wanted = draw(length_key, jnp.stack(reach).sum(0), ngram, favor)
  # A span that is not there, or longer than wanted, costs more than any budget holds.
  cost = [jnp.where(reach[k] & (wanted > k), tokens[k], length + 1) for k in range(ngram)]

  order = jnp.lexsort((jax.random.uniform(order_key, (length,)), sequence))  # by sequence, then random
  turn = jnp.zeros(length, order.dtype).at[order].set(jnp.arange(length))
  first = jnp.searchsorted(sequence[order], sequence)  # the turn in which the word's sequence begins

  def decide(taken):
    """How many words each takes, if those with earlier turns take as many as `taken` says."""
    spent = sum(jnp.where(taken == k + 1, cost[k], 0) for k in range(ngram))[order]
    spent = jnp.concatenate([jnp.zeros(1, spent.dtype), jnp.cumsum(spent)])  # before each turn
    left = budget[sequence] - (spent[turn] - spent[first])
    n = sum((cost[k] <= left).astype(jnp.int32) for k in range(ngram))
    taker = reduce(jnp.minimum, [_ahead(jnp.where(taken > k, turn, length), -k, length) for k in range(ngram)])
    rival = reduce(jnp.minimum, [jnp.where(n > k, _ahead(taker, k, length), length) for k in range(ngram)])
    return jnp.where(rival < turn, 0, n)

  nothing = jnp.zeros(length, jnp.int32)
  taken, _ = jax.lax.while_loop(
    lambda state: (state[0] != state[1]).any(), lambda state: (state[1], decide(state[1])), (nothing, decide(nothing))
  )
  span = reduce(jnp.maximum, [_ahead(jnp.where(taken > k, 1 + start, 0), -k, 0) for k in range(ngram)])
  return jnp.zeros(length, start.dtype).at[start].set(span, mode="drop")


def _ahead(x: Array, k: int, fill: int | bool) -> Array:
  """Returns x[i + k] at i, and `fill` past either end."""
  rows = jnp.full(min(abs(k), x.shape[0]), fill, x.dtype)
  return jnp.concatenate([x[k:], rows] if k >= 0 else [rows, x[:k]])
