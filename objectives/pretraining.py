"""Pretraining an encoder: masked tokens or the following ones, and a decision about the two segments."""

import dataclasses

import jax
import jax.numpy as jnp

from models.pretraining import PretrainingModel
from objectives import ltr, masking, mlm, pair
from objectives.objective import Objective, check_prng, dropout_rngs, no_carry
from objectives.vocabulary import Vocabulary

PAIR = ("nsp", "sop", "none")
WORDS = ("mlm", "ltr")


@dataclasses.dataclass(frozen=True)
class PretrainingConfig:
  """What an encoder is pretrained on.

  Attributes:
    masking: how targets are chosen and replaced.
    words: which words are predicted: "mlm", hidden ones from both sides, or "ltr", each from those before it; then the
      model's attention must be causal, and no pair can be told: [CLS] sees nothing but itself.
    pair: the decision about the two segments: "nsp", "sop", or "none". The rows must be made for it.
    dropout_prng: generator of the dropout masks. "threefry2x32" gives the same masks on every mesh; "rbg" and
      "unsafe_rbg" are faster on TPU and promise nothing.
  """

  masking: masking.MaskingConfig
  pair: str = "nsp"
  words: str = "mlm"
  dropout_prng: str = "threefry2x32"

  def __post_init__(self):
    if self.pair not in PAIR:
      raise ValueError(f"objective.pair={self.pair!r} is unknown; use one of {', '.join(PAIR)}")
    if self.words not in WORDS:
      raise ValueError(f"objective.words={self.words!r} is unknown; use one of {', '.join(WORDS)}")
    if self.words == "ltr" and self.pair != "none":
      raise ValueError(
        f"objective.words='ltr' with objective.pair={self.pair!r}: [CLS] comes first and sees no segment; set "
        "objective.pair='none'"
      )
    check_prng(self.dropout_prng)

  def check_model(self, causal: bool) -> None:
    """Raises ValueError if attention is not what `words` needs."""
    if causal != (self.words == "ltr"):
      raise ValueError(
        f"model.causal={causal} with objective.words={self.words!r}: what is predicted from "
        f"{'both sides needs model.causal=False' if causal else 'what comes before needs model.causal=True'}"
      )

  def slots(self, length: int) -> int:
    """Returns the target slots of a row."""
    return ltr.slots(length) if self.words == "ltr" else masking.max_targets(length, self.masking.rate)


def make(model: PretrainingModel, config: PretrainingConfig, vocabulary: Vocabulary) -> Objective:
  """Returns the objective: terms "mlm" or "ltr" and, where asked, "nsp" or "sop"."""
  config.check_model(model.config.causal)

  def init(key):
    row = jnp.zeros((1, 8), jnp.int32)  # shapes of parameters depend on neither rows nor length
    return model.init(key, row, row, row + 1, jnp.zeros((1, 1), jnp.int32), deterministic=True)["params"]

  def terms_and_metrics(params, batch, key, deterministic):
    corruption_key, dropout_key = jax.random.split(key)
    if config.words == "ltr":
      corrupted = ltr.targets(batch, vocabulary)
    else:
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
    terms, metrics = mlm.sums(output.mlm_logits, corrupted, config.words)
    if config.pair != "none":
      pair_terms, pair_metrics = pair.sums(config.pair, output.pair_logits, batch)
      terms, metrics = terms | pair_terms, metrics | pair_metrics
    return terms, metrics, (output.mlm_logits, corrupted)

  def loss_fn(params, carry, batch, key):
    terms, metrics, _ = terms_and_metrics(params, batch, key, deterministic=False)
    return terms, metrics, carry

  def eval_fn(params, carry, batch, key):
    terms, metrics, predicted = terms_and_metrics(params, batch, key, deterministic=True)
    logits, corrupted = predicted
    if config.words == "mlm":
      metrics |= mlm.evaluation(logits, corrupted, vocabulary, hides=config.masking.mask > 0)
    else:
      loss = mlm.cross_entropy(logits, corrupted.targets)
      metrics |= mlm.against_text(loss, corrupted.targets, corrupted.weights, vocabulary)
    return terms, metrics, carry, {}

  return Objective(init, no_carry, loss_fn, eval_fn)
