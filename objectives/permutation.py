"""Factorisation orders, targets and masks of permutation language modelling, on the device, fresh at every step
(XLNet §2.2, §2.3; data_utils.py: _local_perm, _sample_mask).

A row is two halves: `reuse_len` tokens that the memory will hold, and the rest. Each half has an order and targets of
its own. The second sees all of the first, and the first nothing of the second.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from objectives import objective, spans
from objectives.vocabulary import Vocabulary

TARGETS = ("spans", "last")
LAYOUT = 3  # functional tokens in the second half of a row: <sep>, <sep> and <cls>


@dataclasses.dataclass(frozen=True)
class PermutationConfig:
  """How targets and orders are drawn.

  Attributes:
    num_predict: targets of a row; the first half has num_predict - num_predict//2 of them, the second num_predict//2.
    reuse_len: tokens of the first half.
    perm_size: positions that are shuffled among themselves; it divides both halves. Chunks of this size keep their
      order, and all chunks of a half are shuffled alike.
    targets: "spans": the released code's: spans of text, and every other token is context that sees all context and no
      target. "last": the paper's partial prediction (§2.3): the last tokens of the order, and context, too, sees only
      what comes before it in the order.
    span_unit: of what a span counts n, "word", or "piece" as in the released code.
    max_span: the largest n; p(n) ∝ 1/n. With 1, targets are single words or pieces, each amid alpha // beta pieces of
      context, as many of them in all as with longer spans (XLNet's table 6, "− span-based prediction").
    alpha, beta: a span of n units stands amid alpha·n // beta pieces of context. Budget and context count pieces: where
      words have many, the budget is spent before a half ends, and the half's last words are targets less often (with 6
      and 1½ pieces a word, in the last fifth of a half that gives one target in 6). With "piece" they are even.
  """

  num_predict: int = 85
  reuse_len: int = 256
  perm_size: int = 256
  targets: str = "spans"
  span_unit: str = "word"
  max_span: int = 5
  alpha: int = 6
  beta: int = 1

  def __post_init__(self):
    if self.num_predict < 2:
      raise ValueError(
        f"objective.num_predict={self.num_predict} must be at least 2, one target for each half of a row"
      )
    for name in ("perm_size", "max_span", "beta"):
      if getattr(self, name) < 1:
        raise ValueError(f"objective.{name}={getattr(self, name)} must be at least 1")
    if self.alpha < self.beta:
      raise ValueError(
        f"objective.alpha={self.alpha} must be at least objective.beta={self.beta}: a span needs a piece of context"
      )
    for name, choices in (("targets", TARGETS), ("span_unit", spans.UNITS)):
      if getattr(self, name) not in choices:
        raise ValueError(f"objective.{name}={getattr(self, name)!r} is unknown; use one of {', '.join(choices)}")
    if self.reuse_len < 1:
      raise ValueError(f"data.reuse_len={self.reuse_len} must be at least 1")

  @property
  def goals(self) -> tuple[int, int]:
    """Targets of the first half and of the second."""
    return self.num_predict - self.num_predict // 2, self.num_predict // 2

  def check_length(self, length: int) -> None:
    """Raises ValueError if rows of `length` tokens cannot be halved, shuffled and predicted so."""
    rest = length - self.reuse_len
    if rest <= LAYOUT:
      raise ValueError(
        f"data.reuse_len={self.reuse_len} leaves no text behind it in rows of length {length}; "
        f"set it to {length // 2}, half the length"
      )
    if self.reuse_len % self.perm_size or rest % self.perm_size:
      raise ValueError(
        f"objective.perm_size={self.perm_size} does not divide both data.reuse_len={self.reuse_len} and the {rest} "
        f"tokens behind it in rows of length {length}"
      )
    for part, goal, tokens in (("first", self.goals[0], self.reuse_len), ("second", self.goals[1], rest - LAYOUT)):
      if goal > tokens:
        raise ValueError(
          f"objective.num_predict={self.num_predict} asks for {goal} targets among the {tokens} tokens of text in the "
          f"{part} half of a row of length {length}; set it to at most {2 * min(self.reuse_len, rest - LAYOUT)}"
        )


class Permuted(NamedTuple):
  """Targets, and who sees whom. What a position sees of other rows and of the memory is not said here."""

  target_positions: Int[Array, "batch targets"]  # ascending; 0 in unused slots
  targets: Int[Array, "batch targets"]  # the tokens at these positions; 0 in unused slots
  weights: Float[Array, "batch targets"]  # 1 for a target, 0 for an unused slot
  rank: Int[Array, "batch targets"]  # how many targets of its half come before it in the order
  visible: Bool[Array, "batch length length"]  # [b, q, k]: the content at q sees the content at k ≠ q
  target_visible: Bool[Array, "batch targets length"]  # [b, p, k]: the query at slot p sees the content at k


def permute(key: Array, batch: dict[str, Array], vocabulary: Vocabulary, config: PermutationConfig) -> Permuted:
  """Returns the batch's targets and masks.

  Args:
    key: the step's key for orders and targets.
    batch: "tokens" and "sequence_ids" [batch, length], "backward" [batch], "row" [batch].
    vocabulary: which ids are special, functional, and begin words.
    config: what to draw.

  Raises:
    ValueError: the length does not fit the fields of `config`.
  """
  length = batch["tokens"].shape[1]
  config.check_length(length)

  def permute_row(key, tokens, sequence_ids, backward):
    order, positions = choose(key, tokens, sequence_ids, backward, vocabulary, config)
    functional = jnp.asarray(vocabulary.functional)[tokens]
    used = positions < length
    is_target = jnp.zeros(length, bool).at[positions].set(True, mode="drop")
    ordered = is_target | functional if config.targets == "spans" else jnp.ones(length, bool)
    turn, horizon = turns(order, is_target, ordered, config.reuse_len)

    real = sequence_ids > 0
    positions = jnp.where(used, positions, 0)
    target_turn = turn[positions]
    earlier = (target_turn[None, :] < target_turn[:, None]) & used[None, :]
    same_half = (positions < config.reuse_len)[None, :] == (positions < config.reuse_len)[:, None]
    return Permuted(
      target_positions=positions,
      targets=jnp.where(used, tokens[positions], 0),
      weights=used.astype(jnp.float32),
      rank=jnp.where(used, (earlier & same_half).sum(1), 0),
      visible=(turn[None, :] < horizon[:, None]) & real[None, :],
      target_visible=(turn[None, :] < target_turn[:, None]) & real[None, :] & used[:, None],
    )

  keys = objective.row_keys(key, batch["row"])
  return jax.vmap(permute_row)(keys, batch["tokens"], batch["sequence_ids"], batch["backward"])


def choose(
  key: Array,
  tokens: Int[Array, " length"],
  sequence_ids: Int[Array, " length"],
  backward: Bool[Array, ""],
  vocabulary: Vocabulary,
  config: PermutationConfig,
) -> tuple[Int[Array, " length"], Int[Array, " targets"]]:
  """Returns (each position's place in the order of its half, positions of the targets, ascending, with `length` in
  unused slots) of a row, by the row's key."""
  length = tokens.shape[0]
  halves = ((slice(0, config.reuse_len), config.goals[0]), (slice(config.reuse_len, length), config.goals[1]))
  candidate = (sequence_ids > 0) & ~jnp.asarray(vocabulary.special)[tokens]
  starts = jnp.asarray(vocabulary.word_start | vocabulary.special)[tokens]
  orders, positions = [], []
  for (half, goal), half_key in zip(halves, jax.random.split(key), strict=True):
    order_key, target_key = jax.random.split(half_key)
    order = draw_order(order_key, half.stop - half.start, config.perm_size)
    if config.targets == "last":
      chosen = spans.lowest(jnp.where(candidate[half], -order, jnp.inf), goal)
    else:
      chosen = draw_targets(target_key, starts[half], candidate[half], backward, goal, config)
    orders.append(order)
    positions.append(jnp.where(chosen < order.size, half.start + chosen, length))
  return jnp.concatenate(orders), jnp.concatenate(positions)


def draw_order(key: Array, length: int, perm_size: int) -> Int[Array, " length"]:
  """Returns each position's place in the order, 0 … length - 1: one shuffle of `perm_size` for all chunks."""
  places = jax.random.permutation(key, perm_size)
  first = jnp.arange(0, length, perm_size)  # the chunks keep their order
  return (first[:, None] + places[None, :]).reshape(-1).astype(jnp.int32)


def draw_targets(
  key: Array,
  starts: Bool[Array, " length"],
  candidate: Bool[Array, " length"],
  backward: Bool[Array, ""],
  goal: int,
  config: PermutationConfig,
) -> Int[Array, " goal"]:
  """Returns the positions of a half's targets, ascending: spans, and single tokens at random for what these leave.

  Text that runs backward is turned round before spans are drawn, as in the original, and the spans back again. Fewer
  than `goal` are found only where there are fewer candidates; `length` stands in the slots that remain.
  """
  span_key, fill_key = jax.random.split(key)
  turned = lambda x: jnp.where(backward, x[::-1], x)
  covered = spans.draw(
    span_key,
    turned(starts),
    turned(candidate),
    goal,
    unit=config.span_unit,
    max_span=config.max_span,
    alpha=config.alpha,
    beta=config.beta,
  )
  anywhere = jax.random.uniform(fill_key, candidate.shape)
  return spans.lowest(jnp.where(candidate, jnp.where(turned(covered), -1.0, anywhere), jnp.inf), goal)


def turns(
  order: Int[Array, " length"],
  is_target: Bool[Array, " length"],
  ordered: Bool[Array, " length"],
  reuse_len: int,
) -> tuple[Int[Array, " length"], Int[Array, " length"]]:
  """Returns (turn, horizon): position q sees position k if turn[k] < horizon[q].

  The original's `rev_index` and `self_rev_index`, with the two halves one behind the other. What is not `ordered` (the
  context, where targets are spans) comes before everything, and sees only what does. What is ordered sees what comes
  before it; a target does not see itself, while a functional token (and in the paper's partial prediction context)
  does.

  Args:
    order: each position's place in the order of its half.
    is_target: a query stands there.
    ordered: follows the order.
    reuse_len: tokens of the first half.
  """
  second = jnp.arange(order.shape[0]) >= reuse_len
  turn = jnp.where(ordered, order, -1) + jnp.where(second, reuse_len + 1, 0)  # behind all horizons of the first half
  return turn, turn + jnp.where(is_target, 0, 1)
