"""The BiLSTM: packed rows give what single ones do, nothing leaks, and its own gradient is the one of its steps."""

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import bilstm
from models.bilstm import BiLSTM
from models.features import KINDS, Features, width_of
from models.flops import task_flops
from models.head_config import HeadConfig
from models.tasks import TaskModel, parameter_shapes
from tests.models import tiny, tiny_xlnet
from tests.models.test_config import product_flops

WIDTH, FEATURES = 4, 3
MODEL = BiLSTM(num_layers=2, width=WIDTH)
# Both sequences in one row: padding before, between and behind them.
IDS = np.array([[0, *[1] * 5, 0, *[2] * 3, 0, 0]], np.int32)


def parameters(features: int = FEATURES) -> dict:
  """With no zeros."""
  row = jax.ShapeDtypeStruct((1, 1, features), jnp.float32), jax.ShapeDtypeStruct((1, 1), jnp.int32)
  shapes = flax.traverse_util.flatten_dict(jax.eval_shape(MODEL.init, jax.random.key(0), *row)["params"])
  rng = np.random.default_rng(0)
  flat = {name: jnp.asarray(rng.normal(0.1, 0.6, x.shape), jnp.float32) for name, x in sorted(shapes.items())}
  return flax.traverse_util.unflatten_dict(flat)


PARAMS = parameters()


@jax.jit
def _apply(x, ids) -> jax.Array:
  return MODEL.apply({"params": PARAMS}, x, ids)


def apply(x, ids) -> jax.Array:
  return _apply(jnp.asarray(x), jnp.asarray(ids, jnp.int32))


def row(seed: int = 0) -> np.ndarray:
  return np.random.default_rng(seed).normal(size=(*IDS.shape, FEATURES)).astype(np.float32)


def test_one_step_by_hand():
  """A sequence of one token: no state counts, and both directions are the same sum."""
  x = np.array([[[0.5, -1.0, 2.0]]], np.float32)
  expected = []
  for name in ("forward_0", "backward_0"):
    i, _, g, o = np.split(x[0, 0] @ np.asarray(PARAMS[name]["kernel"]) + np.asarray(PARAMS[name]["bias"]), 4)
    sigmoid = lambda x: 1 / (1 + np.exp(-x))
    expected.append(sigmoid(o) * np.tanh(sigmoid(i) * np.tanh(g)))
  one = {name: PARAMS[name] for name in ("forward_0", "backward_0")}
  found = BiLSTM(1, WIDTH).apply({"params": one}, jnp.asarray(x), jnp.ones((1, 1), jnp.int32))
  np.testing.assert_allclose(found[0, 0], np.concatenate(expected), rtol=1e-5)


def test_packed_padded_and_alone_are_the_same():
  x = row()
  together = apply(x, IDS)
  assert together.shape == (1, IDS.shape[1], 2 * WIDTH)
  for number in (1, 2):
    own = np.flatnonzero(IDS[0] == number)
    alone = apply(x[:, own], np.ones((1, len(own))))
    np.testing.assert_allclose(together[0, own], alone[0], atol=1e-6)


def test_no_sequence_feels_its_neighbour_or_the_padding():
  """By gradients, which are exactly 0, and by values that are no numbers."""
  x = jnp.asarray(row())
  felt = jax.jit(jax.jacrev(lambda x: _apply(x, jnp.asarray(IDS))[0].sum(axis=-1)))(x)[:, 0]  # [token, token, feature]
  for number in (1, 2):
    own = IDS[0] == number
    assert (felt[own][:, ~own] == 0).all()
    assert (felt[own][:, own] != 0).all()  # but each token feels all of its sequence, on both sides
    spoilt = apply(jnp.where(own[None, :, None], x, jnp.nan), IDS)
    np.testing.assert_array_equal(spoilt[0, own], apply(x, IDS)[0, own])


@pytest.mark.parametrize("reverse", [False, True])
def test_the_gradient_is_that_of_the_steps(reverse):
  """Written out by hand in models/bilstm.py; here beside the one that jax takes of the same steps."""
  rng = np.random.default_rng(1)
  draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
  gates, recurrent, weights = draw(7, 3, 4 * WIDTH), draw(WIDTH, 4 * WIDTH), draw(7, 3, WIDTH)
  continues = jnp.asarray(rng.random((7, 3)) > 0.3)
  steps = lambda *args: bilstm._forward(*args)[0]

  def gradient(of):
    loss = lambda gates, recurrent: (weights * of(gates, continues, recurrent, reverse)).sum()
    return jax.jit(jax.grad(loss, (0, 1)))(gates, recurrent)

  ours, theirs = gradient(bilstm.recurrence), gradient(steps)
  for a, b in zip(ours, theirs, strict=True):
    np.testing.assert_allclose(a, b, atol=1e-5)


def test_initial_values():
  """Glorot's limit over [input; state] → four gates; the forget gate is open."""
  layer = bilstm.LSTM(8, reverse=False)
  params = layer.init(jax.random.key(0), jnp.zeros((1, 2, 6)), jnp.ones((1, 2), jnp.int32))["params"]
  np.testing.assert_array_equal(params["bias"], [0] * 8 + [1] * 8 + [0] * 16)
  limit = (6 / (6 + 8 + 32)) ** 0.5
  for name, shape in (("kernel", (6, 32)), ("recurrent", (8, 32))):
    assert params[name].shape == shape
    assert 0.9 * limit < float(jnp.abs(params[name]).max()) <= limit


STATES = np.random.default_rng(3).normal(size=(6, 2, 3, 4)).astype(np.float32)  # five layers


@pytest.mark.parametrize(
  ("kind", "expected"),
  [
    ("embeddings", STATES[0]),
    ("second_to_last", STATES[4]),
    ("last", STATES[5]),
    ("concat_last_four", np.concatenate(STATES[2:], axis=-1)),
    ("weighted_sum_last_four", STATES[2:].mean(0)),  # untrained: all weights alike
    ("weighted_sum_all", STATES[1:].mean(0)),
  ],
)
def test_what_is_read_of_the_layers(kind, expected):
  found, params = Features(kind).init_with_output(jax.random.key(0), jnp.asarray(STATES))
  np.testing.assert_allclose(found, expected, atol=1e-6)
  assert found.shape[-1] == width_of(kind, 4)
  assert bool(params) == (KINDS[kind].joined == "sum")


def test_a_weighted_sum_is_elmos():
  params = {"weights": jnp.asarray([0.0, np.log(2), 0.0, 0.0]), "scale": jnp.asarray(3.0)}
  found = Features("weighted_sum_last_four").apply({"params": params}, jnp.asarray(STATES))
  expected = 3 * np.einsum("s,sblw->blw", np.array([1, 2, 1, 1]) / 5, STATES[2:])
  np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_body_with_too_few_layers_is_refused():
  with pytest.raises(
    ValueError, match=r"config\.head\.features='concat_last_four' needs 4 layers, and the model has 3"
  ):
    Features("concat_last_four").init(jax.random.key(0), jnp.asarray(STATES[:4]))


@pytest.mark.parametrize(("kind", "features"), [("tagging", ""), ("tagging", "last"), ("classification", "last")])
def test_on_a_left_to_right_body_the_first_token_sees_what_is_behind_it(kind, features):
  """BERT's "LTR & BiLSTM", by the gradient of the first sequence's first output in the tokens' embeddings."""
  config = tiny.config(causal=True, num_layers=1, hidden_dropout=0.0, attention_dropout=0.0)
  head = HeadConfig(kind, ("a", "b"), features=features, lstm_layers=1, lstm_width=WIDTH)
  rng = np.random.default_rng(0)
  shapes = sorted(parameter_shapes(config, head).items())
  flat = {name: jnp.asarray(rng.normal(0.1, 0.3, shape), jnp.float32) for name, shape in shapes}
  params = flax.traverse_util.unflatten_dict(flat, sep="/")
  tokens, sequences = jnp.arange(1, 8)[None], jnp.array([[1, 1, 1, 1, 2, 2, 2]])
  first = lambda params: TaskModel(config, head).apply(
    {"params": params}, tokens, tokens * 0, sequences, cls_positions=jnp.array([[0, 4]])
  )[0, 0, 0]
  gradient = flax.traverse_util.flatten_dict(jax.jit(jax.grad(first))(params), sep="/")
  felt = (gradient["encoder/embeddings/word/embedding"] != 0).any(axis=1)[1:8]
  assert felt.tolist() == [True, *[bool(features)] * 3, *[False] * 3]
  assert all((x != 0).any() for name, x in gradient.items() if "bilstm/backward" in name)


@pytest.mark.parametrize(
  ("config", "fields"),
  [
    (tiny.CONFIG, {"freeze": True}),
    (tiny.CONFIG, {"features": "last"}),
    (tiny.CONFIG, {"features": "second_to_last", "freeze": True}),
    (tiny.config(num_layers=4, embedding_size=8), {"features": "concat_last_four", "freeze": True}),
    (tiny_xlnet.config(mem_len=4), {"features": "weighted_sum_all", "freeze": True}),
  ],
)
def test_flops_of_a_step_are_those_of_the_traced_products(config, fields):
  head = HeadConfig("span", lstm_width=6, **fields)
  model = TaskModel(config, head)
  flat = {name: jnp.zeros(shape) for name, shape in parameter_shapes(config, head).items()}
  params = flax.traverse_util.unflatten_dict(flat, sep="/")
  moving = {name: tree for name, tree in params.items() if name != model.body or not head.freeze}
  row = jnp.ones((2, 5), jnp.int32)
  loss = lambda moving: model.apply({"params": params | moving}, row, row % 1, row).sum()
  traced = product_flops(jax.make_jaxpr(jax.grad(loss))(moving).jaxpr)
  read = 2 * head.lstm_width if head.features else config.hidden_size
  dense = 2 * row.size * read * 2  # the head's own, which is not counted
  dense *= 2 if head.freeze and not head.features else 3
  assert traced - dense == task_flops(config, head, *row.shape)
