"""Two-way decisions about a pair of segments: next-sentence prediction (BERT §3.1, Task #2), sentence order (ALBERT
§3.1)."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from objectives.mlm import cross_entropy
from objectives.objective import Batch, Sums


def sums(name: str, logits: Float[Array, "batch 2"], batch: Batch) -> tuple[Sums, Sums]:
  """Returns the term `name` in nats a pair, its accuracy, and "NAME_positive", the share of label 1.

  Args:
    name: "nsp" (0 = the next segment, 1 = a random one), or "sop" (0 = in order, 1 = swapped).
    logits: from the pooled first token.
    batch: "pair_label" [batch]; rows that are all padding count for nothing.
  """
  labels = batch["pair_label"]
  weights = (batch["sequence_ids"] > 0).any(-1).astype(jnp.float32)
  weight = weights.sum()
  loss = (weights * cross_entropy(logits, labels)).sum()
  correct = (weights * (logits.argmax(-1) == labels)).sum()
  return {name: (loss, weight)}, {
    f"{name}_accuracy": (correct, weight),
    f"{name}_positive": ((weights * labels).sum(), weight),
  }
