"""Choosing and replacing target tokens, on the device, fresh at every step (BERT §3.1, Task #1).

The originals fix masks on disk when they prepare data (`create_pretraining_data.py: create_masked_lm_predictions`);
here a mask is a function of (key, row). The choice is the original's: units (tokens, or whole words) in random order,
each taken if it still fits the budget, skipped if not; ALBERT's units are n-grams, and may overlap.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from objectives import ngrams, objective
from objectives.vocabulary import Vocabulary

REPLACE = ("token", "span")


@dataclasses.dataclass(frozen=True)
class MaskingConfig:
  """How tokens are chosen and what stands in their place.

  Attributes:
    rate: targets over the length of a sequence, special tokens included in the length.
    mask: share of targets that are shown as [MASK].
    random: share of targets that are shown as a random ordinary token; the rest stay as they are.
    whole_word: choose words rather than tokens; then the budget is an upper bound.
    ngram: the most units (words or tokens) chosen together, as a span (ALBERT: 3, SpanBERT: 10); above 1 the budget is
      an upper bound.
    ngram_favor: "short" spans, p(n) ∝ 1/n; "long" ones, by reversing that; "geometric", p(n) ∝ 0.8^(n-1).
    replace: [MASK], random or as it is: drawn for each "token", or once for a "span" (a unit where ngram is 1).
  """

  rate: float = 0.15
  mask: float = 0.8
  random: float = 0.1
  whole_word: bool = False
  ngram: int = 1
  ngram_favor: str = "short"
  replace: str = "token"

  def __post_init__(self):
    if not 0 < self.rate < 1:
      raise ValueError(f"objective.masking.rate={self.rate} must lie between 0 and 1")
    if min(self.mask, self.random) < 0 or self.mask + self.random > 1:
      raise ValueError(
        f"objective.masking: mask={self.mask} and random={self.random} must be shares that add up to 1 at most"
      )
    if self.ngram < 1:
      raise ValueError(f"objective.masking.ngram={self.ngram} must be at least 1")
    if self.ngram_favor not in ngrams.FAVOR:
      raise ValueError(
        f"objective.masking.ngram_favor={self.ngram_favor!r} is unknown; use one of {', '.join(ngrams.FAVOR)}"
      )
    if self.replace not in REPLACE:
      raise ValueError(f"objective.masking.replace={self.replace!r} is unknown; use one of {', '.join(REPLACE)}")


class Corrupted(NamedTuple):
  """A corrupted batch: what the model sees, and what it must say where."""

  tokens: Int[Array, "batch length"]
  positions: Int[Array, "batch targets"]  # where to predict; 0 in unused slots
  targets: Int[Array, "batch targets"]  # the clean tokens at these positions
  weights: Float[Array, "batch targets"]  # 1 for a target, 0 for an unused slot
  shortfall: Float[Array, " batch"]  # targets that the budget allowed and the choice could not fill


def budgets(length: int, rate: float) -> np.ndarray:
  """Returns the number of targets for every sequence length 0..length: round(rate × length), at least 1. int32
  [length + 1]."""
  table = np.maximum(1, np.round(np.arange(length + 1) * rate)).astype(np.int32)
  table[0] = 0
  return table


def max_targets(length: int, rate: float, max_sequences: int = 1) -> int:
  """Returns the target slots a row needs: the budget of a full row, and what rounding may add for each packed
  sequence."""
  return int(budgets(length, rate)[length]) + max_sequences - 1


def corrupt(
  key: Array,
  batch: dict[str, Array],
  vocabulary: Vocabulary,
  config: MaskingConfig,
  max_sequences: int = 1,
) -> Corrupted:
  """Returns the batch with targets chosen and replaced.

  Args:
    key: the step's key for corruption.
    batch: "tokens" and "sequence_ids" [batch, length], "row" [batch].
    vocabulary: which ids are special, begin words, mean [MASK].
    config: rates and units.
    max_sequences: the most sequences packed in a row.
  """

  def corrupt_row(key, tokens, sequence_ids):
    choose_key, kind_key, random_key = jax.random.split(key, 3)
    units = unit_starts(tokens, sequence_ids, vocabulary, config.whole_word)
    span, shortfall = choose(choose_key, units, sequence_ids, config)
    slots = max_targets(tokens.shape[0], config.rate, max_sequences)
    positions = jnp.sort(jnp.where(span > 0, jnp.arange(tokens.shape[0]), tokens.shape[0]))[:slots]
    used = positions < tokens.shape[0]
    targets = jnp.where(used, tokens[positions], 0)
    together = jnp.where(used, span[positions], 0) if config.replace == "span" else None
    shown = replace(kind_key, random_key, targets, vocabulary, config.mask, config.random, together)
    corrupted = tokens.at[positions].set(shown, mode="drop")  # unused slots point past the row
    return Corrupted(corrupted, jnp.where(used, positions, 0), targets, used.astype(jnp.float32), shortfall)

  keys = objective.row_keys(key, batch["row"])
  return jax.vmap(corrupt_row)(keys, batch["tokens"], batch["sequence_ids"])


def replace(
  kind_key: Array,
  random_key: Array,
  targets: Int[Array, " targets"],
  vocabulary: Vocabulary,
  mask: float,
  random: float,
  together: Int[Array, " targets"] | None = None,
) -> Int[Array, " targets"]:
  """Returns what stands in the place of `targets`: [MASK] for a share `mask` of them, a random ordinary token for a
  share `random`, and for the others the token itself.

  Neighbours with equal numbers in `together` get the same of the three; random tokens differ all the same.
  """
  kind = jax.random.uniform(kind_key, targets.shape)
  if together is not None:
    kind = kind[jnp.cumsum(together != jnp.roll(together, 1).at[0].set(together[0]))]
  ordinary = jnp.asarray(vocabulary.ordinary)
  anything = ordinary[jax.random.randint(random_key, targets.shape, 0, ordinary.size)]
  shown = jnp.where(kind < mask, vocabulary.mask_id, jnp.where(kind < mask + random, anything, targets))
  return shown.astype(targets.dtype)


class Units(NamedTuple):
  """The units of a row, each held at the position of its first token."""

  candidate: Bool[Array, " length"]  # tokens that may be targets
  start: Int[Array, " length"]  # for each candidate, the position where its unit starts
  size: Int[Array, " length"]  # at a unit's first position its number of tokens, 0 elsewhere


def unit_starts(
  tokens: Int[Array, " length"],
  sequence_ids: Int[Array, " length"],
  vocabulary: Vocabulary,
  whole_word: bool,
) -> Units:
  """Returns the row's units: single tokens, or words (a start piece and the pieces that continue it)."""
  positions = jnp.arange(tokens.shape[0])
  candidate = (sequence_ids > 0) & ~jnp.asarray(vocabulary.special)[tokens]
  first = candidate
  if whole_word:
    before = jnp.concatenate([jnp.zeros(1, bool), candidate[:-1]])
    first = candidate & (jnp.asarray(vocabulary.word_start)[tokens] | ~before)  # a special token or padding ends a word
  start = jax.lax.cummax(jnp.where(first, positions, 0))
  size = jnp.zeros_like(positions).at[start].add(candidate.astype(positions.dtype))
  return Units(candidate, start, size)


def choose(
  key: Array,
  units: Units,
  sequence_ids: Int[Array, " length"],
  config: MaskingConfig,
) -> tuple[Int[Array, " length"], Float[Array, ""]]:
  """Returns which tokens are targets, and by how many tokens the budgets were missed; every sequence of the row has its
  own.

  A target has a number above 0 that it shares with the targets of its span, and no others; other tokens have 0.
  """
  length = sequence_ids.shape[0]
  per_sequence = jnp.zeros(length + 1, jnp.int32)  # indexed by sequence id
  budget = jnp.asarray(budgets(length, config.rate))[per_sequence.at[sequence_ids].add(1)].at[0].set(0)  # 0 is padding
  if config.ngram > 1:
    taken = ngrams.take(key, units.size, sequence_ids, budget, config.ngram, config.ngram_favor)
  else:
    taken = take(key, units.size, sequence_ids, budget, single=not config.whole_word) * (1 + jnp.arange(length))
  span = jnp.where(units.candidate, taken[units.start], 0)
  return span, (budget.sum() - (span > 0).sum()).astype(jnp.float32)


def take(
  key: Array,
  size: Int[Array, " length"],
  sequence_ids: Int[Array, " length"],
  budget: Int[Array, " sequences"],
  *,
  single: bool,
) -> Bool[Array, " length"]:
  """Returns which units are taken, at the position where each starts.

  Units are visited in random order and taken if they fit what is left of their sequence's budget. All that fit in order
  up to the first overflow are taken at once; units larger than what is then left can never fit and are dropped; so a
  few rounds give exactly what the one-by-one loop gives, and one round does where every unit is a `single` token.
  """
  length = size.shape[0]
  order = jnp.lexsort((jax.random.uniform(key, (length,)), sequence_ids))  # by sequence, then random
  size, sequence = size[order], sequence_ids[order]
  first = jnp.searchsorted(sequence, sequence)  # where each sequence begins in the order

  def left_over(taken):
    return budget - jnp.zeros_like(budget).at[sequence].add(jnp.where(taken, size, 0))

  def again(state):
    taken, waiting = state
    running = jnp.cumsum(jnp.where(waiting, size, 0))
    running -= jnp.where(first > 0, running[first - 1], 0)
    taken |= waiting & (running <= left_over(taken)[sequence])
    return taken, waiting & ~taken & (size <= left_over(taken)[sequence])

  state = again((jnp.zeros(length, bool), size > 0))
  if not single:
    state = jax.lax.while_loop(lambda state: state[1].any(), again, state)
  return jnp.zeros(length, bool).at[order].set(state[0])
