"""A workdir in a bucket, by a stand-in: gs:// is a local folder to etils and to Orbax, and no file there can grow or be
renamed into place."""

import json
import pathlib
import shutil

import jax
import numpy as np
import pytest
from etils.epath import backend
from orbax.checkpoint._src.path import gcs_utils, step

from data.places import reach
from pretrained import export
from pretrained.load import load
from tests import buckets
from tests.training.toy_runs import run, series
from tools import predict
from training import checkpoint, saved

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def bucket(tmp_path, monkeypatch) -> pathlib.Path:
  """The folder that stands for gs://bucket."""
  monkeypatch.setattr(step.gcs_utils, "is_hierarchical_namespace_enabled", lambda path: False)
  object_store = lambda path: {"driver": "file", "path": str(tmp_path / str(path).removeprefix("gs://"))}
  monkeypatch.setattr(gcs_utils, "get_kvstore_for_gcs", object_store)
  return buckets.stand_in(tmp_path, monkeypatch)


def test_a_run_in_a_bucket_is_the_run_on_a_disk_and_goes_on(bucket, tmp_path):
  constant = {"optimizer.decay": "constant"}
  run("gs://bucket/run", steps=13, **constant)
  assert checkpoint.saved_steps("gs://bucket/run")[-1] == 13
  run("gs://bucket/run", **constant)
  expected = run(tmp_path / "disk", **constant)
  found = [record for record in series(bucket / "run") if (record["step"], record["split"]) != (13, "eval")]
  assert found == expected
  assert json.loads((bucket / "run" / "config.json").read_text())["steps"] == 20
  assert len(list((bucket / "run" / "tensorboard").iterdir())) == 2


def test_a_save_that_was_cut_short_is_none_and_is_made_again(bucket):
  run("gs://bucket/run", steps=10, **{"optimizer.decay": "constant"})
  (bucket / "run" / "checkpoints" / "15" / "params").mkdir(parents=True)
  (bucket / "run" / "checkpoints" / "15" / "params" / "torn").write_text("x")
  assert checkpoint.saved_steps("gs://bucket/run")[-1] == 10
  run("gs://bucket/run", **{"optimizer.decay": "constant"})
  assert checkpoint.saved_steps("gs://bucket/run") == [15, 20]


def test_a_damaged_checkpoint_in_a_bucket_falls_back_to_the_one_before(bucket, capsys):
  run("gs://bucket/run")
  for file in (bucket / "run" / "checkpoints" / "20" / "params").rglob("*"):
    if file.is_file():
      file.write_bytes(b"")
  run("gs://bucket/run")
  assert "checkpoint 20 is damaged and was moved to gs://bucket/run/damaged/20" in capsys.readouterr().err
  assert (bucket / "run" / "damaged" / "20").is_dir()


def test_traces_of_a_run_in_a_bucket_are_refused(bucket):
  with pytest.raises(ValueError, match=r"profile_steps=\(2, 4\): traces go to local disks only, and --workdir=gs://"):
    run("gs://bucket/run", profile_steps=(2, 4))
  assert not list(bucket.iterdir())


@pytest.mark.parametrize(("folder", "name"), [("bert", "bert"), ("tf1/bert", "bert/classification"), ("bert", "run")])
def test_a_checkpoint_in_a_bucket_is_the_one_on_a_disk(bucket, folder, name):
  shutil.copytree(FIXTURES / folder, bucket / "bert")
  if folder == "tf1/bert":  # of 40 pieces, without a vocabulary
    pieces = (FIXTURES / "bert" / "vocab.txt").read_text().splitlines()[:40]
    (bucket / "bert" / "vocab.txt").write_text("\n".join(pieces))
  if name == "run":
    export.write(load(bucket / "bert"), bucket / "run", "bidir")
    (bucket / "run" / "checkpoints" / "0" / saved.MARK).touch()
  found, expected = load(f"gs://bucket/{name}"), load(bucket / name)
  assert (found.config, found.head, found.missing) == (expected.config, expected.head, expected.missing)
  assert found.tokenizer.fingerprint == expected.tokenizer.fingerprint
  jax.tree.map(np.testing.assert_array_equal, found.params, expected.params)


def test_what_is_wrong_with_a_checkpoint_in_a_bucket_names_the_bucket(bucket):
  with pytest.raises(FileNotFoundError, match=r"^gs://bucket/bert: no such checkpoint"):
    load("gs://bucket/bert")
  shutil.copytree(FIXTURES / "bert", bucket / "bert")
  (bucket / "bert" / "vocab.txt").unlink()
  with pytest.raises(FileNotFoundError, match=r"^gs://bucket/bert"):
    load("gs://bucket/bert")
  (bucket / "bert" / "config.json").write_text("{}")
  with pytest.raises(ValueError, match=r"^gs://bucket/bert/config\.json"):
    load("gs://bucket/bert")


def test_predictions_know_the_task_of_a_run_in_a_bucket(bucket):
  (bucket / "run" / "checkpoints").mkdir(parents=True)
  config = {"head": {"kind": "span"}, "data": {"task": "squad2"}}
  (bucket / "run" / "config.json").write_text(json.dumps(config))
  records = [{"step": step, "split": "dev", "threshold": -step} for step in (2, 4)]
  (bucket / "run" / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
  for workdir in ("gs://bucket/run", bucket / "run"):
    assert predict.run_of(str(workdir)) == config
    assert (predict.threshold_of(str(workdir)), predict.threshold_of(f"{workdir}@3")) == (-4, -2)


@pytest.mark.parametrize(
  ("place", "said"),
  [("gs://bucket/run", r"gcsfs.*; pip install gcsfs$"), ("ftp://host/run", "ftp://host/run cannot be")],
)
def test_a_place_that_nothing_reaches_is_one_line(monkeypatch, place, said):
  def missing(self, path):
    raise ImportError("Please install gcsfs to access Google Storage")

  monkeypatch.setattr(backend._FileSystemSpecBackend, "fs", missing)
  with pytest.raises(ValueError, match=said) as raised:
    reach(place)
  assert len(str(raised.value).splitlines()) == 1
