"""The pieces every family shares: dense layers, layer norm, activations and dropout, with BERT's defaults."""

import functools
import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from models.config import EncoderConfig
from models.xlnet_config import XLNetConfig

ModelConfig = EncoderConfig | XLNetConfig

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
  "gelu": lambda x: jax.nn.gelu(x, approximate=False),
  "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
  "relu": jax.nn.relu,
}


def split_by_row(x: Float[Array, "batch ..."], tensor: int | None = None) -> Float[Array, "batch ..."]:
  """Keeps activations split along the batch over the ambient mesh's "data" and "fsdp"; nothing without a mesh.

  Left alone, the compiler may read a kernel that is split over "fsdp" as a wish for tensor parallelism, and send
  activations of the whole batch around instead of gathering the kernel.

  Args:
    x: activations.
    tensor: the axis that is split over the mesh's "tensor", if it divides: heads, or the feed-forward's width. None =
      every device along "tensor" has all of it.
  """
  return _placed(x, {0: ("data", "fsdp")} | ({} if tensor is None else {tensor % x.ndim: ("tensor",)}))


def whole(x: Float[Array, "..."], tensor: int | None = None) -> Float[Array, "..."]:
  """Gathers an array, or its gradient, that may be split over the ambient mesh; nothing without a mesh.

  For a parameter that `split_by_row` of the result cannot speak for: from a table that is split on width, the compiler
  would look up a share of each vector of all rows and send that on, and take the table's gradient from the whole
  batch's vectors.

  Args:
    x: a parameter.
    tensor: the axis that stays split over "tensor".
  """
  return _placed(x, {} if tensor is None else {tensor: ("tensor",)})


def _placed(x: Float[Array, "..."], split: dict[int, tuple[str, ...]]) -> Float[Array, "..."]:
  """Splits the axes of `x` over those axes of the ambient mesh that the compiler sees to, and no others."""
  mesh = jax.sharding.get_abstract_mesh()
  if not mesh.auto_axes:
    return x
  spec = [None] * x.ndim
  for axis, names in split.items():
    names = tuple(name for name in names if name in mesh.auto_axes)
    if x.shape[axis] % math.prod(mesh.shape[name] for name in names) == 0:
      spec[axis] = names
  return jax.lax.with_sharding_constraint(x, PartitionSpec(*spec))


def lookup(table: Float[Array, "entries width"], ids: Int[Array, "batch length"]) -> Float[Array, "batch length width"]:
  """The table's entries at `ids`, split by row.

  Each device looks up its own rows in the whole table, by hand, so that the table's gradient, too, is a sum of what
  each makes of its own rows: the compiler may send the rows' vectors instead.
  """
  mesh = jax.sharding.get_abstract_mesh()
  axes = tuple(axis for axis in ("data", "fsdp") if axis in mesh.auto_axes and mesh.shape[axis] > 1)
  take = functools.partial(jnp.take, axis=0)
  if axes and ids.shape[0] % math.prod(mesh.shape[axis] for axis in axes) == 0:
    places = {"in_specs": (PartitionSpec(), PartitionSpec(axes)), "out_specs": PartitionSpec(axes)}
    take = jax.shard_map(take, **places, axis_names=set(axes), check_vma=False)
  return split_by_row(take(whole(table), ids))


def is_tensor_parallel() -> bool:
  """Whether the ambient mesh splits layers."""
  return dict(jax.sharding.get_abstract_mesh().shape).get("tensor", 1) > 1


def initializer(config: ModelConfig) -> nn.initializers.Initializer:
  """Normal with standard deviation `initializer_range`, for an encoder cut at two of them.

  As in the original (BERT's modeling.py: create_initializer, tf.truncated_normal_initializer), the values are not
  rescaled after the cut, so that their standard deviation is 0.88 of `initializer_range`. XLNet's original does not
  cut (model_utils.py: _get_initializer).
  """
  if isinstance(config, XLNetConfig):
    return nn.initializers.normal(config.initializer_range)
  return nn.initializers.truncated_normal(config.initializer_range)


def product(
  x: Float[Array, "*rows width"],
  matrix: Float[Array, "width features"],
  dimension_numbers=None,
  precision=None,
  preferred_element_type: str | None = None,
) -> Float[Array, "*rows features"]:
  """x · matrix, with all rows in one axis; its signature is that of Dense's `dot_general`.

  So the gradient of the matrix, too, is a product of two matrices. With several axes of rows, XLA on a CPU transposes
  one of its factors by computing again what produced it, in strides: a sixth of the time of a whole gradient.
  """
  del dimension_numbers  # always the last axis of x and the first of matrix
  rows = x.reshape(-1, x.shape[-1])
  return jnp.dot(rows, matrix, precision=precision, preferred_element_type=preferred_element_type).reshape(
    *x.shape[:-1], matrix.shape[-1]
  )


def dense(config: ModelConfig, features: int, name: str | None = None, use_bias: bool = True) -> nn.Dense:
  """A dense layer in the compute dtype."""
  init = initializer(config)
  return nn.Dense(features, use_bias, dtype=config.dtype, kernel_init=init, dot_general=product, name=name)


def layer_norm(config: ModelConfig, name: str | None = None) -> nn.LayerNorm:
  """Layer norm with float32 statistics; E[x²] - E[x]² could round below 0, which eps would not hide."""
  return nn.LayerNorm(config.layer_norm_eps, dtype=config.dtype, use_fast_variance=False, name=name)


class Dropout(nn.Module):
  """Sets each value to zero with probability `rate` and scales the others by 1 / (1 - rate).

  `by_row` says that the first axis is that of the batch.
  """

  rate: float
  by_row: bool = True

  @nn.compact
  def __call__(self, x: Float[Array, "..."], deterministic: bool) -> Float[Array, "..."]:
    if deterministic or self.rate == 0:
      return x
    keep, scale = keep_mask(self.make_rng("dropout"), self.rate, x.shape, self.by_row)
    return jnp.where(keep, x * jnp.asarray(scale, x.dtype), jnp.zeros((), x.dtype))


def keep_mask(
  key: PRNGKeyArray, rate: float, shape: tuple[int, ...], by_row: bool = True
) -> tuple[Bool[Array, "..."], float]:
  """Returns a random mask and the scale that keeps the mean: one over the probability that the mask is true.

  Two values share a 32-bit random word, which makes the mask three times as cheap as nn.Dropout's on a CPU. The rate
  is rounded to a multiple of 1/65536, and the scale belongs to the rounded rate. Values depend on key and shape alone:
  no sharding changes them. With `by_row` each row's values are its own, by its number in the batch: so they are the
  same where a device is given but its share of the rows.
  """
  kept = min(max(round((1 - rate) * 2**16), 1), 2**16 - 1)
  draw = lambda key, shape: jax.random.bits(key, (*shape[:-1], -(-shape[-1] // 2)), jnp.uint32)
  if not by_row:
    words = draw(key, shape)
  elif jax.random.key_impl(key) == "threefry2x32" and len(shape) > 1:
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, _first_row(shape[0]) + jnp.arange(shape[0]))
    words = jax.vmap(lambda key: draw(key, shape[1:]))(keys)
  else:  # a generator of the hardware draws for all rows at once
    words = draw(jax.random.fold_in(key, _first_row(shape[0])), shape)
  halves = jax.lax.bitcast_convert_type(words, jnp.uint16).reshape(*words.shape[:-1], -1)
  return halves[..., : shape[-1]] < kept, 2**16 / kept


def _first_row(rows: int) -> Int[Array, ""] | int:
  """The number in the batch of the first of a device's `rows` rows: 0, unless it is given but a share of them."""
  mesh = jax.sharding.get_abstract_mesh()
  return rows * jax.lax.axis_index("data") if "data" in mesh.manual_axes else 0
