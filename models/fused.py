"""Attention that never holds the probabilities: the kernels that a TPU and a GPU have for it.

They drop no probabilities, so they serve where none are dropped: models that are trained without it (the larger
ALBERTs), evaluation and prediction.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int

from models.config import EncoderConfig
from models.xlnet_config import XLNetConfig

_TILES = (512, 256, 128)  # tokens of a kernel's block; the largest that divides the row
_NO_KERNEL = ("TPU v2", "TPU v3")  # Mosaic has no products of bfloat16 there


def kernel_of(config: EncoderConfig, length: int, dropout: bool) -> str:
  """Returns which attention rows of `length` tokens have on the ambient mesh's devices (without one, on the default).

  Args:
    config: the model's.
    length: tokens of a row.
    dropout: whether probabilities are dropped.

  Returns:
    explicit, splash (Pallas on TPU v4 and later) or cudnn.

  Raises:
    ValueError: the config names a kernel that cannot do it.
  """
  if config.attention == "explicit" or (config.attention == "auto" and dropout):
    return "explicit"
  fits = length % _TILES[-1] == 0
  platform, kind = _device()
  has_splash = platform == "tpu" and kind not in _NO_KERNEL
  has_cudnn = platform in ("gpu", "cuda")
  if config.attention != "auto":
    either = "or model.attention='auto'"
    if config.attention == "splash" and not (has_splash or platform == "cpu"):  # a CPU interprets it
      raise ValueError(f"model.attention='splash' needs a TPU v4 or later, not {kind}; set 'explicit' or 'auto'")
    if config.attention == "cudnn" and not has_cudnn:
      raise ValueError(f"model.attention='cudnn' needs an NVIDIA GPU, not {kind}; set 'explicit' or 'auto'")
    if dropout:
      raise ValueError(f"model.attention={config.attention!r} drops nothing; set model.attention_dropout=0, {either}")
    if config.attention == "splash" and not fits:
      raise ValueError(
        f"model.attention='splash' needs a length that {_TILES[-1]} divides, not {length}; set it, {either}"
      )
    if config.attention == "cudnn" and config.dtype != "bfloat16":
      raise ValueError(f"model.attention='cudnn' needs model.dtype='bfloat16', not {config.dtype!r}; set it, {either}")
    return config.attention
  if has_splash and fits:
    return "splash"
  return "cudnn" if has_cudnn and config.dtype == "bfloat16" else "explicit"


def described(config: EncoderConfig | XLNetConfig, length: int) -> str:
  """Returns in words which attention rows of `length` tokens have, in training and without dropout; "" of an XLNet,
  whose relative scores no kernel has.

  Raises:
    ValueError: see `kernel_of`.
  """
  if isinstance(config, XLNetConfig):
    return ""
  train, still = (kernel_of(config, length, dropout) for dropout in (config.attention_dropout > 0, False))
  return f"attention {train}" + (f" (without dropout {still})" if still != train else "")


def attend(
  kernel: str,
  query: Float[Array, "batch length heads width"],
  key: Float[Array, "batch length heads width"],
  value: Float[Array, "batch length heads width"],
  sequence_ids: Int[Array, "batch length"],
  causal: bool = False,
) -> Float[Array, "batch length heads width"]:
  """Returns softmax(query · key / sqrt(width)) · value inside each sequence of a row, with `causal` over the keys up to
  the query's own; `kernel` is splash or cudnn."""
  if kernel == "cudnn":
    mask = sequence_ids[:, None, :, None] == sequence_ids[:, None, None, :]
    return jax.nn.dot_product_attention(query, key, value, mask=mask, is_causal=causal, implementation="cudnn")
  one_device = functools.partial(_splash, causal=causal)
  mesh = jax.sharding.get_abstract_mesh()
  if not mesh.auto_axes:
    return one_device(query, key, value, sequence_ids)
  # The compiler cannot split a kernel: each device calls it on its own rows and heads.
  present = lambda *names: tuple(name for name in names if name in mesh.auto_axes) or None
  rows, heads = present("data", "fsdp"), present("tensor")
  by_head, by_row = P(rows, None, heads, None), P(rows, None)
  split = jax.shard_map(
    one_device, in_specs=(by_head,) * 3 + (by_row,), out_specs=by_head, axis_names={*mesh.auto_axes}, check_vma=False
  )
  return split(query, key, value, sequence_ids)


def _splash(query, key, value, sequence_ids, causal: bool):
  # Imported where it is needed: it takes a while.
  from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
  from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

  _, length, heads, width = query.shape
  tile = next(size for size in _TILES if length % size == 0)
  names = ("block_q", "block_kv", "block_kv_compute", "block_q_dkv", "block_kv_dkv", "block_kv_dkv_compute")
  sizes = splash.BlockSizes(**dict.fromkeys((*names, "block_q_dq", "block_kv_dq"), tile))
  mask = (masks.CausalMask if causal else masks.FullMask)((length, length))
  one = splash.make_splash_mha(
    masks.MultiHeadMask([mask] * heads),
    block_sizes=sizes,
    head_shards=1,
    q_seq_shards=1,
    interpret=_device()[0] == "cpu",
  )
  by_head = lambda x: jnp.swapaxes(x, 1, 2)
  found = jax.vmap(one)(
    by_head(query * width**-0.5), by_head(key), by_head(value), splash.SegmentIds(sequence_ids, sequence_ids)
  )
  return by_head(found)


def _device() -> tuple[str, str]:
  """The platform and kind of the devices that a program is traced for."""
  mesh = jax.sharding.get_abstract_mesh()
  device = jax.devices()[0] if mesh.empty else mesh.abstract_device
  return device.platform, device.device_kind
