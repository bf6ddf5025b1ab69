"""Permutation language modelling: each target from what comes before it in a random order (XLNet §2.2 to §2.5).

What is carried from step to step is the memory, the layers' inputs at the `mem_len` positions before the row
(Transformer-XL §3.2), and the document that each of them belongs to.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from models.xlnet import PermutationLM
from objectives import permutation
from objectives.mlm import against_text, cross_entropy, mean
from objectives.objective import Batch, Carry, Objective, Params, Sums, check_prng, dropout_rngs
from objectives.permutation import PermutationConfig, Permuted
from objectives.vocabulary import Vocabulary

MEMORY_RESET = ("never", "document")
QUARTERS = (1, 2, 3, 4)


@dataclasses.dataclass(frozen=True)
class PLMConfig(PermutationConfig):
  """What XLNet is pretrained on: targets and orders as PermutationConfig says, and beyond these:

  Attributes:
    memory_reset: "never": every token sees the memory, be it of another document, or of zeros before the first step, as
      in the released code. "document": a token sees what is of its own document, as the paper has it (§2.5).
    dropout_prng: generator of the dropout masks. "threefry2x32" gives the same masks on every mesh; "rbg" and
      "unsafe_rbg" are faster on TPU and promise nothing.
  """

  memory_reset: str = "never"
  dropout_prng: str = "threefry2x32"

  def __post_init__(self):
    super().__post_init__()
    if self.memory_reset not in MEMORY_RESET:
      raise ValueError(f"objective.memory_reset={self.memory_reset!r} is unknown; use one of {', '.join(MEMORY_RESET)}")
    check_prng(self.dropout_prng)


def make(model: PermutationLM, config: PLMConfig, vocabulary: Vocabulary) -> Objective:
  """Returns the objective: the term "plm", and a carry of "memory" and "document_ids" (empty where mem_len is 0)."""
  layers, mem_len, width = model.config.num_layers, model.config.mem_len, model.config.hidden_size

  def init(key):
    row = jnp.zeros((1, 8), jnp.int32)  # shapes of parameters depend on neither rows nor length
    one = row[:, :1]
    return model.init(key, row, row, target_positions=one, target_visible=jnp.ones((1, 1, 8), bool))["params"]

  def init_carry(rows):
    if not mem_len:
      return {}
    memory = jnp.zeros((rows, layers, mem_len, width), model.config.dtype)
    return {"memory": memory, "document_ids": jnp.zeros((rows, mem_len), jnp.int32)}

  def run(params, carry, batch, key, deterministic):
    permutation_key, dropout_key = jax.random.split(key)
    permuted = permutation.permute(permutation_key, batch, vocabulary, config)
    rngs = {} if deterministic else dropout_rngs(dropout_key, batch["row"], config.dropout_prng)
    return permuted, *predict(model, config, params, carry, batch, permuted, deterministic=deterministic, rngs=rngs)

  def loss_fn(params, carry, batch, key):
    permuted, logits, carry = run(params, carry, batch, key, deterministic=False)
    return *sums(logits, permuted, batch), carry

  def eval_fn(params, carry, batch, key):
    permuted, logits, carry = run(params, carry, batch, key, deterministic=True)
    terms, metrics = sums(logits, permuted, batch)
    loss = cross_entropy(logits, permuted.targets)
    metrics |= against_text(loss, permuted.targets, permuted.weights, vocabulary)
    return terms, metrics | by_place(loss, permuted, config.reuse_len), carry, {}

  return Objective(init, init_carry, loss_fn, eval_fn)


def predict(
  model: PermutationLM, config: PLMConfig, params: Params, carry: Carry, batch: Batch, permuted: Permuted, **options
) -> tuple[Float[Array, "batch targets vocab"], Carry]:
  """Returns (logits, the next step's carry). `options` are the model's: `deterministic`, and flax's `rngs`."""
  logits, memory = model.apply(
    {"params": params},
    batch["tokens"],
    batch["segment_ids"],
    visible=permuted.visible,
    memory=carry.get("memory"),
    memory_visible=memory_visible(carry, batch) if config.memory_reset == "document" else None,
    backward=batch["backward"],
    target_positions=permuted.target_positions,
    target_visible=permuted.target_visible,
    reuse_len=config.reuse_len,
    **options,
  )
  if not carry:
    return logits, carry
  return logits, {"memory": memory, "document_ids": remember(carry["document_ids"], batch, config.reuse_len)}


def memory_visible(carry: Carry, batch: Batch) -> Bool[Array, "batch length memory"] | None:
  """Returns [b, q, k]: whether token q is of the document of the memory's position k; None without a memory."""
  if not carry:
    return None
  # Where nothing is remembered yet there is a 0, and documents are numbered from 1.
  return batch["document_ids"][:, :, None] == carry["document_ids"][:, None, :]


def remember(document_ids: Int[Array, "batch memory"], batch: Batch, reuse_len: int) -> Int[Array, "batch memory"]:
  """Returns the documents of the next step's memory: it holds this row's first half, and what was there before."""
  return jnp.concatenate([document_ids, batch["document_ids"][:, :reuse_len]], axis=1)[:, -document_ids.shape[1] :]


def sums(logits: Float[Array, "batch targets vocab"], permuted: Permuted, batch: Batch) -> tuple[Sums, Sums]:
  """Returns the term "plm" in nats a target, and the metrics "plm_accuracy" and "target_shortfall" (targets a row that
  the budget allowed and the text could not fill)."""
  weights, targets = permuted.weights, permuted.targets
  rows = (batch["sequence_ids"] > 0).any(-1).astype(jnp.float32)
  return {"plm": mean(cross_entropy(logits, targets), weights)}, {
    "plm_accuracy": mean(logits.argmax(-1) == targets, weights),
    "target_shortfall": ((rows * (weights.shape[1] - weights.sum(1))).sum(), rows.sum()),
  }


def by_place(loss: Float[Array, "batch targets"], permuted: Permuted, reuse_len: int) -> Sums:
  """Returns "plm_loss_quarter_1" … "plm_loss_quarter_4": the loss by a target's place among those of its half.

  A target sees those before it in the order, so the loss falls from quarter to quarter where the model reads them.
  """
  weights = permuted.weights
  first = permuted.target_positions < reuse_len
  count = lambda half: (weights * half).sum(1, keepdims=True)
  quarter = jnp.floor(4 * permuted.rank / jnp.maximum(jnp.where(first, count(first), count(~first)), 1))
  return {f"plm_loss_quarter_{i}": mean(loss, weights * (quarter == i - 1)) for i in QUARTERS}
