"""The fused kernels against the explicit path, the TPU's in interpret mode; which is chosen; rows split on a mesh."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from models import fused
from models.encoder import Encoder
from models.pretraining import PretrainingModel
from tests.models import tiny

LENGTH = 128
EXPLICIT = tiny.config(num_layers=1, max_length=LENGTH, attention_dropout=0.0, attention="explicit")
SPLASH = dataclasses.replace(EXPLICIT, attention="splash")


def rows(count: int = 2):
  """Two packed sequences and padding, then other borders in each row."""
  rng = np.random.default_rng(0)
  tokens = jnp.asarray(rng.integers(5, EXPLICIT.vocab_size, (count, LENGTH)))
  borders = rng.integers(10, 60, (count, 1)), rng.integers(70, 120, (count, 1))
  at = np.arange(LENGTH)
  sequence_ids = jnp.asarray(np.where(at < borders[0], 1, np.where(at < borders[1], 2, 0)))
  return tokens, jnp.zeros_like(tokens), sequence_ids


def value_and_gradient(config, inputs):
  """Of a sum over what is not padding."""
  params = tiny.params(EXPLICIT)["encoder"]

  def loss(params):
    hidden = Encoder(config).apply({"params": params}, *inputs)
    return (hidden * jnp.sin(jnp.arange(hidden.size).reshape(hidden.shape)) * (inputs[2] > 0)[..., None]).sum()

  return jax.jit(jax.value_and_grad(loss))(params)


@pytest.mark.parametrize("causal", [False, True])
def test_the_tpu_kernel_equals_the_explicit_path_on_packed_rows(causal):
  found, expected = (value_and_gradient(dataclasses.replace(c, causal=causal), rows()) for c in (SPLASH, EXPLICIT))
  np.testing.assert_allclose(found[0], expected[0], atol=1e-4)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-4), found[1], expected[1])


def test_each_device_calls_the_kernel_on_its_own_rows():
  mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])
  inputs = tuple(jax.device_put(x, NamedSharding(mesh, P("data"))) for x in rows(4))
  encode = lambda config, inputs: jax.jit(Encoder(config).apply)({"params": tiny.params(EXPLICIT)["encoder"]}, *inputs)
  with jax.set_mesh(mesh):
    found = encode(SPLASH, inputs)
  assert found.sharding.spec[0] == "data"
  np.testing.assert_allclose(found, encode(EXPLICIT, rows(4)), atol=2e-5)


def on(platform: str, kind: str):
  """What is traced in this block is for such a device."""
  device = jax.sharding.AbstractDevice(device_kind=kind, num_cores=None, platform=platform)
  return jax.sharding.use_abstract_mesh(AbstractMesh((1,), ("data",), (AxisType.Auto,), abstract_device=device))


@pytest.mark.parametrize(
  ("platform", "kind", "length", "dropout", "dtype", "expected"),
  [
    ("tpu", "TPU v4", 128, False, "bfloat16", "splash"),
    ("tpu", "TPU v5 lite", 512, False, "float32", "splash"),
    ("tpu", "TPU v4", 100, False, "bfloat16", "explicit"),
    ("tpu", "TPU v4", 128, True, "bfloat16", "explicit"),
    ("tpu", "TPU v3", 128, False, "bfloat16", "explicit"),
    ("gpu", "NVIDIA H100", 100, False, "bfloat16", "cudnn"),
    ("gpu", "NVIDIA H100", 128, False, "float32", "explicit"),
    ("cpu", "cpu", 128, False, "bfloat16", "explicit"),
  ],
)
def test_auto_is_the_kernel_that_fits(platform, kind, length, dropout, dtype, expected):
  config = tiny.config(attention="auto", dtype=dtype)
  with on(platform, kind):
    assert fused.kernel_of(config, length, dropout) == expected


def test_the_choice_is_said_in_words():
  with on("tpu", "TPU v4"):
    assert fused.described(tiny.config(), 128) == "attention explicit (without dropout splash)"
    assert fused.described(tiny.config(attention_dropout=0.0), 128) == "attention splash"
  assert fused.described(tiny.config(), 128) == "attention explicit"


@pytest.mark.parametrize(
  ("device", "fields", "length", "dropout", "message"),
  [
    (("tpu", "TPU v4"), {"attention": "splash"}, 128, True, "model.attention_dropout=0, or model.attention='auto'"),
    (("tpu", "TPU v4"), {"attention": "splash"}, 100, False, "a length that 128 divides, not 100"),
    (("tpu", "TPU v3"), {"attention": "splash"}, 128, False, "'splash' needs a TPU v4 or later, not TPU v3; set"),
    (("gpu", "NVIDIA H100"), {"attention": "splash"}, 128, False, "needs a TPU v4 or later, not NVIDIA H100; set"),
    (("gpu", "NVIDIA H100"), {"attention": "cudnn"}, 128, False, "needs model.dtype='bfloat16', not 'float32'"),
    (("cpu", "cpu"), {"attention": "cudnn", "dtype": "bfloat16"}, 128, False, "'cudnn' needs an NVIDIA GPU, not cpu"),
  ],
)
def test_a_named_kernel_that_cannot_do_it_is_refused(device, fields, length, dropout, message):
  with on(*device), pytest.raises(ValueError, match=message):
    fused.kernel_of(tiny.config(**fields), length, dropout)


@pytest.mark.parametrize("kernel", ["splash", "cudnn"])
def test_a_run_with_a_named_kernel_begins(kernel):
  """Its parameters are made on a row of a few tokens, as those of every objective are."""
  row = jnp.zeros((1, 8), jnp.int32)
  shapes = lambda config: jax.eval_shape(PretrainingModel(config).init, jax.random.key(0), row, row, row, row[:, :1])
  assert shapes(dataclasses.replace(EXPLICIT, attention=kernel)) == shapes(EXPLICIT)


@pytest.mark.parametrize("causal", [False, True])
def test_the_gpu_kernel_is_given_what_the_explicit_path_is(causal, monkeypatch):
  """cuDNN itself needs a GPU; the call that stands for it is JAX's own, in plain XLA."""
  monkeypatch.setattr(jax.nn, "dot_product_attention", _in_xla(jax.nn.dot_product_attention))
  monkeypatch.setattr(fused, "_device", lambda: ("gpu", "NVIDIA H100"))
  inputs = rows()
  explicit = dataclasses.replace(EXPLICIT, causal=causal)
  cudnn = dataclasses.replace(explicit, attention="cudnn", dtype="bfloat16")
  encode = lambda config: jax.jit(Encoder(config).apply)({"params": tiny.params(EXPLICIT)["encoder"]}, *inputs)
  found, expected = encode(cudnn), encode(explicit)
  real = np.asarray(inputs[2] > 0)
  np.testing.assert_allclose(np.asarray(found, np.float32)[real], np.asarray(expected)[real], atol=0.05)


def _in_xla(original):
  def call(*args, implementation, **options):
    assert implementation == "cudnn"
    return original(*args, implementation="xla", **options)

  return call
