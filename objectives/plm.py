"""Permutation language modelling: each target from what comes before it in a random order (XLNet §2.2 to §2.5).

What is carried from step to step is the memory (objectives/memory.py).
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from models.xlnet import PermutationLM, PermutationLMOutput
from objectives import memory, pair, permutation
from objectives.masking import Corrupted
from objectives.mlm import against_text, cross_entropy, mean
from objectives.objective import Batch, Carry, Objective, Params, Sums, check_prng, dropout_rngs
from objectives.permutation import PermutationConfig, Permuted
from objectives.vocabulary import Vocabulary

WORDS = ("plm", "dae")
PAIR = ("none", "nsp")
QUARTERS = (1, 2, 3, 4)


@dataclasses.dataclass(frozen=True)
class PLMConfig(PermutationConfig):
  """What an XLNet is pretrained on: targets and orders as PermutationConfig says, and beyond these:

  Attributes:
    words: how targets are predicted: "plm", in an order, or "dae", all at once from a corrupted row
      (objectives/dae.py).
    mask: dae: share of targets that are shown as the mask token.
    random: dae: share of targets that are shown as a random ordinary token; the rest stay as they are.
    pair: the decision about the two segments: "none", or "nsp" (XLNet §3.4), whether the second follows the first.
    memory_reset: "never": every token sees the memory, be it of another document, or of zeros before the first step, as
      in the released code. "document": a token sees what is of its own document, as the paper has it (§2.5).
    dropout_prng: generator of the dropout masks. "threefry2x32" gives the same masks on every mesh; "rbg" and
      "unsafe_rbg" are faster on TPU and promise nothing.
  """

  words: str = "plm"
  mask: float = 0.8
  random: float = 0.1
  pair: str = "none"
  memory_reset: str = "never"
  dropout_prng: str = "threefry2x32"

  def __post_init__(self):
    super().__post_init__()
    for name, choices in (("words", WORDS), ("pair", PAIR), ("memory_reset", memory.RESET)):
      if getattr(self, name) not in choices:
        raise ValueError(f"objective.{name}={getattr(self, name)!r} is unknown; use one of {', '.join(choices)}")
    if min(self.mask, self.random) < 0 or self.mask + self.random > 1:
      raise ValueError(f"objective: mask={self.mask} and random={self.random} must be shares that add up to 1 at most")
    check_prng(self.dropout_prng)


Drawn = Permuted | Corrupted  # both have "targets" and "weights", [batch, targets]


class Words(NamedTuple):
  """A way to predict a row's words.

  Attributes:
    term: its name in the log.
    draw: (key, batch, vocabulary, config) → what is predicted.
    shown: (batch, drawn, reuse_len) → the tokens that the model sees, and its arguments beside them and the memory.
    evaluation: (logits, drawn, vocabulary, config) → what is measured without dropout besides.
  """

  term: str
  draw: Callable[[Array, Batch, Vocabulary, PLMConfig], Any]
  shown: Callable[[Batch, Any, int], tuple[Array, dict]]
  evaluation: Callable[[Array, Any, Vocabulary, PLMConfig], Sums]


def make(model: PermutationLM, config: PLMConfig, vocabulary: Vocabulary) -> Objective:
  """Returns the objective: the term "plm" and, where asked, "nsp"; a carry of "memory" and "document_ids" (empty where
  mem_len is 0)."""
  return assemble(model, config, vocabulary, PLM)


def assemble(model: PermutationLM, config: PLMConfig, vocabulary: Vocabulary, words: Words) -> Objective:
  """Returns the objective of predicting words in one way or another, and pairs where the config asks for them.

  Raises:
    ValueError: `config` asks for another way, or for pairs of a model that has no head for them.
  """
  if config.words != words.term:
    raise ValueError(f"objective.words={config.words!r} is made by objectives.{config.words}.make")
  if model.pair != (config.pair != "none"):
    raise ValueError(f"objective.pair={config.pair!r} and a model with pair={model.pair} do not belong together")

  def init(key):
    row = jnp.zeros((1, 8), jnp.int32)  # shapes of parameters depend on neither rows nor length
    one = {"target_positions": row[:, :1], "target_visible": jnp.ones((1, 1, 8), bool)}
    return model.init(key, row, row, **one, method="with_pair" if model.pair else None)["params"]

  def run(params, carry, batch, key, deterministic):
    draw_key, dropout_key = jax.random.split(key)
    drawn = words.draw(draw_key, batch, vocabulary, config)
    rngs = {} if deterministic else dropout_rngs(dropout_key, batch["row"], config.dropout_prng)
    tokens, shown = words.shown(batch, drawn, config.reuse_len)
    output, carry = apply(model, config, params, carry, batch, tokens, **shown, deterministic=deterministic, rngs=rngs)
    terms, metrics = sums(words.term, output.logits, drawn, batch)
    if model.pair:
      pair_terms, pair_metrics = pair.sums(config.pair, output.pair_logits, batch)
      terms, metrics = terms | pair_terms, metrics | pair_metrics
    return terms, metrics, carry, (output.logits, drawn)

  def loss_fn(params, carry, batch, key):
    terms, metrics, carry, _ = run(params, carry, batch, key, deterministic=False)
    return terms, metrics, carry

  def eval_fn(params, carry, batch, key):
    terms, metrics, carry, predicted = run(params, carry, batch, key, deterministic=True)
    return terms, metrics | words.evaluation(*predicted, vocabulary, config), carry, {}

  return Objective(init, lambda rows: memory.empty(model.config, rows), loss_fn, eval_fn)


def apply(
  model: PermutationLM, config: PLMConfig, params: Params, carry: Carry, batch: Batch, tokens: Array, **options
) -> tuple[PermutationLMOutput, Carry]:
  """Returns (the model's output, the next step's carry). `tokens` are those that the model sees; `options` are the
  model's arguments beside segments, direction and memory, and flax's `rngs`."""
  options |= memory.arguments(carry, batch, config.memory_reset, config.reuse_len)
  row = tokens, batch["segment_ids"]
  if model.pair:
    output = model.apply({"params": params}, *row, **options, method="with_pair")
  else:
    output = PermutationLMOutput(*model.apply({"params": params}, *row, **options), None)
  return output, memory.following(carry, output.memory, batch, config.reuse_len)


def sums(term: str, logits: Float[Array, "batch targets vocab"], drawn: Drawn, batch: Batch) -> tuple[Sums, Sums]:
  """Returns `term` in nats a target, and the metrics "TERM_accuracy" and "target_shortfall" (targets a row that the
  budget allowed and the text could not fill)."""
  weights, targets = drawn.weights, drawn.targets
  rows = (batch["sequence_ids"] > 0).any(-1).astype(jnp.float32)
  return {term: mean(cross_entropy(logits, targets), weights)}, {
    f"{term}_accuracy": mean(logits.argmax(-1) == targets, weights),
    "target_shortfall": ((rows * (weights.shape[1] - weights.sum(1))).sum(), rows.sum()),
  }


def shown(batch: Batch, permuted: Permuted, reuse_len: int) -> tuple[Array, dict]:
  """Returns the clean tokens, and who sees whom; the halves are in the masks."""
  del reuse_len
  masks = ("visible", "target_positions", "target_visible")
  return batch["tokens"], {name: getattr(permuted, name) for name in masks}


def evaluation(
  logits: Float[Array, "batch targets vocab"], permuted: Permuted, vocabulary: Vocabulary, config: PLMConfig
) -> Sums:
  """Returns the loss against the text alone, and by a target's place in the order."""
  loss = cross_entropy(logits, permuted.targets)
  return against_text(loss, permuted.targets, permuted.weights, vocabulary) | by_place(loss, permuted, config.reuse_len)


def by_place(loss: Float[Array, "batch targets"], permuted: Permuted, reuse_len: int) -> Sums:
  """Returns "plm_loss_quarter_1" … "plm_loss_quarter_4": the loss by a target's place among those of its half.

  A target sees those before it in the order, so the loss falls from quarter to quarter where the model reads them.
  """
  weights = permuted.weights
  first = permuted.target_positions < reuse_len
  count = lambda half: (weights * half).sum(1, keepdims=True)
  quarter = jnp.floor(4 * permuted.rank / jnp.maximum(jnp.where(first, count(first), count(~first)), 1))
  return {f"plm_loss_quarter_{i}": mean(loss, weights * (quarter == i - 1)) for i in QUARTERS}


PLM = Words("plm", permutation.permute, shown, evaluation)
