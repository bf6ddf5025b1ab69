"""What XLNet's objectives carry from step to step: the memory, the layers' inputs at the `mem_len` positions before the
row (Transformer-XL §3.2), and the document that each of them belongs to."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from models.xlnet_config import XLNetConfig
from objectives.objective import Batch, Carry

RESET = ("never", "document")


def empty(config: XLNetConfig, rows: int) -> Carry:
  """Returns "memory" and "document_ids" before the first step: zeros; {} where mem_len is 0."""
  if not config.mem_len:
    return {}
  memory = jnp.zeros((rows, config.num_layers, config.mem_len, config.hidden_size), config.dtype)
  return {"memory": memory, "document_ids": jnp.zeros((rows, config.mem_len), jnp.int32)}


def visible(carry: Carry, batch: Batch) -> Bool[Array, "batch length memory"] | None:
  """Returns [b, q, k]: whether token q is of the document of the memory's position k; None without a memory."""
  if not carry:
    return None
  # Where nothing is remembered yet there is a 0, and documents are numbered from 1.
  return batch["document_ids"][:, :, None] == carry["document_ids"][:, None, :]


def arguments(carry: Carry, batch: Batch, reset: str, reuse_len: int) -> dict:
  """Returns what the model is told of the memory and of the rows' direction; `reset` is one of RESET."""
  return {
    "memory": carry.get("memory"),
    "memory_visible": visible(carry, batch) if reset == "document" else None,
    "backward": batch["backward"],
    "reuse_len": reuse_len,
  }


def following(
  carry: Carry, memory: Float[Array, "batch layers memory width"] | None, batch: Batch, reuse_len: int
) -> Carry:
  """Returns the next step's carry; `memory` is the model's new one."""
  if not carry:
    return carry
  return {"memory": memory, "document_ids": remember(carry["document_ids"], batch, reuse_len)}


def remember(document_ids: Int[Array, "batch memory"], batch: Batch, reuse_len: int) -> Int[Array, "batch memory"]:
  """Returns the documents of the next step's memory: it holds this row's first half, and what was there before."""
  return jnp.concatenate([document_ids, batch["document_ids"][:, :reuse_len]], axis=1)[:, -document_ids.shape[1] :]
