"""What `init_from` takes from a checkpoint, and what it says that it does not."""

import dataclasses

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.tasks import parameter_shapes as task_shapes
from pretrained.load import load
from pretrained.shapes import parameter_shapes
from pretrained.transfer import fill, require_model
from tests.pretrained.heads import FIXTURES, head, model

POSITIONS = "encoder/embeddings/position/embedding"
WORDS = "encoder/embeddings/word/embedding"


def fresh(shapes) -> dict:
  """A run's parameters before: all -1."""
  return flax.traverse_util.unflatten_dict({n: jnp.full(s, -1.0) for n, s in shapes.items()}, sep="/")


def flat(tree) -> dict:
  return {name: np.asarray(x) for name, x in flax.traverse_util.flatten_dict(tree, sep="/").items()}


@pytest.mark.parametrize("rows", [16, 40])
def test_a_shorter_or_longer_position_table(rows, capsys):
  bert = load(FIXTURES / "bert")
  found = flat(fill(fresh(parameter_shapes(dataclasses.replace(bert.config, max_length=rows))), bert))
  theirs = flat(bert.params)
  np.testing.assert_array_equal(found[POSITIONS][:24], theirs[POSITIONS][:rows])
  assert (found[POSITIONS][24:] == -1).all()
  said = "" if rows == 16 else "config.init_from: positions 24 to 39 begin anew: the checkpoint's table has 24 rows\n"
  assert capsys.readouterr().err == said
  np.testing.assert_array_equal(found["pooler/kernel"], theirs["pooler/kernel"])


def test_unused_rows_of_the_vocabulary(capsys):
  bert = load(FIXTURES / "bert")
  padded = fresh(parameter_shapes(dataclasses.replace(bert.config, vocab_multiple=64)))
  found = flat(fill(padded, bert))
  np.testing.assert_array_equal(found[WORDS][:96], flat(bert.params)[WORDS])
  assert found[WORDS].shape[0] == found["mlm_head/bias"].shape[0] == 128
  assert (found["mlm_head/bias"][96:] == -1).all()
  back = dataclasses.replace(bert, params=jax.tree.map(np.asarray, padded))
  assert flat(fill(bert.params and fresh(parameter_shapes(bert.config)), back))[WORDS].shape[0] == 96
  assert capsys.readouterr().err == ""
  smaller = dataclasses.replace(bert.config, vocab_size=95)
  with pytest.raises(ValueError, match=r"encoder/embeddings/word/embedding has shape \(96, 32\) there and \(95, 32\)"):
    fill(fresh(parameter_shapes(smaller)), bert)


def test_a_task_starts_from_pretraining(capsys):
  bert = load(FIXTURES / "bert")
  found = flat(fill(fresh(task_shapes(bert.config, head("classification"))), bert))
  np.testing.assert_array_equal(found["pooler/kernel"], flat(bert.params)["pooler/kernel"])
  assert (found["classifier/kernel"] == -1).all()
  assert capsys.readouterr().err.splitlines() == [
    "config.init_from: classifier begins anew: the checkpoint has none",
    "config.init_from: the checkpoint's mlm_head is not used: this run's model has none",
    "config.init_from: the checkpoint's pair_head is not used: this run's model has none",
  ]


def test_a_task_starts_from_another_task(capsys):
  """RTE has two labels, MNLI three: the body goes on, the classifier does not."""
  mnli = model("xlnet", "classification")
  rte = dataclasses.replace(mnli.head, labels=("yes", "no"))
  found, theirs = flat(fill(fresh(task_shapes(mnli.config, rte)), mnli)), flat(mnli.params)
  assert (found["classifier/kernel"] == -1).all()
  np.testing.assert_array_equal(found["summary/projection/kernel"], theirs["summary/projection/kernel"])
  assert "classifier begins anew: classifier/bias has shape (3,) there and (2,) in this run" in capsys.readouterr().err
  found = flat(fill(fresh(task_shapes(mnli.config, mnli.head)), mnli))
  np.testing.assert_array_equal(found["classifier/kernel"], theirs["classifier/kernel"])
  assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
  ("kind", "family", "change", "said"),
  [
    (
      "classification",
      "bert",
      {"labels": ("yes", "no")},
      "classifier begins anew: its labels are no, maybe, yes there and yes, no in this run",
    ),
    (
      "classification",
      "bert",
      {"labels": ("yes", "maybe", "no")},  # the shapes fit
      "classifier begins anew: its labels are no, maybe, yes there and yes, maybe, no in this run",
    ),
    (
      "classification",
      "bert",
      {"kind": "regression", "labels": ()},
      "classifier begins anew: it is of classification there and of regression in this run",
    ),
    (
      "choice",
      "xlnet",
      {"kind": "regression"},  # the shapes fit
      "classifier begins anew: it is of choice there and of regression in this run",
    ),
    ("classification", "bert", {}, "classifier goes on from the checkpoint's"),
    ("tagging", "albert", {}, "tagger goes on from the checkpoint's"),
    ("span", "bert", {"dropout": 0.5}, "span_head goes on from the checkpoint's"),
    ("conditional_span", "xlnet", {}, "conditional_span_head goes on from the checkpoint's"),
  ],
)
def test_the_last_layer_goes_on_where_it_means_the_same(kind, family, change, said, capsys):
  """All else of the checkpoint does, whatever the task: BERT's pooler, XLNet's summary."""
  before = model(family, kind)
  now = dataclasses.replace(before.head, **change)
  found, theirs = flat(fill(fresh(task_shapes(before.config, now)), before, now)), flat(before.params)
  last = said.split()[0]
  for name, x in found.items():
    if name.startswith(last) and "anew" in said:
      assert (x == -1).all()
    else:
      np.testing.assert_array_equal(x, theirs[name], err_msg=name)
  assert capsys.readouterr().err == f"config.init_from: {said}\n"


def test_labels_without_names_go_by_their_number(capsys):
  before = model("bert", "classification")
  now, unnamed = before.head, dataclasses.replace(before.head, labels=("LABEL_0", "LABEL_1", "LABEL_2"))
  fill(fresh(task_shapes(before.config, now)), dataclasses.replace(before, head=unnamed), now)
  assert capsys.readouterr().err == "config.init_from: classifier goes on from the checkpoint's\n"
  two = dataclasses.replace(now, labels=("yes", "no"))
  fill(fresh(task_shapes(before.config, two)), dataclasses.replace(before, head=unnamed), two)
  assert "classifier begins anew: its labels are LABEL_0, LABEL_1, LABEL_2 there and yes, no" in capsys.readouterr().err


def test_a_bilstm_goes_on_where_it_reads_the_same_layers(capsys):
  fields = {"lstm_layers": 1, "lstm_width": 4}
  before = model("bert", "tagging", features="last", **fields)
  for features, goes_on in (("last", True), ("embeddings", False)):  # shapes fit in both
    now = head("tagging", features=features, **fields)
    found = flat(fill(fresh(task_shapes(before.config, now)), before, now))
    assert (found["bilstm/forward_0/recurrent"] != -1).all() == (found["tagger/kernel"] != -1).all() == goes_on
  assert "bilstm begins anew: it reads last there and embeddings in this run" in capsys.readouterr().err
  plain = model("bert", "tagging")
  now = head("tagging", features="last", lstm_width=16)  # twice that is the model's width: the tagger's shape fits
  assert (flat(fill(fresh(task_shapes(plain.config, now)), plain, now))["tagger/kernel"] == -1).all()
  said = "tagger begins anew: it reads the body there and a BiLSTM on last in this run"
  assert said in capsys.readouterr().err


def test_other_bodies():
  bert, albert = load(FIXTURES / "bert"), load(FIXTURES / "albert")
  with pytest.raises(ValueError, match="this run's model has no encoder/embedding_projection/bias; the checkpoint is"):
    fill(fresh(parameter_shapes(bert.config)), albert)
  with pytest.raises(ValueError, match="the checkpoint has no encoder/embedding_projection/bias; it is of another fam"):
    fill(fresh(parameter_shapes(albert.config)), bert)


@pytest.mark.parametrize(
  ("field", "value"),
  [("num_layers", 2), ("num_heads", 2), ("activation", "relu"), ("layer_norm_eps", 1e-5), ("num_groups", 4)],
)
def test_a_model_that_would_compute_something_else_is_refused_though_every_shape_fits(field, value):
  """Shared layers store the same shapes whatever their number and groups; heads and activations leave no trace."""
  albert = load(FIXTURES / "albert")
  config = dataclasses.replace(albert.config, **{field: value} | ({"inner_groups": 1} if field == "num_groups" else {}))
  assert parameter_shapes(config) == parameter_shapes(albert.config)
  with pytest.raises(ValueError, match=rf"config\.init_from: config\.model\.{field} is .* there and .* in this run"):
    require_model(config, albert)


def test_what_only_changes_training_may_differ():
  bert = load(FIXTURES / "bert")
  require_model(
    dataclasses.replace(
      bert.config, embedding_size=bert.config.hidden_size, hidden_dropout=0.5, dtype="bfloat16", remat="full"
    ),
    bert,
  )
