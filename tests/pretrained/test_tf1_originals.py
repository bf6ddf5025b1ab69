"""Checkpoints that the original code wrote, and the outputs that it computed from them (tests/parity/record_tf1.py).

The recorded arrays are float32 of TensorFlow 2.21 on a CPU.
"""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.pretraining import PretrainingModel
from models.tasks import TaskModel
from pretrained import tf1
from pretrained.tensor_bundle import TensorBundle
from tests.parity.xlnet_compare import ours
from tests.pretrained import releases

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures" / "tf1"
RECORDED = [
  ("bert", "pretraining"), ("bert", "classification"), ("bert", "span"),
  ("albert", "pretraining"), ("albert", "conditional_span"),
  ("xlnet", "pretraining"), ("xlnet", "classification"), ("xlnet", "conditional_span"),
]  # fmt: skip


def recorded(family: str, name: str) -> tuple[tf1.Checkpoint, dict[str, np.ndarray]]:
  read = tf1.read(FIXTURES / family / name)
  assert read.left_over == ()
  read = dataclasses.replace(read, params=jax.tree.map(jnp.asarray, read.params))
  return read, dict(np.load(FIXTURES / family / f"{name}.npz"))


def rows(arrays: dict[str, np.ndarray]) -> list[jax.Array]:
  return [jnp.asarray(arrays[name], jnp.int32) for name in ("tokens", "segment_ids", "real")]


@pytest.mark.parametrize(("family", "name"), RECORDED)
def test_the_names_spelled_out_for_the_tests_are_those_of_the_code(family, name):
  spelled = releases.SHAPES[family] if name == "pretraining" else releases.fine_tuned(family, name)
  bundle = TensorBundle(FIXTURES / family / name)
  assert {name: bundle.shape(name) for name in bundle.names} == spelled


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_pretraining_model(family):
  read, expected = recorded(family, "pretraining")
  assert (read.config.activation, read.missing) == ("gelu_new", ())
  model, real = PretrainingModel(read.config), expected["real"] > 0
  hidden = model.apply({"params": read.params}, *rows(expected), method="hidden")
  blocks = 2 if family == "albert" else 1  # the original's list has a state a block
  np.testing.assert_allclose(hidden[1:][:, real], expected["hidden"][blocks - 1 :: blocks][:, real], atol=1e-5)
  exact = PretrainingModel(dataclasses.replace(read.config, activation="gelu"))
  assert np.abs(exact.apply({"params": read.params}, *rows(expected), method="hidden") - hidden).max() > 1e-4
  output = model.apply({"params": read.params}, *rows(expected), jnp.asarray(expected["positions"], jnp.int32))
  log_p = jax.nn.log_softmax(output.mlm_logits).reshape(expected["mlm_log_p"].shape)
  np.testing.assert_allclose(log_p, expected["mlm_log_p"], atol=1e-5)
  np.testing.assert_allclose(jax.nn.log_softmax(output.pair_logits), expected["pair_log_p"], atol=1e-5)


def test_xlnet_for_pretraining():
  """The query stream, the loss of each target and the new memory, with memory, padding and a permutation's mask."""
  read, expected = recorded("xlnet", "pretraining")
  assert (read.config.activation, read.missing) == ("gelu_new", ())
  batch = expected | {"real": expected["real"] > 0, "allowed": expected["allowed"] > 0}
  memory = np.moveaxis(expected["memory"], 1, 0)  # rows first
  config = dataclasses.replace(read.config, mem_len=memory.shape[2])
  output, logits = ours(config, read.params, batch, memory, None, True, 5)
  np.testing.assert_allclose(output.query[-1], expected["query"], atol=1e-5)
  np.testing.assert_allclose(output.memory, np.moveaxis(expected["kept"], 1, 0), atol=1e-5)
  targets = np.take_along_axis(expected["tokens"], expected["positions"], axis=1)
  losses = -np.take_along_axis(np.asarray(jax.nn.log_softmax(logits)), targets[:, :, None], axis=2)[:, :, 0]
  np.testing.assert_allclose(losses, expected["loss"], atol=1e-5)


@pytest.mark.parametrize(
  ("family", "kind"), [("bert", "classification"), ("bert", "span"), ("xlnet", "classification")]
)
def test_heads(family, kind):
  read, expected = recorded(family, kind)
  assert read.head.kind == kind
  logits = TaskModel(read.config, read.head).apply({"params": read.params}, *rows(expected))
  logits = logits[:, 0] if kind == "classification" else logits
  real = expected["real"][:, : logits.shape[1]] > 0 if kind == "span" else slice(None)
  np.testing.assert_allclose(np.asarray(logits)[real], expected["logits"][real], atol=1e-5)


@pytest.mark.parametrize("family", ["albert", "xlnet"])
def test_conditional_spans(family):
  """The three likeliest starts, the two likeliest ends of each, and whether there is an answer."""
  read, expected = recorded(family, "conditional_span")
  model = TaskModel(read.config, read.head)
  cls = jnp.asarray(expected.get("cls_index", np.zeros(4)), jnp.int32)[:, None]
  beams = model.apply(
    {"params": read.params}, *rows(expected), jnp.asarray(expected["p_mask"] == 0), cls, 3, 2, method="beams"
  )
  np.testing.assert_array_equal(beams.start[:, 0], expected["start_top_index"])
  np.testing.assert_allclose(beams.start_log_probability[:, 0], expected["start_top_log_probs"], atol=1e-5)
  np.testing.assert_array_equal(beams.end.reshape(4, 6), expected["end_top_index"])
  np.testing.assert_allclose(beams.end_log_probability.reshape(4, 6), expected["end_top_log_probs"], atol=1e-5)
  np.testing.assert_allclose(beams.answer[:, 0], expected["cls_logits"], atol=1e-5)
