"""Heads on both kinds of body: packed rows give what single ones do, and a conditional end follows its start."""

import dataclasses

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.attention import MASKED
from models.head_config import HEAD_KINDS, HeadConfig
from models.tasks import TaskModel, parameter_shapes
from tests.models import tiny, tiny_xlnet

pytestmark = pytest.mark.slow  # compiles for minutes: `make slow`

CONFIGS = {
  "bert": tiny.CONFIG,
  "albert": tiny.config(sharing="all", embedding_size=8),
  "xlnet": tiny_xlnet.config(mem_len=4),
}
LENGTHS = (6, 4)


def head(kind: str, **fields) -> HeadConfig:
  return HeadConfig(kind, ("a", "b", "c") if not HEAD_KINDS[kind].outputs else (), **fields)


def parameters(config, one: HeadConfig) -> dict:
  rng = np.random.default_rng(0)
  flat = {n: jnp.asarray(rng.normal(0.1, 0.3, s), jnp.float32) for n, s in parameter_shapes(config, one).items()}
  return flax.traverse_util.unflatten_dict(flat, sep="/")


def sequences(cls_last: bool):
  """Two sequences: tokens, segment_ids, where an answer may lie (or the cls piece), where it begins."""
  rng = np.random.default_rng(1)
  for length in LENGTHS:
    allowed = np.arange(length) != 2
    segments = (np.arange(length) > 2) + (np.arange(length) == length - 1) * cls_last
    yield rng.integers(1, 50, length), segments, allowed, 1


def packed(cls_last: bool) -> dict[str, jax.Array]:
  """Both in one row, and two of padding behind them."""
  tokens, segments, allowed, _ = zip(*sequences(cls_last), strict=True)
  pad = lambda parts: np.pad(np.concatenate(parts), (0, 2))[None]
  starts = np.cumsum([0, *LENGTHS])
  return {
    "tokens": pad(tokens),
    "segment_ids": pad(segments),
    "sequence_ids": pad([np.full(n, i + 1) for i, n in enumerate(LENGTHS)]),
    "cls_positions": (starts[1:] - 1 if cls_last else starts[:-1])[None],
    "allowed": pad(allowed),
    "start_positions": starts[None, :-1] + 1,
  }


def arrays(batch: dict) -> dict[str, jax.Array]:
  return {name: jnp.asarray(x, bool if name == "allowed" else jnp.int32) for name, x in batch.items()}


BILSTM = {"features": "weighted_sum_all", "lstm_layers": 1, "lstm_width": 4}
CASES = [(kind, family, {}) for kind in HEAD_KINDS for family in CONFIGS] + [
  ("tagging", "bert", BILSTM),
  ("span", "albert", BILSTM | {"features": "last"}),
  ("classification", "albert", BILSTM | {"features": "embeddings", "lstm_layers": 2}),
  ("choice", "xlnet", BILSTM | {"features": "second_to_last"}),
  ("conditional_span", "xlnet", BILSTM),
]


@pytest.mark.parametrize(("kind", "family", "fields"), CASES)
def test_packed_equals_alone(kind, family, fields):
  one, cls_last = head(kind, **fields), family == "xlnet"
  model, params = TaskModel(CONFIGS[family], one), parameters(CONFIGS[family], one)
  together = model.apply({"params": params}, **arrays(packed(cls_last)))
  start = 0
  for i, (tokens, segments, allowed, begins) in enumerate(sequences(cls_last)):
    row = {"tokens": tokens, "segment_ids": segments, "sequence_ids": np.ones_like(tokens)}
    if kind == "conditional_span":
      row |= {"allowed": allowed, "start_positions": np.array([begins])}
    alone = model.apply({"params": params}, **arrays({name: x[None] for name, x in row.items()}))
    here = slice(start, start + len(tokens))
    if kind == "conditional_span":
      np.testing.assert_allclose(together.start[0, here], alone.start[0], atol=1e-5)
      np.testing.assert_allclose(together.end[0, here], alone.end[0], atol=1e-5)
      np.testing.assert_allclose(together.answer[0, i], alone.answer[0, 0], atol=1e-5)
      assert together.start[0, start + 2] == together.end[0, start + 2] == MASKED
    elif HEAD_KINDS[kind].pooled:
      assert alone.shape == (1, 1, one.num_outputs)
      np.testing.assert_allclose(together[0, i], alone[0, 0], atol=1e-5)
    else:
      assert alone.shape == (1, len(tokens), one.num_outputs)
      np.testing.assert_allclose(together[0, here], alone[0], atol=1e-5)
    start += len(tokens)


@pytest.mark.parametrize("summary", ["first", "mean", "attention"])
def test_other_summaries_of_packed_rows(summary):
  one = head("classification", summary=summary, projection=summary != "mean")
  model, params = TaskModel(CONFIGS["xlnet"], one), parameters(CONFIGS["xlnet"], one)
  names = ("tokens", "segment_ids", "sequence_ids", "cls_positions")
  together = model.apply({"params": params}, **arrays({name: packed(True)[name] for name in names}))
  for i, (tokens, segments, *_) in enumerate(sequences(True)):
    rows = [jnp.asarray(x[None], jnp.int32) for x in (tokens, segments, np.ones_like(tokens))]
    np.testing.assert_allclose(together[0, i], model.apply({"params": params}, *rows)[0, 0], atol=1e-5)


@pytest.mark.parametrize("family", ["albert", "xlnet"])
def test_beams_hold_what_training_computes(family):
  """The best starts are those of the logits, and each one's ends are those with that start given."""
  one, cls_last = head("conditional_span"), family == "xlnet"
  model, params = TaskModel(CONFIGS[family], one), parameters(CONFIGS[family], one)
  batch = arrays(packed(cls_last))
  given = batch.pop("start_positions")
  found = model.apply({"params": params}, **batch, starts=3, ends=4, method="beams")
  forced = model.apply({"params": params}, **batch, start_positions=given)
  ids, allowed = np.asarray(batch["sequence_ids"][0]), np.asarray(batch["allowed"][0])
  for i in range(2):
    own = np.flatnonzero((ids == i + 1) & allowed)
    log_p = np.asarray(jax.nn.log_softmax(forced.start[0, own]))
    order = own[np.argsort(-log_p)]
    assert found.start[0, i].tolist() == order[:3].tolist()
    np.testing.assert_allclose(found.start_log_probability[0, i], np.sort(log_p)[::-1][:3], atol=1e-5)
    for k, start in enumerate(order[:3]):
      starts = given.at[0, i].set(int(start))
      end = model.apply({"params": params}, **batch, start_positions=starts).end[0, own]
      log_p = np.asarray(jax.nn.log_softmax(end))
      best = np.argsort(-log_p)[:4]
      count = min(4, len(own))
      assert found.end[0, i, k, :count].tolist() == own[best].tolist()
      np.testing.assert_allclose(found.end_log_probability[0, i, k, :count], log_p[best], atol=1e-5)
  np.testing.assert_allclose(found.answer, forced.answer, atol=1e-5)


def test_whether_there_is_an_answer_is_read_where_a_left_to_right_model_has_seen_it():
  """The answer's logit of a sequence in a packed row, from the first token and from the last one."""
  one, config = head("conditional_span"), dataclasses.replace(CONFIGS["albert"], causal=True)
  model, params = TaskModel(config, one), parameters(config, one)
  batch = arrays(packed(False))
  rows = (batch[name] for name in ("tokens", "segment_ids", "sequence_ids"))
  hidden = model.apply({"params": params}, *rows, method="hidden")
  ids = np.asarray(batch["sequence_ids"][0])
  last = jnp.asarray([[np.flatnonzero(ids == i + 1).max() for i in range(2)]])
  given = batch["sequence_ids"], batch["allowed"]

  def read(at):
    head = lambda model: model.conditional_span_head(hidden, *given, at, batch["start_positions"])
    return model.apply({"params": params}, method=head).answer[0, :2]

  found = model.apply({"params": params}, **batch).answer[0, :2]
  np.testing.assert_allclose(found, read(last), atol=1e-5)
  assert (np.abs(found - read(batch["cls_positions"][:, :2])) > 1e-5).all()


def test_dropout_falls_on_the_pooled_vector_and_not_on_a_span():
  quiet = tiny.config(hidden_dropout=0.0, attention_dropout=0.0)
  rows = tiny.rows()
  for kind, changes in [("classification", True), ("tagging", True), ("span", False)]:
    one = head(kind, dropout=0.5)
    model, params = TaskModel(quiet, one), parameters(quiet, one)
    still = model.apply({"params": params}, *rows)
    noisy = model.apply({"params": params}, *rows, deterministic=False, rngs={"dropout": jax.random.key(0)})
    assert bool((still != noisy).any()) == changes


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("features", ["", "concat_last_four"])
def test_a_frozen_body_has_neither_gradient_nor_dropout(family, features):
  layers = {"num_layers": 4, "hidden_dropout": 0.5, "attention_dropout": 0.5}
  config = dataclasses.replace(CONFIGS[family], **layers)
  one = head("tagging", dropout=0.0, freeze=True, **BILSTM | {"features": features})
  model, params = TaskModel(config, one), parameters(config, one)
  rows = {name: arrays(packed(family == "xlnet"))[name] for name in ("tokens", "segment_ids", "sequence_ids")}
  rngs = {"dropout": jax.random.key(0)}

  def total(params):
    logits = model.apply({"params": params}, **rows, deterministic=False, rngs=rngs)
    return jnp.sin(logits).sum(), logits

  gradients, noisy = jax.jit(jax.grad(total, has_aux=True))(params)
  np.testing.assert_allclose(noisy, model.apply({"params": params}, **rows), atol=1e-5)
  for module, tree in gradients.items():
    moves = [bool((x != 0).any()) for x in jax.tree.leaves(tree)]
    assert not any(moves) if module == model.body else all(moves), module
  assert gradients.keys() == {model.body, "tagger"} | ({"bilstm"} if features else set())


def test_bfloat16_gives_float32_logits():
  for kind in HEAD_KINDS:
    config = tiny_xlnet.config(dtype="bfloat16")
    more = {"allowed": jnp.ones((2, 10), bool), "start_positions": jnp.zeros((2, 1), jnp.int32)}
    more = more if kind == "conditional_span" else {}
    rows = (*tiny_xlnet.rows(), jnp.ones((2, 10), jnp.int32))
    output = TaskModel(config, head(kind)).apply({"params": parameters(config, head(kind))}, *rows, **more)
    assert {x.dtype for x in jax.tree.leaves(output)} == {jnp.dtype("float32")}


@pytest.mark.parametrize(
  ("fields", "said"),
  [
    ({"kind": "parsing"}, r"head\.kind='parsing' is not one of classification"),
    ({"kind": "tagging"}, r"head\.kind='tagging' needs at least two head\.labels, not 0"),
    ({"kind": "span", "labels": ("a", "b")}, r"head\.kind='span' has no labels, and head\.labels names 2"),
    ({"kind": "tagging", "labels": ("a", "a")}, "names a label twice"),
    ({"kind": "span", "dropout": 1.0}, r"head\.dropout must lie in \[0, 1\)"),
    ({"kind": "span", "summary": "median"}, r"head\.summary='median' is not one of"),
    ({"kind": "span", "features": "first"}, r"head\.features='first' is not one of embeddings, second_to_last, last"),
    ({"kind": "span", "features": "last", "lstm_width": 0}, r"head\.lstm_width must be at least 1, not 0"),
    ({"kind": "choice", "features": "last", "projection": False}, r"leave head\.summary and \.projection"),
  ],
)
def test_heads_that_cannot_be(fields, said):
  with pytest.raises(ValueError, match=said):
    HeadConfig(**fields)
