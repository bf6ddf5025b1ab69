"""The table of scores beside another library's, made of known runs; where that library is there, its side learns."""

import pytest

from benchmarks import fine_tuning
from benchmarks.fine_tuning import Run, Setting
from tests import tasks

SCORES = {
  ("ours", 0): 0.8,
  ("ours", 1): 0.84,
  ("ours", 2): 0.85,
  ("theirs", 0): 0.79,
  ("theirs", 1): 0.86,
  ("theirs", 2): 0.81,
}


def runs(task: str = "sst2") -> list[Run]:
  return [Run(task, seed, side, score, 1.0) for (side, seed), score in SCORES.items()]


def test_means_and_errors_of_seeds_that_both_have():
  (row,) = fine_tuning.summary([*runs(), Run("sst2", 3, "ours", 0.1, 1.0), Run("rte", 0, "theirs", 0.5, 1.0)])
  assert (row["task"], row["metric"], row["seeds"]) == ("sst2", "accuracy", 3)
  assert row["ours"] == pytest.approx(0.83)
  assert row["theirs"] == pytest.approx(0.82)
  assert row["ours_error"] == pytest.approx(0.0152753, abs=1e-6)  # sqrt((.03² + .01² + .02²) / 2 / 3)
  assert row["difference"] == pytest.approx(0.01)  # of .01, -.02, .04
  assert row["difference_error"] == pytest.approx(0.0173205, abs=1e-6)
  assert row["p"] == pytest.approx(0.6220, abs=1e-4)  # t = .57735 with two degrees of freedom


def test_one_seed_has_no_error():
  (row,) = fine_tuning.summary([run for run in runs() if run.seed == 0])
  assert row["p"] is None
  assert fine_tuning.show([row]).splitlines()[-1] == "| sst2 | accuracy | 1 | 0.800 | 0.790 | 0.010 |  |"


@pytest.mark.parity
@pytest.mark.parametrize(("task", "epochs", "least"), [("mnli", 6, 0.7), ("conll2003", 20, 0.2)])
def test_their_side_learns(task, epochs, least, tmp_path):
  pytest.importorskip("accelerate")
  from benchmarks import fine_tuning_transformers

  source, checkpoint = tasks.write_official(tmp_path / "files", task, 64), tasks.FIXTURES / "bert"
  setting = Setting(1e-2, 8, epochs, length=24)
  score, seconds = fine_tuning_transformers.run(
    task, str(source), str(checkpoint), 0, setting, fine_tuning.ALIKE, tmp_path / "work"
  )
  assert score > least  # without learning .5 and 0
  assert seconds > 0
