"""How one of a workdir's checkpoints is named."""

import pathlib

import pytest

from training.saved import at_step, saved_steps


@pytest.mark.parametrize(
  ("name", "expected"),
  [
    ("run@4", ("run", 4)),
    (pathlib.Path("run@4"), ("run", 4)),
    ("run@12", ("run", 12)),  # there or not: whoever opens it says which there are
    ("run", ("run", None)),
    ("other@4", ("other@4", None)),  # a workdir of that name
    ("run@x", ("run@x", None)),
    ("none@4", ("none@4", None)),
    ("hf:run@4", ("hf:run@4", None)),
  ],
)
def test_a_step_is_named_behind_the_workdir(name, expected, tmp_path, monkeypatch):
  for folder in ("run/checkpoints/4", "run/checkpoints/4.tmp", "other/checkpoints/2", "other@4/checkpoints/2"):
    (tmp_path / folder).mkdir(parents=True)
  monkeypatch.chdir(tmp_path)
  assert at_step(name) == expected
  assert saved_steps("run") == [4]
