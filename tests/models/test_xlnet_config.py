"""XLNet's sizes, parameters, initial values and FLOPs, and the summary of a sequence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.flops import xlnet_flops
from models.summary import SequenceSummary
from models.xlnet import PermutationLM, parameter_shapes
from models.xlnet_config import XLNET_SIZES, XLNetConfig
from tests.models import tiny_xlnet as tiny
from tests.models.test_config import product_flops


@pytest.mark.parametrize(("size", "expected"), [("base", 116_750_336), ("large", 360_300_800)])
def test_parameter_counts_of_the_published_sizes(size, expected):
  """The released models, with the head's bias."""
  shapes = parameter_shapes(XLNetConfig(32_000, **XLNET_SIZES[size]))
  assert sum(int(np.prod(shape)) for shape in shapes.values()) == expected


def test_heads_may_have_another_width_than_the_models():
  shapes = parameter_shapes(tiny.config(head_size=6))
  assert shapes["xlnet/layers/attention/query/kernel"] == (3, 16, 24)
  assert shapes["xlnet/layers/attention/output/kernel"] == (3, 24, 16)
  assert shapes["xlnet/layers/attention/content_bias"] == (3, 4, 6)


@pytest.mark.parametrize(
  ("field", "value", "message"),
  [
    ("num_heads", 5, "num_heads=5 does not divide model.hidden_size=16; set model.head_size"),
    ("head_size", -1, "head_size must be at least 0"),
    ("mem_len", -1, "mem_len must be at least 0"),
    ("clamp_length", -1, "clamp_length must be at least 0"),
    ("intermediate_size", 0, "intermediate_size must be at least 1"),
    ("ffn_dropout", 1.0, r"ffn_dropout must lie in \[0, 1\)"),
    ("activation", "swish", "activation='swish' is not one of gelu, gelu_new, relu"),
    ("unroll", 4, "unroll=4 must lie in 0"),
    ("remat", "all", "remat='all' is not one of none, full, dots"),
  ],
)
def test_an_impossible_field_is_named(field, value, message):
  with pytest.raises(ValueError, match=message):
    tiny.config(**{field: value})


def test_an_odd_width_has_no_sines_and_cosines():
  with pytest.raises(ValueError, match="hidden_size=15 must be even"):
    tiny.config(hidden_size=15, num_heads=3)


def test_initial_values():
  """Normal and not cut, the attention's biases too; the mask's embedding uniform, as TensorFlow draws by default."""
  config = XLNetConfig(4000, hidden_size=128, num_layers=2, num_heads=2, intermediate_size=512)
  row = jnp.zeros((1, 4), jnp.int32)
  params = jax.jit(lambda key: PermutationLM(config).init(key, row, row, target_positions=row))(jax.random.key(0))
  for path, leaf in jax.tree_util.tree_leaves_with_path(params["params"]):
    name = path[-1].key
    if name == "bias":
      assert not leaf.any()
    elif name == "scale":
      assert (leaf == 1).all()
    elif name == "mask_embedding":
      limit = (6 / 129) ** 0.5
      assert 0.9 * limit < abs(leaf).max() < limit
    else:
      assert leaf.std() == pytest.approx(0.02, abs=4 * 0.02 / np.sqrt(2 * leaf.size))
      if leaf.size > 10_000:
        assert abs(leaf).max() > 0.06


def test_padded_slots_are_masked():
  config = tiny.config(vocab_multiple=16)
  logits, _ = PermutationLM(config).apply({"params": tiny.params(config)}, *tiny.rows(), **tiny.options())
  assert logits.shape == (2, 3, 64)
  assert (logits[..., 50:] < -1e8).all()
  assert (abs(logits[..., :50]) < 1e3).all()


def forward(config: XLNetConfig, targets: int, query: bool = True, pair: bool = False):
  """(a function of params that runs the content stream, or predicts `targets` targets by one stream or the other, with
  the pair head or without, and a full memory)."""
  memory = jnp.zeros((2, config.num_layers, config.mem_len, 16)) if config.mem_len else None
  options = {"memory": memory, "backward": jnp.asarray([True, False])}
  if not targets:
    return lambda p: PermutationLM(config).apply({"params": p}, *tiny.rows(), **options, method="hidden").content
  options["target_positions" if query else "read_positions"] = jnp.tile(jnp.arange(targets)[None], (2, 1))
  if not pair:
    return lambda p: PermutationLM(config).apply({"params": p}, *tiny.rows(), **options)[0]

  def both(p):
    output = PermutationLM(config, True).apply({"params": p}, *tiny.rows(), **options, method="with_pair")
    return jnp.concatenate([output.logits.ravel(), output.pair_logits.ravel()])

  return both


@pytest.mark.parametrize(("mem_len", "targets", "unroll"), [(0, 3, 1), (7, 3, 0), (7, 0, 1), (0, 1, 2)])
def test_flops_are_those_of_the_traced_products(mem_len, targets, unroll):
  config = tiny.config(mem_len=mem_len, unroll=unroll)
  traced = jax.make_jaxpr(forward(config, targets))(tiny.params(config))
  assert product_flops(traced.jaxpr) == xlnet_flops(config, 2, tiny.LENGTH, targets)


@pytest.mark.parametrize(("query", "pair"), [(False, False), (True, True), (False, True)])
@pytest.mark.parametrize(("mem_len", "unroll"), [(7, 1), (0, 0)])
def test_flops_of_reading_the_content_and_of_the_pair_head(query, pair, mem_len, unroll):
  """Forward, and three times that in a step, but for distances, which have no gradient of their own."""
  config = tiny.config(mem_len=mem_len, unroll=unroll)
  run, params = forward(config, 3, query, pair), tiny.params(config, pair)
  said = xlnet_flops(config, 2, tiny.LENGTH, 3, query=query, pair=pair)
  assert product_flops(jax.make_jaxpr(run)(params).jaxpr) == said
  step = product_flops(jax.make_jaxpr(jax.grad(lambda p: run(p).sum()))(params).jaxpr)
  assert step == 3 * said - 2 * config.num_layers * (2 * tiny.LENGTH + mem_len) * 16 * 16


def test_a_step_costs_three_times_the_forward_pass_but_for_memory():
  config = tiny.config()
  loss = lambda p: forward(config, 3)(p).sum()
  step = product_flops(jax.make_jaxpr(jax.grad(loss))(tiny.params(config)).jaxpr)
  # Distances have no gradient of their own: that of their projection is the kernel's alone.
  projections = 2 * config.num_layers * 2 * tiny.LENGTH * 16 * 16
  assert step == 3 * xlnet_flops(config, 2, tiny.LENGTH, 3) - projections


def test_the_query_stream_costs_its_share_of_the_positions():
  """Counted by XLA from the compiled step, all layers unrolled: wide enough that products outweigh the rest."""
  config = tiny.config(hidden_size=64, intermediate_size=256, unroll=0)

  def flops(targets: int) -> float:
    step = jax.jit(jax.grad(lambda p: forward(config, targets)(p).sum()))
    shapes = jax.eval_shape(lambda: tiny.params(config))
    return step.lower(shapes).compile().cost_analysis()["flops"]

  said = lambda targets: xlnet_flops(config, 2, tiny.LENGTH, targets)
  counted = flops(8) / flops(4)
  assert counted == pytest.approx(said(8) / said(4), rel=0.01)


@pytest.mark.parametrize("kind", ["last", "first", "mean", "attention"])
def test_summary(kind):
  """Of a row with padding on the left, by hand; what padding holds is seen by none but "first"."""
  hidden = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 16)), jnp.float32)
  real = jnp.asarray([[False, False, True, True, True], [True] * 5])
  summary = SequenceSummary(tiny.CONFIG, kind, projection=False)
  params = summary.init(jax.random.key(0), hidden, real)
  result = summary.apply(params, hidden, real)
  if kind == "attention":
    one = jax.tree.map(lambda x: x * 0, params)["params"] | {"value": {"kernel": jnp.eye(16)}}
    one["output"] = {"kernel": jnp.eye(16)}  # with equal scores it is the mean
    result = summary.apply({"params": one}, hidden, real)
  expected = {"last": hidden[:, 4], "first": hidden[:, 0]}
  mean = jnp.stack([hidden[0, 2:].mean(0), hidden[1].mean(0)])
  np.testing.assert_allclose(result, expected.get(kind, mean), atol=1e-6)
  projected = SequenceSummary(tiny.CONFIG, kind)
  params = projected.init(jax.random.key(0), hidden, real)
  assert (abs(projected.apply(params, hidden, real)) < 1).all()


def test_an_unknown_summary_is_named():
  with pytest.raises(ValueError, match="kind 'middle' is unknown; use one of last, first, mean, attention"):
    SequenceSummary(tiny.CONFIG, "middle").init(jax.random.key(0), jnp.zeros((1, 2, 16)), jnp.ones((1, 2), bool))
