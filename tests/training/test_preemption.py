"""SIGTERM at any question: after a step, after compiling, between two batches of an evaluation."""

import dataclasses

import pytest

import train
from tests.training import toy
from tests.training.toy_runs import few_devices, series
from training import checkpoint, loop


class Asked(loop.Preemption):
  """Is asked to stop at a question of this number."""

  at = 0
  questions = 0

  def reached(self) -> bool:
    Asked.questions += 1
    self._asked = self._asked or Asked.questions == Asked.at
    return self._asked


def run(workdir, monkeypatch, at: int = 0, **fields) -> int:
  """Runs the toy on one device, stopped at question `at` (0: never); returns how many were asked."""
  monkeypatch.setattr(loop, "Preemption", Asked)
  Asked.at, Asked.questions = at, 0
  config = toy.get_config()
  config.update_from_flattened_dict({"mesh.data": 1, "steps": 15, "optimizer.decay": "constant"} | fields)
  with few_devices(1):
    train.train(config, str(workdir), toy.build)
  return Asked.questions


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """(How many questions an uninterrupted run asks, its records.)"""
  with pytest.MonkeyPatch.context() as patch:
    workdir = tmp_path_factory.mktemp("whole")
    return run(workdir, patch), series(workdir)


# Of an evaluation of two batches there are questions between them, after them and at its end. The first is before the
# evaluation at step 0; steps 10 and 15 have one, and 12 is the end of a stage.
@pytest.mark.parametrize("share", [0.0, 0.05, 0.4, 0.6, 0.65, 0.9, 1.0])
def test_stopped_at_any_question_the_series_is_that_of_an_uninterrupted_run(
  whole, tmp_path, monkeypatch, capsys, share
):
  count, records = whole
  run(tmp_path, monkeypatch, at=max(1, round(share * count)))
  said = capsys.readouterr().out.splitlines()[-1]
  saved = checkpoint.saved_steps(str(tmp_path))
  assert said.startswith(f"stopped by SIGTERM: {f'step {saved[-1]} is saved' if saved else 'no step was taken'}")
  run(tmp_path, monkeypatch)
  assert series(tmp_path) == records


def test_an_evaluation_cut_short_is_made_again_at_the_end_of_a_run_and_once(whole, tmp_path, monkeypatch, capsys):
  count, records = whole
  run(tmp_path, monkeypatch, at=count - 2)
  assert [r for r in series(tmp_path) if (r["step"], r["split"]) == (15, "eval")] == []
  assert checkpoint.saved_steps(str(tmp_path))[-1] == 15
  for _ in range(2):
    run(tmp_path, monkeypatch)
    assert capsys.readouterr().out.splitlines()[-1] == f"nothing left to do: {tmp_path} holds step 15"
    assert series(tmp_path) == records


def test_an_evaluation_reads_no_more_than_two_batches_after_it_was_asked_to_stop(tmp_path, monkeypatch):
  build, taken = toy.build, []

  def endless(config):
    parts = build(config)

    def batches(stage, local):
      (batch,) = list(parts.eval_batches(stage, local))[:1]
      while len(taken) < 1000:
        taken.append(batch)
        yield batch

    return dataclasses.replace(parts, eval_batches=batches)

  monkeypatch.setattr(toy, "build", endless)
  run(tmp_path, monkeypatch, at=5, eval_batches=1)
  assert len(taken) in (4, 5, 6)  # question 1 is before the evaluation
