"""Fine-tuning end to end on made-up tasks: every kind, on every family, resumed, on meshes, packed or not."""

import json
import re
import shutil
import sys

import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from data.tasks.table import TASKS
from pretrained.load import load
from tests import tasks
from tests.processes import run_together
from tests.runs import series

pytestmark = pytest.mark.slow  # compiles for minutes: `make slow`

# Kind of head → (kind of task, family of the checkpoint, a score that the run must log).
CASES = {
  "classification": ("classification", "albert", "accuracy"),
  "regression": ("regression", "bert", "spearman"),
  "tagging": ("tagging", "albert", "recall"),
  "span": ("span", "bert", "best_f1"),
  "conditional_span": ("span", "xlnet", "best_f1_thresh"),
  "choice": ("choice", "xlnet", "accuracy"),
}


def losses(records) -> list[float]:
  return [record["loss"] for record in records]


@pytest.mark.parametrize("head", CASES)
def test_each_kind_learns_is_scored_and_opens_again(tmp_path, head):
  kind, family, score = CASES[head]
  source = tasks.write(tmp_path / "files", kind)
  fields = {"head__kind": head, "epochs": 12.0, "data__eval_splits": ("train",)}
  records = tasks.run(tmp_path / "run", tasks.config(source, kind, family, **fields, **tasks.STILL))
  held_out = [record for record in records if record["split"] == "eval"]
  assert score in held_out[0]
  assert held_out[-1]["loss"] < held_out[0]["loss"]
  written = json.loads((tmp_path / "run" / "config.json").read_text())
  epoch = written["eval_every"]
  assert [record["step"] for record in held_out] == sorted({*range(0, written["steps"], epoch), written["steps"]})
  found = load(tmp_path / "run")
  assert found.head.kind == head
  assert found.tokenizer.fingerprint == written["data"]["tokenizer"]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
  return tasks.write(tmp_path_factory.mktemp("files"), "choice")


@pytest.fixture(scope="module")
def straight(source, tmp_path_factory):
  """A run without dropout, one option a row."""
  workdir = tmp_path_factory.mktemp("straight")
  return tasks.run(workdir, tasks.config(source, "choice", data__pack=False, **tasks.STILL))


@pytest.mark.parametrize(("fields", "devices"), [({}, 1), ({"accumulate": 3, "mesh__fsdp": 2}, 2)])
def test_packed_on_any_mesh_and_in_micro_batches_is_the_same(straight, source, tmp_path, fields, devices):
  """Of questions with several options, which lie in rows of one another."""
  records = tasks.run(tmp_path, tasks.config(source, "choice", **tasks.STILL, **fields), devices)
  np.testing.assert_allclose(losses(records), losses(straight), rtol=1e-4)
  assert records[-1]["accuracy"] == straight[-1]["accuracy"]


def test_two_processes_score_every_example_once_as_one_process_does(tmp_path):
  """Nine questions in batches of six windows: predictions of rows that either process read come together."""
  source = tasks.write(tmp_path / "files", "span")
  config = tasks.config(source, "span", **tasks.STILL)
  alone = tasks.run(tmp_path / "alone", config)
  fields = [f"--config.{name}={value}" for name, value in tasks.changed(config).items()]
  command = [sys.executable, "train.py", "--config=configs/base.py:task", f"--workdir={tmp_path / 'two'}", *fields]
  said = run_together([*command, "--distributed"], tmp_path / "log")
  assert "parameters on 4 × cpu" in said
  together = series(tmp_path / "two")
  assert [record["total"] for record in together if record["split"] == "eval"] == [9] * 2
  for ours, theirs in zip(together, alone, strict=True):
    assert ours.pop("split") == theirs.pop("split")
    assert ours == pytest.approx(theirs, rel=1e-3), ours["step"]


def test_a_resumed_run_is_bitwise_the_uninterrupted_one(source, tmp_path):
  config = tasks.config(source, "choice", checkpoint_every=2)
  whole = tasks.run(tmp_path, config)
  shutil.rmtree(tmp_path / "checkpoints" / "4")  # as if killed before it was saved
  assert tasks.run(tmp_path, config) == whole
  (tmp_path / "moved").mkdir()
  moved = shutil.copytree(source, tmp_path / "moved" / "files")
  tasks.run(tmp_path, tasks.config(moved, "choice", checkpoint_every=2))
  (moved / "train.jsonl").write_text((source / "dev.jsonl").read_text())
  with pytest.raises(ValueError, match=r"holds another run: data\.fingerprint is"):
    tasks.run(tmp_path, tasks.config(moved, "choice", checkpoint_every=2, steps=4))


@pytest.mark.parametrize(
  ("first", "then", "family", "said"),
  [
    ("mnli", "rte", "bert", "classifier begins anew: its labels are contradiction, entailment, neutral there and "),
    ("mnli", "stsb", "bert", "classifier begins anew: it is of classification there and of regression in this run"),
    ("squad1", "squad2", "albert", "span_head goes on from the checkpoint's"),
  ],
)
def test_a_task_starts_from_another_and_says_what_of_its_head_goes_on(tmp_path, capsys, first, then, family, said):
  loaded = []
  for name, more in ((first, {}), (then, {"init_from": str(tmp_path / first), "optimizer__learning_rate": 0.0})):
    source = tasks.write_official(tmp_path / "files", name)
    capsys.readouterr()
    tasks.run(tmp_path / name, tasks.config(source, "", family, data__task=name, steps=1, **more))
    loaded.append(flatten_dict(load(tmp_path / name).params, sep="/"))
  assert [line for line in capsys.readouterr().err.splitlines() if said in line] != []
  before, now = loaded
  goes_on = [name for name in now if "anew" not in said or not name.startswith("classifier")]
  for name in goes_on:
    np.testing.assert_array_equal(now[name], before[name], err_msg=name)
  pooler = {"pooler/kernel", "pooler/bias"} if family == "bert" else set()
  assert pooler <= set(goes_on)
  if "anew" in said:
    assert now["classifier/bias"].shape == (len(TASKS[then].labels) or 1,)


def test_an_untrained_model_of_the_same_shape(source, tmp_path):
  records = tasks.run(tmp_path, tasks.config(source, "choice", fresh=True, steps=1, **tasks.STILL))
  assert records[0]["loss"] == pytest.approx(np.log(3), abs=0.1)


@pytest.mark.parametrize(
  ("fields", "said"),
  [
    ({"init_from": ""}, "config.init_from is empty"),
    ({"data__source": ""}, "config.data.source is empty"),
    ({"data__task": ""}, "config.data.task is empty; use one of cola, "),
    ({"data__task": "glue"}, "task 'glue' is unknown; use one of cola, "),
    ({"data__eval_splits": ()}, "config.data.eval_splits names no split"),
    ({"data__train_split": "training"}, "task custom has no split 'training'; it has train, dev, test"),
    ({"length": 25}, "config.length=25 is more than the 24 positions of "),
    ({"epochs": 0.0}, "config.epochs=0.0 must be above 0"),
    ({"steps": -1}, "config.steps=-1 must be at least 0"),
    ({"head__kind": "span"}, "config.head.kind='span' is none of task custom, whose kind is choice"),
    ({"model__ffn_dropout": 0.0}, "config.model.ffn_dropout: the model of "),
    ({"optimizer__warmup_steps": 3}, "config.optimizer has warmup_rate=0.1 and warmup_steps=3; set one of them to 0"),
    ({"optimizer__layer_decay": 0.0}, "config.optimizer.layer_decay=0.0 must be above 0 and at most 1"),
    ({"accumulate": 4}, "batch_size=6 does not divide into accumulate=4"),
  ],
)
def test_a_field_that_makes_no_sense_is_named_in_one_line(source, tmp_path, fields, said):
  with pytest.raises(ValueError, match=re.escape(said)) as raised:
    tasks.run(tmp_path / "run", tasks.config(source, "choice", **fields))
  assert "\n" not in str(raised.value)
  assert not (tmp_path / "run").exists()
