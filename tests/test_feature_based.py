"""BERT's feature-based approach end to end: the body stays bit for bit, and all that runs and tools promise holds."""

import dataclasses
import json
import shutil

import flax.traverse_util
import jax
import numpy as np
import pytest

from configs.finetune import features
from parts import finetuning
from pretrained import export
from pretrained.load import load
from tests import tasks
from tools import cli, convert, predict
from training import optimizer, settings, state

pytestmark = pytest.mark.slow  # compiles for minutes: `make slow`

# An ALBERT, for it has the layers; LAMB with much decay, and dropout in the body, none of which may move or disturb it.
FIELDS = {
  "head__features": "weighted_sum_last_four",
  "head__lstm_layers": 1,
  "head__lstm_width": 8,
  "head__freeze": True,
  "head__dropout": 0.0,
  "model__hidden_dropout": 0.3,
  "optimizer__name": "albert_lamb",
  "optimizer__weight_decay": 0.5,
}


def config(source, **fields):
  return tasks.config(source, "tagging", "albert", **FIELDS | fields)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
  return tasks.write(tmp_path_factory.mktemp("files"), "tagging")


@pytest.fixture(scope="module")
def run(source, tmp_path_factory):
  """(Workdir, records) of a run whose checkpoints are all kept."""
  workdir = tmp_path_factory.mktemp("run") / "run"
  return workdir, tasks.run(workdir, config(source, checkpoint_every=2))


def losses(records) -> list[float]:
  return [record["loss"] for record in records]


def flat(tree) -> dict:
  return flax.traverse_util.flatten_dict(tree, sep="/")


def test_the_body_stays_and_all_else_moves(run):
  before, after = load(tasks.FIXTURES / "albert"), load(run[0])
  assert after.params.keys() == {"encoder", "features", "bilstm", "tagger"}
  jax.tree.map(np.testing.assert_array_equal, after.params["encoder"], before.params["encoder"])
  assert (after.params["features"]["weights"] != 0).all()
  assert losses(run[1])[-1] < losses(run[1])[0]


def test_the_optimizer_holds_nothing_of_the_body(source):
  """Nor is there an array of its size in the optimizer's state."""
  c = config(source)
  parts = finetuning.build(c)
  tx, _ = optimizer.make(settings.optimizer_config(c.optimizer, 4), 4)
  shapes = jax.eval_shape(lambda: state.init(parts.objective, tx, 6, seed=0))
  paths = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(shapes.opt_state)]
  assert not any("encoder" in path for path in paths)
  assert sum("bilstm" in path for path in paths) == 2 * 6  # both moments


def test_a_resumed_run_is_bitwise_the_uninterrupted_one(source, run, tmp_path):
  workdir, whole = run
  shutil.copytree(workdir, tmp_path / "run")
  shutil.rmtree(tmp_path / "run" / "checkpoints" / "4")  # as if killed before it was saved
  assert tasks.run(tmp_path / "run", config(source, checkpoint_every=2)) == whole


@pytest.mark.parametrize(
  ("fields", "devices"), [({"data__pack": False}, 1), ({"accumulate": 3}, 1), ({"mesh__fsdp": 2}, 2)]
)
def test_packed_on_any_mesh_and_in_micro_batches_is_the_same(source, run, tmp_path, fields, devices):
  """Although the body has a rate of dropout."""
  found = tasks.run(tmp_path, config(source, checkpoint_every=2, **fields), devices)
  np.testing.assert_allclose(losses(found), losses(run[1]), rtol=1e-4)


def call(tool, monkeypatch, **flags) -> None:
  monkeypatch.setattr("sys.argv", [tool.__name__, *(f"--{name}={value}" for name, value in flags.items())])
  cli.run(tool.main)


def test_predictions_are_the_runs_own(source, run, tmp_path, monkeypatch):
  call(predict, monkeypatch, checkpoint=run[0], input=source / "dev.jsonl", output=tmp_path / "out.jsonl")
  found = [json.loads(line)["prediction"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
  gold = [json.loads(line)["tags"] for line in (source / "dev.jsonl").read_text().splitlines()]
  right = np.mean([a == b for x, y in zip(found, gold, strict=True) for a, b in zip(x, y, strict=True)])
  assert right == pytest.approx(run[1][-1]["accuracy"], rel=1e-5)


def test_it_goes_to_our_layout_and_not_to_theirs(run, tmp_path, monkeypatch, capsys):
  call(convert, monkeypatch, src=run[0], dst=tmp_path / "ours", to="bidir")
  before, after = load(run[0]), load(tmp_path / "ours")
  assert after.head == before.head
  jax.tree.map(np.testing.assert_array_equal, after.params, before.params)
  with pytest.raises(SystemExit, match="1"):
    call(convert, monkeypatch, src=run[0], dst=tmp_path / "theirs", to="hf")
  said = capsys.readouterr().err
  assert said == "error: Hugging Face has no albert with a BiLSTM (head.features); --to=bidir keeps it\n"
  assert not (tmp_path / "theirs").exists()


@pytest.mark.parametrize("family", ["xlnet", "bert"])
def test_on_a_body_that_is_trained(family, tmp_path):
  """Nothing is frozen, and the head reads a text at its cls piece: of an XLNet, and of a BERT that sees to the left
  alone, which is the paper's "LTR & BiLSTM"."""
  texts, start = tasks.write(tmp_path / "files", "classification", count=6), tmp_path / "start"
  before = load(tasks.FIXTURES / family)
  if family == "bert":
    before = dataclasses.replace(before, config=dataclasses.replace(before.config, causal=True))
  export.write(before, start, "bidir")
  recipe = features.get_config("ltr_bilstm").head
  fields = {f"head__{name}": recipe[name] for name in ("features", "lstm_layers", "freeze")} | {"head__lstm_width": 8}
  run = tasks.config(texts, "classification", family, steps=2, init_from=str(start), **fields)
  assert "accuracy" in tasks.run(tmp_path / "run", run)[-1]
  after, body = load(tmp_path / "run"), "xlnet" if family == "xlnet" else "encoder"
  assert getattr(after.config, "causal", False) == (family == "bert")
  assert after.params.keys() == {body, "bilstm", "classifier"}
  words = f"{body}/embeddings/word/embedding"
  assert (flat(after.params)[words] != flat(before.params)[words]).any()
