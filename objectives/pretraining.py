"""Pretraining an encoder: masked tokens, and a decision about the two segments."""

import dataclasses

import jax
import jax.numpy as jnp

from models.pretraining import PretrainingModel
from objectives import masking, mlm, pair
from objectives.objective import Objective, check_prng, dropout_rngs, no_carry
from objectives.vocabulary import Vocabulary

PAIR = ("nsp", "sop", "none")


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
    check_prng(self.dropout_prng)


def make(model: PretrainingModel, config: PretrainingConfig, vocabulary: Vocabulary) -> Objective:
  """Returns the objective: terms "mlm" and, where asked, "nsp" or "sop"."""

  def init(key):
    row = jnp.zeros((1, 8), jnp.int32)  # shapes of parameters depend on neither rows nor length
    return model.init(key, row, row, row + 1, jnp.zeros((1, 1), jnp.int32), deterministic=True)["params"]

  def terms_and_metrics(params, batch, key, deterministic):
    corruption_key, dropout_key = jax.random.split(key)
    corrupted = masking.corrupt(corruption_key, batch, vocabulary, config.masking)
    output = model.apply(
      {"params": params},
      corrupted.tokens,
      batch["segment_ids"],
      batch["sequence_ids"],
      corrupted.positions,
      deterministic=deterministic,
      rngs={} if deterministic else dropout_rngs(dropout_key, batch["row"], config.dropout_prng),
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
    return terms, metrics | mlm.evaluation(*predicted, vocabulary), carry, {}

  return Objective(init, no_carry, loss_fn, eval_fn)
