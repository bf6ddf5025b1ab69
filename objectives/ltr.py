"""Left-to-right language modelling: each token from those before it in its sequence (BERT §5.1, "LTR & No NSP").

The rows, the heads and the budget of steps are masked LM's; what differs is that a token sees nothing behind it
(`model.causal`), that nothing is hidden, and that every word is a target.
"""

import jax.numpy as jnp
from jaxtyping import Array

from objectives.masking import Corrupted
from objectives.vocabulary import Vocabulary


def targets(batch: dict[str, Array], vocabulary: Vocabulary) -> Corrupted:
  """Returns the batch as it is, with every token but the special ones as a target, predicted at the token before it.

  A sequence's first token has none before it and is no target.

  Args:
    batch: "tokens" and "sequence_ids" [batch, length].
    vocabulary: which ids are special.
  """
  tokens, sequence_ids = batch["tokens"], batch["sequence_ids"]
  following = tokens[:, 1:]
  inside = (sequence_ids[:, 1:] > 0) & (sequence_ids[:, 1:] == sequence_ids[:, :-1])
  used = inside & ~jnp.asarray(vocabulary.special)[following]
  positions = jnp.broadcast_to(jnp.arange(following.shape[1]), following.shape)
  nothing_missed = jnp.zeros(tokens.shape[0], jnp.float32)
  return Corrupted(tokens, positions, jnp.where(used, following, 0), used.astype(jnp.float32), nothing_missed)


def slots(length: int) -> int:
  """Returns the target slots of a row: one for each token that has another before it."""
  return length - 1
