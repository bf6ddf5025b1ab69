"""Small parts of the spine: stages, log, mesh, settings."""

import functools
import json
import multiprocessing
import threading

import jax
import numpy as np
import pytest
from tensorboard.backend.event_processing import event_accumulator

from configs import base
from parts import pretraining
from tools import compile
from training import loop, metrics, report, run_flags, settings
from training.stages import Stage, make_stages


def test_one_stage_where_none_is_declared():
  assert make_stages(10, 128, 32) == [Stage(0, 0, 10, 128, 32)]


BERT = [{"steps": 90, "length": 128}, {"steps": 10, "length": 512, "batch_size": 8}]


def test_the_last_stage_lasts_until_the_run_ends_and_boundaries_never_move():
  assert make_stages(100, 1, 32, BERT) == [Stage(0, 0, 90, 128, 32), Stage(1, 90, 100, 512, 8)]
  assert make_stages(150, 1, 32, BERT) == [Stage(0, 0, 90, 128, 32), Stage(1, 90, 150, 512, 8)]
  assert make_stages(90, 1, 32, BERT) == [Stage(0, 0, 90, 128, 32)]
  assert make_stages(7, 1, 32, BERT) == [Stage(0, 0, 7, 128, 32)]


def test_stages_may_come_from_the_command_line():
  stages = "({'steps': 3, 'length': 32}, {'steps': 1, 'batch_size': 8})"
  _, config = run_flags.parsed(
    [
      "--config=configs/quickstart.py:bert",
      "--workdir=w",
      "--config.steps=4",
      "--config.length=64",
      f"--config.stages={stages}",
    ]
  )
  assert pretraining.stages_of(config) == [Stage(0, 0, 3, 32, 128), Stage(1, 3, 4, 64, 8)]
  wider = compile.with_batch(config, 1, 16)
  assert [stage.batch_size for stage in pretraining.stages_of(wider)] == [128, 16]
  assert pretraining.stages_of(config)[1].batch_size == 8


@pytest.mark.parametrize(
  "stages", [[{"length": 3}], [{"steps": 0}], [{"steps": 3, "lenght": 3}], [{"steps": 3, "length": 0}], [3]]
)
def test_a_stage_that_makes_no_sense_is_named(stages):
  with pytest.raises(ValueError, match=r"stages\[0\]"):
    make_stages(10, 128, 32, stages)


def test_equal_floats_have_equal_text_and_read_back_exactly():
  for value in (0.1, 1 / 3, 1e-30, 12345.678, 7):
    x = np.float32(value)
    assert np.float32(json.loads(json.dumps(metrics.plain(x)))) == x
  assert json.dumps(metrics.plain(np.float32(0.1))) == "0.1"


def test_restoring_at_a_step_drops_later_and_torn_records(tmp_path):
  log = metrics.MetricsLog(str(tmp_path), 0)
  for step in (1, 2, 3):
    log.write(step, "train", {"loss": np.float32(step)})
  log.close()
  with open(tmp_path / "metrics.jsonl", "a") as file:
    file.write('{"step": 4, "spl')
  log = metrics.MetricsLog(str(tmp_path), 2)
  log.write(3, "train", {"loss": np.float32(30)})
  log.close()
  records = metrics.read(str(tmp_path / "metrics.jsonl"))
  assert [(r["step"], r["loss"]) for r in records] == [(1, 1.0), (2, 2.0), (3, 30.0)]
  times = [r["wall_s"] for r in records]
  assert times == sorted(times)
  board = event_accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
  assert [(e.step, e.value) for e in board.Scalars("train/loss")] == [(1, 1.0), (2, 2.0), (3, 30.0)]


def test_the_log_has_no_thread_that_an_interrupted_run_would_wait_for(tmp_path):
  before = threading.active_count()
  log = metrics.MetricsLog(str(tmp_path), 0)
  log.write(1, "train", {"loss": 1.0})
  assert threading.active_count() == before
  assert not multiprocessing.active_children()
  log.close()


NO_RECORDS = [b'{"step": 2, "split": "\xff\xfe"}', b"[2]", b"2", b'{"split": "train"}', b'{"step": 2}', b'{"step": 2,']


@pytest.mark.parametrize("line", NO_RECORDS)
def test_a_line_that_is_no_record_ends_the_log(tmp_path, line):
  first = b'{"step": 1, "split": "train"}\n'
  (tmp_path / "metrics.jsonl").write_bytes(first + line + b"\n" + first)
  assert metrics.read(str(tmp_path / "metrics.jsonl")) == [{"step": 1, "split": "train"}]
  metrics.MetricsLog(str(tmp_path), 1).close()
  assert (tmp_path / "metrics.jsonl").read_bytes() == first


def test_flatten_names_fields_as_the_command_line_does():
  assert settings.flatten({"a": {"b": {"c": 1}}, "d": [2]}) == {"a.b.c": 1, "d": [2]}


@pytest.mark.parametrize(
  ("steps", "end", "first", "traced"),
  [
    ((2, 4), 9, 0, (2, 4)),
    ((2, 4), 3, 0, (2, 3)),  # the run ends among them
    ((2, 5), 9, 3, (3, 5)),  # and begins among them
    ((2, 4), 9, 4, None),
    ((9, 12), 9, 0, None),
    ((), 9, 0, None),
  ],
)
def test_a_profile_covers_those_of_its_steps_that_the_run_takes_and_says_if_none(
  tmp_path, monkeypatch, steps, end, first, traced
):
  events, now = [], None
  monkeypatch.setattr(jax.profiler, "start_trace", lambda folder: events.append(now))
  monkeypatch.setattr(jax.profiler, "stop_trace", lambda: events.append(now + 1))
  profile = loop.Profile(str(tmp_path), steps, end)
  for now in range(first, end):
    profile.before(now)
    profile.after(now, ())
  assert events == list(traced or ())
  config = base.get_config()
  config.steps, config.profile_steps, config.optimizer.warmup_steps = end, steps, 0
  said = settings.notices(config, first)
  assert [line.endswith("nothing is traced") for line in said] == [True] * (bool(steps) and not traced)


def test_a_warm_up_that_outlasts_the_run_is_pointed_out():
  config = base.get_config()
  config.optimizer.warmup_steps = 100
  for steps, count in ((99, 1), (100, 1), (101, 0)):
    config.steps = steps
    assert len(settings.notices(config, 0)) == count


@pytest.mark.parametrize(
  ("family", "fields", "said"),
  [
    ("encoder", {"objective.words": "ltr", "objective.masking.rate": 0.3}, "objective.masking.rate=0.3"),
    ("encoder", {"objective.words": "mlm", "objective.masking.rate": 0.3}, ""),
    ("encoder", {"objective.words": "ltr"}, ""),
    ("xlnet", {"objective.random": 0.2}, "objective.random=0.2"),
    ("xlnet", {"objective.words": "dae", "objective.random": 0.2}, ""),
    ("task", {"optimizer.warmup_steps": 1}, ""),
  ],
)
def test_masks_of_an_objective_without_any_are_pointed_out(family, fields, said):
  config = base.get_config(family)
  config.steps = 1_000_000
  config.update_from_flattened_dict(fields)
  lines = settings.notices(config, 0)
  assert len(lines) == bool(said)
  assert all(line.startswith(f"config.{said} says nothing with config.objective.words=") for line in lines)


@pytest.mark.parametrize(
  ("family", "later", "value"),
  [
    ("encoder", "objective.words", "ltr"),
    ("encoder", "objective.masking.replace", "span"),
    ("encoder", "data.rows", "doc_sentences"),
    ("xlnet", "objective.mask", 0.5),
    ("task", "model.causal", True),
    ("task", "head.freeze", True),
  ],
)
def test_a_workdir_from_before_a_field_had_its_default(tmp_path, family, later, value):
  config = base.get_config(family)
  if family == "task":  # as parts.finetuning resolves it
    config.unlock().update({"family": "encoder", "model": base.get_config("encoder").model})
  now = settings.as_json(config)
  before = settings.as_json(config)
  *sections, name = later.split(".")
  at = lambda tree: functools.reduce(dict.__getitem__, sections, tree)
  del at(before)[name]
  settings.write(str(tmp_path), before)
  settings.check_identity(str(tmp_path), now)
  usual, at(now)[name] = at(now)[name], value
  with pytest.raises(ValueError, match=f"{later} is {usual} there and {value} here"):
    settings.check_identity(str(tmp_path), now)


@pytest.mark.parametrize("pair", ["nsp", "sop"])
def test_the_outcome_stands_beside_what_needs_no_model(pair):
  numbers = {"mlm_loss": 6.0, "unigram_loss": 5.5, "mlm_accuracy": 0.1, "most_frequent_accuracy": 0.05}
  first = {"step": 0, "split": "eval"} | numbers | {f"{pair}_accuracy": 0.7, f"{pair}_positive": 0.4}
  last = first | {"step": 9, "mlm_loss": 5.0}
  lines = report.outcome([first, {"step": 1, "split": "train"}, last], {}).splitlines()
  assert [line.split() for line in lines] == [
    ["held-out", "step", "0", "step", "9", "baseline"],
    ["mlm_loss", "6.0000", "5.0000", "5.5000", "(word", "frequencies)"],
    ["mlm_accuracy", "0.1000", "0.1000", "0.0500", "(the", "most", "frequent", "token)"],
    [f"{pair}_accuracy", "0.7000", "0.7000", "0.6000", "(the", "more", "frequent", "answer)"],
  ]


def test_the_outcome_of_a_task_stands_beside_what_the_task_knows_and_shows_no_counts():
  first = {"step": 0, "split": "eval", "f1": 41.5, "total": 9, "HasAns_total": 6, "threshold": 0.5, "best_f1_thresh": 1}
  lines = report.outcome([first, first | {"step": 9, "f1": 50.0}], {"f1": (25.0, "no answer")}).splitlines()
  assert [line.split() for line in lines[1:]] == [["f1", "41.5000", "50.0000", "25.0000", "(no", "answer)"]]
