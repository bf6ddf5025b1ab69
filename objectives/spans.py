"""Spans of words as targets, with context around each (XLNet §2.3 and A.5; data_utils.py: _sample_mask).

The original walks along the text. At each turn it draws a span's size n and leaves alpha·n/beta pieces of context about
it, a random part of them in front; the span begins at the next piece that begins a word. Here a turn of every row is
taken at once, and turns are as many as could ever be needed, so that no row waits for another on another device.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from objectives import ngrams

UNITS = ("word", "piece")


def draw(
  key: Array,
  starts: Bool[Array, " length"],
  candidate: Bool[Array, " length"],
  goal: int,
  *,
  unit: str = "word",
  max_span: int = 5,
  alpha: int = 6,
  beta: int = 1,
) -> Bool[Array, " length"]:
  """Returns which pieces of a text lie in spans, `goal` candidates at most: as a rule some fewer.

  A span that would end with the text, or behind it, ends the walk, as in the original; so the last word is never taken.

  Args:
    key: decides sizes and places.
    starts: pieces that begin a word, in the direction in which the text is read.
    candidate: pieces that may be targets; a span may cover others, which count for nothing.
    goal: the most candidates to take. A span is shortened to the units that fit; if none fits, the walk ends.
    unit: what n counts: "word", or "piece" as in the original, whose loop tests the span's first piece where it means
      the piece that it has come to.
    max_span: the largest n; p(n) ∝ 1/n.
    alpha, beta: n units have alpha·n // beta pieces of context, before and after.
  """
  length = starts.shape[0]
  turns = -(-length // (1 + alpha // beta))  # a turn moves on by a piece and its context at least
  size_key, place_key = jax.random.split(key)
  sizes = ngrams.draw(size_key, jnp.full(turns, max_span), max_span, "short")
  places = jax.random.uniform(place_key, (turns,))

  (word_at,) = jnp.nonzero(starts, size=length + max_span + 1, fill_value=length)  # where each word begins
  words_before = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(starts, dtype=jnp.int32)])
  candidates_before = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(candidate, dtype=jnp.int32)])
  unit_numbers = jnp.arange(1, max_span + 1)

  def turn(state, draws):
    here, left = state
    size, place = draws
    size = jnp.minimum(size, left)
    context = size * alpha // beta
    before = jnp.floor(place * context).astype(jnp.int32)  # 0 … context - 1
    word = words_before[jnp.minimum(here + before, length)]  # the first that begins here or later
    begin = word_at[word]
    ends = word_at[word + unit_numbers] if unit == "word" else jnp.minimum(begin + unit_numbers, length)
    taken = candidates_before[ends] - candidates_before[begin]
    units = ((taken <= left) & (unit_numbers <= size)).sum()
    end = jnp.where(units > 0, ends[units - 1], length)
    ok = end < length
    here = jnp.where(ok, end + context - before, length)
    left = jnp.where(ok, left - (candidates_before[end] - candidates_before[begin]), 0)
    return (here, left), (jnp.where(ok, begin, length), jnp.where(ok, end, length))

  _, (begin, end) = jax.lax.scan(turn, (jnp.int32(0), jnp.int32(goal)), (sizes, places))
  position = jnp.arange(length)[:, None]
  return ((begin[None] <= position) & (position < end[None])).any(1)


def lowest(scores: Float[Array, " length"], count: int) -> Int[Array, " count"]:
  """Returns the positions of the `count` lowest finite scores, ascending; `length` in slots that remain."""
  length = scores.shape[0]
  positions = jnp.argsort(scores)[:count]
  return jnp.sort(jnp.where(jnp.isfinite(scores[positions]), positions, length))
