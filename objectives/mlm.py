"""Masked language modelling: the clean token at each target position (BERT §3.1, Task #1)."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from objectives.masking import Corrupted
from objectives.objective import Sums
from objectives.vocabulary import Vocabulary


def cross_entropy(logits: Float[Array, "*shape classes"], labels: Int[Array, "*shape"]) -> Float[Array, "*shape"]:
  """Returns -log softmax(logits)[labels] in float32 nats."""
  logits = logits.astype(jnp.float32)
  # A comparison, not a look-up: the gradient of a look-up is a scatter into an array of the logits' size.
  classes = jax.lax.broadcasted_iota(labels.dtype, logits.shape, logits.ndim - 1)
  picked = jnp.where(classes == labels[..., None], logits, 0).sum(-1)
  return jax.nn.logsumexp(logits, axis=-1) - picked


def sums(logits: Float[Array, "batch targets vocab"], corrupted: Corrupted, name: str = "mlm") -> tuple[Sums, Sums]:
  """Returns the term `name` in nats a target, and the metrics "NAME_accuracy" and, where targets are chosen,
  "mask_shortfall" (tokens a row)."""
  weights, weight = corrupted.weights, corrupted.weights.sum()
  loss = (weights * cross_entropy(logits, corrupted.targets)).sum()
  correct = (weights * (logits.argmax(-1) == corrupted.targets)).sum()
  rows = jnp.float32(corrupted.shortfall.shape[0])
  metrics = {f"{name}_accuracy": (correct, weight), "mask_shortfall": (corrupted.shortfall.sum(), rows)}
  if name == "ltr":  # every word is a target
    del metrics["mask_shortfall"]
  return {name: (loss, weight)}, metrics


def evaluation(
  logits: Float[Array, "batch targets vocab"], corrupted: Corrupted, vocabulary: Vocabulary, hides: bool = True
) -> Sums:
  """Returns what tells learning from copying, beside what needs no model, on the same targets.

  A tenth of the targets is shown as it is, and a model that only copies what it sees gets those right: half a nat and a
  tenth of the accuracy, with no context read. "masked_loss" and "masked_accuracy" count only what is hidden by [MASK].
  "masked_unigram_loss" is that of the unigram distribution, on these. All three are left out unless the
  objective `hides` any.
  """
  weights, targets = corrupted.weights, corrupted.targets
  hidden = weights * (jnp.take_along_axis(corrupted.tokens, corrupted.positions, axis=1) == vocabulary.mask_id)
  loss = cross_entropy(logits, targets)
  unigram_loss = -jnp.asarray(vocabulary.unigram_log_probs)[targets]
  masked = {
    "masked_loss": mean(loss, hidden),
    "masked_accuracy": mean(logits.argmax(-1) == targets, hidden),
    "masked_unigram_loss": mean(unigram_loss, hidden),
  }
  return (masked if hides else {}) | against_text(loss, targets, weights, vocabulary)


def against_text(
  loss: Float[Array, "batch targets"],
  targets: Int[Array, "batch targets"],
  weights: Float[Array, "batch targets"],
  vocabulary: Vocabulary,
) -> Sums:
  """Returns what sets `loss`, in nats a target, against the text alone.

  "unigram_loss" is that of the training text's unigram distribution, in nats a target; "most_frequent_accuracy" that of
  always saying its most frequent token; "bits_per_byte" the loss in bits over the UTF-8 bytes of the targets.
  """
  num_bytes = jnp.asarray(vocabulary.num_bytes, jnp.float32)[targets]
  return {
    "unigram_loss": mean(-jnp.asarray(vocabulary.unigram_log_probs)[targets], weights),
    "most_frequent_accuracy": mean(targets == vocabulary.most_frequent, weights),
    "bits_per_byte": ((weights * loss).sum() / np.float32(np.log(2)), (weights * num_bytes).sum()),
  }


def mean(values: Shaped[Array, "batch targets"], weights: Float[Array, "batch targets"]) -> tuple[Array, Array]:
  """Returns (sum, weight) of `values`."""
  return (weights * values).sum(), weights.sum()
