"""Pretraining an encoder: masked tokens, and a decision about the two segments."""

import dataclasses

import jax
import jax.numpy as jnp

from models.pretraining import PretrainingModel
from objectives import masking, mlm, pair
from objectives.objective import Objective, no_carry
from objectives.vocabulary import Vocabulary

PAIR = ("nsp", "sop", "none")
PRNG = ("threefry2x32", "rbg", "unsafe_rbg")


@dataclasses.dataclass(frozen=True)
class PretrainingConfig:
  """What an encoder is pretrained on.

  Attributes:
    masking: how targets are chosen and replaced.
    pair: the decision about the two segments: "nsp", "sop", or "none". The rows must be made for it.
    dropout_prng: generator of the dropout masks. "threefry2x32" gives the same masks on every mesh; "rbg" and
      "unsafe_rbg" are faster on TPU and promise nothing.
  """

  masking: masking.MaskingConfig
  pair: str = "nsp"
  dropout_prng: str = "threefry2x32"

  def __post_init__(self):
    if self.pair not in PAIR:
      raise ValueError(f"objective.pair={self.pair!r} is unknown; use one of {', '.join(PAIR)}")
    if self.dropout_prng not in PRNG:
      raise ValueError(f"objective.dropout_prng={self.dropout_prng!r} is unknown; use one of {', '.join(PRNG)}")


def make(model: PretrainingModel, config: PretrainingConfig, vocabulary: Vocabulary) -> Objective:
  """Returns the objective: terms "mlm" and, where asked, "nsp" or "sop"."""

  def init(key):
    row = jnp.zeros((1, 8), jnp.int32)  # shapes of parameters depend on neither rows nor length
    return model.init(key, row, row, row + 1, jnp.zeros((1, 1), jnp.int32), deterministic=True)["params"]

  def terms_and_metrics(params, batch, key, deterministic):
    corruption_key, dropout_key = jax.random.split(key)
    corrupted = masking.corrupt(corruption_key, batch, vocabulary, config.masking)
    # A micro-batch is known by its first row; the generator may be another than the one that seeds it.
    seed = jax.random.bits(jax.random.fold_in(dropout_key, batch["row"][0]))
    rngs = {} if deterministic else {"dropout": jax.random.key(seed, impl=config.dropout_prng)}
    output = model.apply(
      {"params": params},
      corrupted.tokens,
      batch["segment_ids"],
      batch["sequence_ids"],
      corrupted.positions,
      deterministic=deterministic,
      rngs=rngs,
    )
    terms, metrics = mlm.sums(output.mlm_logits, corrupted)
    if config.pair != "none":
      pair_terms, pair_metrics = pair.sums(config.pair, output.pair_logits, batch)
      terms, metrics = terms | pair_terms, metrics | pair_metrics
    return terms, metrics, (output.mlm_logits, corrupted)

  def loss_fn(params, carry, batch, key):
    terms, metrics, _ = terms_and_metrics(params, batch, key, deterministic=False)
    return terms, metrics, carry

  def eval_fn(params, carry, batch, key):
    terms, metrics, predicted = terms_and_metrics(params, batch, key, deterministic=True)
    return terms, metrics | mlm.evaluation(*predicted, vocabulary), carry

  return Objective(init, no_carry, loss_fn, eval_fn)
