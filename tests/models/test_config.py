"""Sizes, parameter counts, initial values and FLOPs, against published numbers and arithmetic."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.config import BERT_SIZES, EncoderConfig
from models.flops import encoder_flops, pretraining_flops
from models.pretraining import PretrainingModel
from tests.models import tiny


def abstract_params(config: EncoderConfig):
  row = jax.ShapeDtypeStruct((1, 1), jnp.int32)
  return jax.eval_shape(PretrainingModel(config).init, jax.random.key(0), row, row, row, row)["params"]


def count(tree) -> int:
  return sum(leaf.size for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize(
  ("size", "vocab_size", "encoder_and_pooler", "everything"),
  [
    ("base", 30522, 109_482_240, 110_106_428),
    ("large", 30522, 335_141_888, 336_226_108),
    ("tiny", 30522, 4_385_920, 4_433_468),
    ("base", 28996, 108_310_272, 108_932_934),  # cased
    ("base", 119547, 177_853_440, 178_566_653),  # multilingual, cased
  ],
)
def test_parameter_counts_are_the_released_models(size, vocab_size, encoder_and_pooler, everything):
  params = abstract_params(EncoderConfig(vocab_size, **BERT_SIZES[size]))
  assert count(params["encoder"]) + count(params["pooler"]) == encoder_and_pooler
  assert count(params) == everything
  assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}


def test_the_24_small_sizes():
  small = {name: size for name, size in BERT_SIZES.items() if "/" in name}
  assert len(small) == 24
  assert small["8/512"] == {"num_layers": 8, "hidden_size": 512, "num_heads": 8, "intermediate_size": 2048}
  assert BERT_SIZES["base"] == small["12/768"]


@pytest.mark.parametrize(
  ("field", "value", "message"),
  [
    ("num_heads", 5, "num_heads=5 does not divide model.hidden_size=16"),
    ("num_layers", 0, "num_layers must be at least 1"),
    ("activation", "swish", "activation='swish' is not one of gelu, gelu_new, relu"),
    ("dtype", "float16", "dtype='float16' is not one of"),
    ("hidden_dropout", 1.0, r"hidden_dropout must lie in \[0, 1\)"),
    ("unroll", 4, "unroll=4 must lie in 0"),
    ("remat", "all", "remat='all' is not one of none, full, dots"),
    ("embedding_size", -1, "embedding_size must be at least 1, or 0 for model.hidden_size, not -1"),
    ("initializer_range", -0.02, "initializer_range must be above 0"),
    ("layer_norm_eps", 0.0, "layer_norm_eps must be above 0"),
    ("layer_norm_eps", float("nan"), "layer_norm_eps must be above 0"),
  ],
)
def test_an_impossible_field_is_named(field, value, message):
  with pytest.raises(ValueError, match=message):
    tiny.config(**{field: value})


def test_initial_values():
  """Truncated at two standard deviations and not rescaled: what is left has a deviation of 0.8796 × 0.02."""
  config = EncoderConfig(vocab_size=2000, **BERT_SIZES["tiny"])
  row = jnp.zeros((1, 4), jnp.int32)
  params = jax.jit(PretrainingModel(config).init)(jax.random.key(0), row, row, row, row)["params"]
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    name = path[-1].key
    if name == "bias":
      assert not leaf.any()
    elif name == "scale":
      assert (leaf == 1).all()
    else:
      assert abs(leaf).max() <= 0.04
      standard_error = 0.02 / np.sqrt(2 * leaf.size)
      assert leaf.std() == pytest.approx(0.8796 * 0.02, abs=4 * standard_error)
  layers = params["encoder"]["layers"]["ffn"]["intermediate"]["kernel"]
  assert not np.allclose(layers[0], layers[1])


def test_factorised_embeddings_have_a_projection():
  params = abstract_params(tiny.config(embedding_size=8))
  assert params["encoder"]["embeddings"]["word"]["embedding"].shape == (50, 8)
  assert params["encoder"]["embedding_projection"]["kernel"].shape == (8, 16)
  assert params["mlm_head"]["dense"]["kernel"].shape == (16, 8)


def product_flops(jaxpr, times=1) -> int:
  """FLOPs of the matrix products that a jaxpr holds, a scan's body counted once an iteration."""
  total = 0
  for equation in jaxpr.eqns:
    if equation.primitive.name == "dot_general":
      (contracted, _), _ = equation.params["dimension_numbers"]
      summed = np.prod([equation.invars[0].aval.shape[axis] for axis in contracted])
      total += times * 2 * int(np.prod(equation.outvars[0].aval.shape) * summed)
    inner = times * equation.params["length"] if equation.primitive.name == "scan" else times
    for value in equation.params.values():
      for sub in value if isinstance(value, tuple | list) else (value,):
        if sub := getattr(sub, "jaxpr", sub if hasattr(sub, "eqns") else None):
          total += product_flops(sub, inner)
  return total


def traced_flops(config, gradient: bool) -> int:
  params, rows, targets = tiny.params(config), tiny.rows(), tiny.targets()

  def loss(params):
    output = PretrainingModel(config).apply({"params": params}, *rows, targets)
    return output.mlm_logits.sum() + output.pair_logits.sum()

  return product_flops(jax.make_jaxpr(jax.grad(loss) if gradient else loss)(params).jaxpr)


@pytest.mark.parametrize("embedding_size", [0, 8])
def test_flops_are_those_of_the_traced_products(embedding_size):
  config = tiny.config(embedding_size=embedding_size)
  assert traced_flops(config, gradient=False) == pretraining_flops(config, 2, tiny.LENGTH, tiny.TARGETS)


def test_base_costs_what_the_paper_arithmetic_says():
  """12 layers × 12 H² multiply-adds a token, and attention: 2 × 12 × 2 × 128 × 768 more."""
  config = EncoderConfig(vocab_size=30522, **BERT_SIZES["base"])
  assert encoder_flops(config, 8, 128) == 2 * 1024 * 12 * (12 * 768**2 + 2 * 128 * 768)


def test_remat_computes_again_what_it_says():
  """Backward is twice forward; full remat adds each layer once more, dots only the products of attention."""
  forward = pretraining_flops(tiny.CONFIG, 2, tiny.LENGTH, tiny.TARGETS)
  layers = encoder_flops(tiny.CONFIG, 2, tiny.LENGTH)
  backward = {remat: traced_flops(tiny.config(remat=remat), gradient=True) for remat in ("none", "full", "dots")}
  assert backward["none"] == 3 * forward
  assert 3 * forward < backward["dots"] < backward["full"] <= 3 * forward + layers
  assert backward["full"] > 3 * forward + 0.6 * layers  # its last product has no later use, so it is left out


def test_vocab_multiple_pads_the_table_only():
  config = tiny.config(vocab_multiple=16)
  assert config.vocab_slots == 64
  assert dataclasses.replace(config, vocab_size=64).vocab_slots == 64
  assert abstract_params(config)["encoder"]["embeddings"]["word"]["embedding"].shape == (64, 16)
