"""A denoising auto-encoder on XLNet's rows and encoder, the baseline of XLNet's Table 6 ("DAE + Transformer-XL"): the
targets of permutation language modelling, all hidden at once as BERT hides them, and said by the content stream.

A token sees all of its half, the second half all of the first, and the memory as permutation language modelling has it.
The first half sees nothing of the second: the memory keeps the first, and the next row's targets stand in the second.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from models.xlnet import PermutationLM
from objectives import masking, mlm, objective, permutation, plm
from objectives.masking import Corrupted
from objectives.objective import Batch, Objective, Sums
from objectives.plm import PLMConfig
from objectives.vocabulary import Vocabulary

_REPLACE = 2  # of a row's key; the halves' targets take 0 and 1


def make(model: PermutationLM, config: PLMConfig, vocabulary: Vocabulary) -> Objective:
  """Returns the objective: the term "dae" and, where asked, "nsp"; the carry is that of plm.make."""
  return plm.assemble(model, config, vocabulary, DAE)


def corrupt(key: Array, batch: Batch, vocabulary: Vocabulary, config: PLMConfig) -> Corrupted:
  """Returns the batch with the targets replaced that `permutation.permute` draws by the same key.

  Args:
    key: the step's key for targets.
    batch: "tokens" and "sequence_ids" [batch, length], "backward" [batch], "row" [batch].
    vocabulary: which ids are special, begin words, mean the mask.
    config: what to draw, and how to replace it.

  Raises:
    ValueError: the length does not fit the fields of `config`.
  """
  length = batch["tokens"].shape[1]
  config.check_length(length)

  def corrupt_row(key, tokens, sequence_ids, backward):
    _, positions = permutation.choose(key, tokens, sequence_ids, backward, vocabulary, config)
    used = positions < length
    targets = jnp.where(used, tokens[positions], 0)
    kind_key, random_key = jax.random.split(jax.random.fold_in(key, _REPLACE))
    shown = masking.replace(kind_key, random_key, targets, vocabulary, config.mask, config.random)
    return Corrupted(
      tokens=tokens.at[positions].set(shown, mode="drop"),  # unused slots point past the row
      positions=jnp.where(used, positions, 0),
      targets=targets,
      weights=used.astype(jnp.float32),
      shortfall=(~used).sum().astype(jnp.float32),
    )

  keys = objective.row_keys(key, batch["row"])
  return jax.vmap(corrupt_row)(keys, batch["tokens"], batch["sequence_ids"], batch["backward"])


def shown(batch: Batch, corrupted: Corrupted, reuse_len: int) -> tuple[Array, dict]:
  """Returns the corrupted tokens, who sees whom, and where the content is read."""
  second = jnp.arange(corrupted.tokens.shape[1]) >= reuse_len
  visible = (batch["sequence_ids"] > 0)[:, None, :] & (second[None, :, None] | ~second[None, None, :])
  return corrupted.tokens, {"visible": visible, "read_positions": corrupted.positions}


def evaluation(
  logits: Float[Array, "batch targets vocab"], corrupted: Corrupted, vocabulary: Vocabulary, config: PLMConfig
) -> Sums:
  """As for masked language modelling: what is hidden by the mask token alone, beside what needs no model."""
  return mlm.evaluation(logits, corrupted, vocabulary, hides=config.mask > 0)


DAE = plm.Words("dae", corrupt, shown, evaluation)
