"""XLNet: how it is run changes nothing; what is seen; memory; directions; precision."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.relative import align
from models.xlnet import PermutationLM
from tests.models import tiny_xlnet as tiny


def hidden(config, rows, params=None, **options):
  """XLNet's output, compiled."""
  params = tiny.params(config) if params is None else params
  arrays = {name: x for name, x in options.items() if isinstance(x, jax.Array)}
  fixed = {name: x for name, x in options.items() if name not in arrays}
  run = lambda p, rows, arrays: PermutationLM(config).apply({"params": p}, *rows, **arrays, **fixed, method="hidden")
  return jax.jit(run)(params, rows, arrays)


def test_align_by_hand():
  """Three queries, four keys: distances 4 to -2. The query at position i has key k at distance i + 1 - k: one is
  memory."""
  distance = jnp.arange(4.0, -3.0, -1.0)
  by_distance = jnp.broadcast_to(distance, (2, 2, 3, 7))
  expected = [[1, 0, -1, -2], [2, 1, 0, -1], [3, 2, 1, 0]]
  assert align(by_distance, None, 4)[1, 1].tolist() == expected
  chosen = align(by_distance[:, :, :2], jnp.asarray([[2, 0], [1, 1]]), 4)
  assert chosen[0, 1].tolist() == [expected[2], expected[0]]
  assert chosen[1, 0].tolist() == [expected[1], expected[1]]


def test_the_gradient_of_align_is_its_transpose():
  """On a CPU, and as other backends compute it."""
  rng = np.random.default_rng(0)
  x, g = (jnp.asarray(rng.normal(size=(2, 3, 5, n)), jnp.float32) for n in (12, 7))
  every = jnp.broadcast_to(jnp.arange(5)[None], (2, 5))
  _, by_definition = jax.vjp(lambda x: align(x, every, 7), x)
  _, ours = jax.vjp(lambda x: align(x, None, 7), x)
  np.testing.assert_array_equal(ours(g)[0], by_definition(g)[0])
  elsewhere = jax.make_jaxpr(lambda g: ours(g)[0])(g)
  [choice] = [equation for equation in elsewhere.eqns if equation.primitive.name == "cond"]
  for branch in choice.params["branches"]:
    np.testing.assert_array_equal(jax.core.eval_jaxpr(branch.jaxpr, branch.consts, g)[0], by_definition(g)[0])


def loss_and_gradient(config):
  """With dropout, both streams, memory and both directions."""
  rows, options = tiny.rows(), tiny.options()

  def loss(params):
    run = PermutationLM(config).apply
    rngs = {"dropout": jax.random.key(3)}
    logits, memory = run({"params": params}, *rows, **options, deterministic=False, rngs=rngs)
    return jax.nn.logsumexp(logits, axis=-1).mean(), memory

  return jax.jit(jax.value_and_grad(loss, has_aux=True))(tiny.params(config))


@pytest.fixture(scope="module")
def plain():
  return loss_and_gradient(tiny.config(mem_len=8))


@pytest.mark.parametrize("fields", [{"unroll": 2}, {"remat": "full"}, {"remat": "dots", "unroll": 0}])
def test_unroll_and_remat_change_no_value(plain, fields):
  """Nor the dropout masks."""
  other = loss_and_gradient(tiny.config(mem_len=8, **fields))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6, rtol=1e-4), plain, other)


@pytest.mark.parametrize("num_layers", [1, 3])
def test_the_query_stream_is_that_of_the_whole_stack(num_layers):
  """Peeling off the last layer changes nothing: its query is computed from the content before it."""
  config, options = tiny.config(num_layers=num_layers), tiny.options()
  options["memory"] = options["memory"][:, :num_layers]
  both = hidden(config, tiny.rows(), every_layer=True, **options)
  content = {name: x for name, x in options.items() if not name.startswith("target")}
  alone = hidden(config, tiny.rows(), every_layer=True, **content)
  assert both.content.shape[0] == num_layers
  assert alone.content.shape[0] == both.query.shape[0] == num_layers + 1
  assert alone.query is None
  np.testing.assert_allclose(both.content, alone.content[:-1], atol=1e-6)
  last = hidden(config, tiny.rows(), **options)
  assert last.content is None
  np.testing.assert_allclose(last.query, both.query[-1], atol=1e-6)


@pytest.mark.parametrize("with_targets", [False, True])
def test_content_that_is_read_at_some_positions_is_that_of_the_whole_layer(with_targets):
  """And leaves the query stream and the memory as they are."""
  config, options = tiny.config(mem_len=4), tiny.options()
  content = {name: x for name, x in options.items() if not name.startswith("target")}
  whole = hidden(config, tiny.rows(), **content)
  at = jnp.asarray([[9, 0, 4, 4], [2, 9, 7, 1]])
  given = options if with_targets else content
  read = hidden(config, tiny.rows(), **given, read_positions=at)
  assert read.content is None
  np.testing.assert_allclose(read.read, jnp.take_along_axis(whole.content, at[:, :, None], 1), atol=1e-6)
  np.testing.assert_allclose(read.memory, whole.memory, atol=1e-6)
  if with_targets:
    np.testing.assert_allclose(read.query, hidden(config, tiny.rows(), **options).query, atol=1e-6)
  else:
    assert read.query is None


def test_two_segments_with_memory_are_one_long_pass():
  """Where the first segment does not see the second; both streams, both directions, chosen positions of memory."""
  tokens, _ = tiny.rows(length=12)
  same = jnp.zeros_like(tokens)  # memory counts as segment 0
  first, second = tokens[:, :5], tokens[:, 5:]
  rng = np.random.default_rng(1)
  seen = rng.random((2, 12, 12)) < 0.7
  seen[:, :5, 5:] = False
  at = jnp.asarray([[1, 6], [3, 0]])
  target_seen = rng.random((2, 2, 12)) < 0.7
  # Targets see the memory that their position sees.
  target_seen[:, :, :5] = np.take_along_axis(seen[:, 5:, :5], np.asarray(at)[:, :, None], axis=1)
  seen, target_seen, backward = jnp.asarray(seen), jnp.asarray(target_seen), jnp.asarray([False, True])
  config = tiny.config(mem_len=5)
  long = {"visible": seen, "backward": backward}
  content = hidden(config, (tokens, same), **long).content
  query = hidden(config, (tokens, same), **long, target_positions=at + 5, target_visible=target_seen).query

  memory = hidden(config, (first, same[:, :5]), visible=seen[:, :5, :5], backward=backward).memory
  later = {"visible": seen[:, 5:, 5:], "memory": memory, "memory_visible": seen[:, 5:, :5], "backward": backward}
  rows = second, same[:, 5:]
  np.testing.assert_allclose(hidden(config, rows, **later).content, content[:, 5:], atol=1e-5)
  with_targets = hidden(config, rows, **later, target_positions=at, target_visible=target_seen[:, :, 5:])
  np.testing.assert_allclose(with_targets.query, query, atol=1e-5)
  other = hidden(config, rows, **{**later, "memory": memory + 0.1}).content
  assert abs(other - content[:, 5:]).max() > 1e-2


@pytest.mark.parametrize(
  ("mem_len", "reuse_len", "kept"),
  [(8, 0, range(8, 16)), (8, 4, range(2, 10)), (3, 4, range(7, 10)), (20, 4, range(10))],
)
def test_new_memory_is_the_end_of_old_memory_and_reused_inputs(mem_len, reuse_len, kept):
  """Positions 0 to 5 are of the old memory, 6 to 15 of the row."""
  options = tiny.options()
  output = hidden(tiny.config(mem_len=mem_len), tiny.rows(), reuse_len=reuse_len, every_layer=True, **options)
  inputs = jnp.moveaxis(output.content, 0, 1)  # [batch, layers, length, width]
  everything = jnp.concatenate([options["memory"], inputs], axis=2)
  np.testing.assert_array_equal(output.memory, everything[:, :, jnp.asarray(kept)])


def test_no_gradient_enters_memory():
  options = tiny.options()
  config = tiny.config(mem_len=4)

  def loss(memory):
    output = PermutationLM(config).apply(
      {"params": tiny.params(config)}, *tiny.rows(), **(options | {"memory": memory}), method="hidden"
    )
    return output.query.sum() + output.memory.sum()

  assert not jax.jit(jax.grad(loss))(options["memory"]).any()


def test_a_row_read_backwards_is_the_row_mirrored():
  tokens, segment_ids = tiny.rows()
  backward = jnp.asarray([True, True])
  mirrored = hidden(tiny.CONFIG, (tokens[:, ::-1], segment_ids[:, ::-1]), backward=backward).content
  forward = hidden(tiny.CONFIG, (tokens, segment_ids)).content
  np.testing.assert_allclose(mirrored[:, ::-1], forward, atol=1e-5)
  assert abs(hidden(tiny.CONFIG, (tokens, segment_ids), backward=backward).content - forward).max() > 2e-3


def test_distances_beyond_the_clamp_are_all_one():
  """With clamp 1 a neighbour's side counts and its distance does not: the last two keys change places unnoticed."""
  tokens, segment_ids = tiny.rows()
  same = jnp.zeros_like(segment_ids)
  swapped = tokens.at[:, jnp.asarray([7, 8])].set(tokens[:, jnp.asarray([8, 7])])
  config = tiny.config(clamp_length=1, num_layers=1)
  first = lambda config, tokens: hidden(config, (tokens, same)).content[:, 0]
  np.testing.assert_allclose(first(config, tokens), first(config, swapped), atol=1e-6)
  apart = tiny.config(num_layers=1)
  assert abs(first(apart, tokens) - first(apart, swapped)).max() > 1e-4


def test_segments_are_compared_and_memory_is_of_segment_0():
  tokens, segment_ids = tiny.rows()
  options = tiny.options()
  query = lambda ids: hidden(tiny.CONFIG, (tokens, ids), **options).query
  assert abs(query(segment_ids + 7) - query(segment_ids)).max() > 1e-3
  options = tiny.options(memory=False)
  np.testing.assert_array_equal(query(segment_ids + 7), query(segment_ids))
  assert abs(query(segment_ids * 0) - query(segment_ids)).max() > 1e-3


def test_a_target_that_sees_nothing_learns_nothing():
  """The first in the order, without context and memory; and an unused slot. Softmax alone would give it the average."""
  options = tiny.options(memory=False)
  options["target_visible"] = options["target_visible"].at[:, 0].set(False)
  gradient_of = {}

  def query(params):
    output = PermutationLM(tiny.CONFIG).apply({"params": params}, *tiny.rows(), **options, method="hidden")
    return output.query

  states = jax.jit(query)(tiny.params())
  assert jnp.isfinite(states).all()
  np.testing.assert_allclose(states[0, 0], states[1, 0], atol=1e-6)  # whatever the row holds
  for slot in (0, 1):
    gradient = jax.jit(jax.grad(lambda p, slot=slot: query(p)[:, slot, 0].sum()))(tiny.params())
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(gradient))
    gradient_of[slot] = gradient["xlnet"]["embeddings"]["word"]["embedding"]
  assert not gradient_of[0].any()
  assert gradient_of[1].any()


def test_targets_see_all_but_themselves_by_default():
  options = tiny.options()
  del options["target_visible"], options["visible"]
  at = options["target_positions"]
  allowed = at[:, :, None] != jnp.arange(tiny.LENGTH)[None, None]
  expected = hidden(tiny.CONFIG, tiny.rows(), **options, target_visible=allowed).query
  np.testing.assert_array_equal(hidden(tiny.CONFIG, tiny.rows(), **options).query, expected)


def test_tied_biases_are_one_for_all_layers():
  tied = tiny.config(untie_biases=False)
  params = tiny.params(tied)
  attention = params["xlnet"]["layers"]["attention"]
  assert {attention[f"{name}_bias"].shape for name in ("content", "position", "segment")} == {(1, 4, 4)}
  assert attention["segment_embedding"].shape == (3, 2, 4, 4)
  copies = {name: jnp.tile(x, (3, 1, 1)) if name.endswith("bias") else x for name, x in attention.items()}
  layers = {**params["xlnet"]["layers"], "attention": copies}
  untied = {**params, "xlnet": {**params["xlnet"], "layers": layers}}
  options = tiny.options()
  expected = hidden(tiny.CONFIG, tiny.rows(), params=untied, **options).query
  np.testing.assert_array_equal(hidden(tied, tiny.rows(), params=params, **options).query, expected)


def test_bfloat16_is_close_to_float32():
  outputs, gradients = [], []
  for dtype in ("float32", "bfloat16"):
    config = dataclasses.replace(tiny.CONFIG, dtype=dtype, mem_len=6)

    def loss(params, config=config):
      logits, memory = PermutationLM(config).apply({"params": params}, *tiny.rows(), **tiny.options())
      return jax.nn.logsumexp(logits, axis=-1).mean(), (logits, memory)

    gradient, output = jax.jit(jax.grad(loss, has_aux=True))(tiny.params(tiny.CONFIG))
    outputs.append(output)
    gradients.append(gradient)
  (exact, _), (rounded, memory) = outputs
  assert rounded.dtype == jnp.float32
  assert memory.dtype == jnp.bfloat16
  assert 0 < np.abs(exact - rounded).max() < 0.05 * np.abs(exact).max()
  assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(gradients[1]))
  norms = [np.sqrt(sum(np.square(leaf).sum() for leaf in jax.tree.leaves(gradient))) for gradient in gradients]
  assert norms[1] == pytest.approx(norms[0], rel=0.05)
