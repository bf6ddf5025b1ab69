"""The log's times, rates and memory are those of the clock, of the chips and of their memory."""

import dataclasses
import itertools
import time
from types import SimpleNamespace

import jax
import pytest

import train
from tests.training import toy
from training import hardware, metrics, rates, report


class Device(SimpleNamespace):
  """A device of some kind that says what memory it has needed."""

  def memory_stats(self):
    if isinstance(self.stats, Exception):
      raise self.stats
    return self.stats


def devices(monkeypatch, *kinds, stats=(), platform="tpu"):
  found = [Device(device_kind=kind, platform=platform, stats=one) for kind, one in itertools.zip_longest(kinds, stats)]
  monkeypatch.setattr(jax, "devices", lambda: found)
  monkeypatch.setattr(jax, "local_devices", lambda: found)


@pytest.fixture
def clock(monkeypatch):
  """A clock that stands still unless it is moved."""
  now = SimpleNamespace(at=100.0)
  monkeypatch.setattr(rates, "time", SimpleNamespace(monotonic=lambda: now.at))
  return now


def test_a_step_is_the_wait_for_its_batch_and_the_rest(clock):
  def batches():
    for _ in range(3):
      clock.at += 3.0
      yield {}
    clock.at += 3.0  # until it is clear that there are no more

  counted = rates.Rates()
  for _ in counted.timed(batches()):
    clock.at += 1.0
    counted.add(tokens=50, flops=10)
  # A CPU: no mfu, no memory.
  assert counted.numbers() == {"tokens_per_s": 10.0, "step_s": 5.0, "data_wait_s": 4.0, "compute_s": 1.0}

  counted.restart()
  clock.at += 2.0
  counted.add(tokens=50, flops=10)
  assert counted.numbers() == {"tokens_per_s": 25.0, "step_s": 2.0, "data_wait_s": 0.0, "compute_s": 2.0}


def test_a_run_whose_batches_are_slow_says_so(tmp_path):
  config = toy.get_config()
  config.steps, config.stages, config.eval_every, config.checkpoint_every, config.log_every = 8, (), 8, 8, 4
  config.mesh.data = jax.device_count()
  slow = 0.05

  def build(config):
    parts = toy.build(config)

    def train_batches(*args):
      for batch in parts.train_batches(*args):
        time.sleep(slow)
        yield batch

    return dataclasses.replace(parts, train_batches=train_batches)

  train.train(config, str(tmp_path), build)
  records = [record for record in metrics.read(tmp_path / "metrics.jsonl") if record["split"] == "train"]
  assert [record["step"] for record in records] == [4, 8]
  for record in records:
    assert slow / 2 < record["data_wait_s"] <= record["step_s"]
    assert record["compute_s"] == pytest.approx(record["step_s"] - record["data_wait_s"], abs=1e-5)
    assert record.keys().isdisjoint({"mfu", "hbm_peak_bytes"})


# What Google and NVIDIA print for a chip, in TFLOP/s, and how many devices of JAX it is.
CHIPS = {
  "TPU v2": (45, 2),
  "TPU v3": (123, 2),
  "TPU v4": (275, 1),
  "TPU v5 lite": (197, 1),
  "TPU v5": (459, 1),
  "TPU v6 lite": (918, 1),
  "Tesla V100-SXM2-16GB": (125, 1),
  "NVIDIA A100-SXM4-80GB": (312, 1),
  "NVIDIA H100 80GB HBM3": (989, 1),
}


@pytest.mark.parametrize("kind", CHIPS)
def test_mfu_is_of_the_peak_of_all_chips(monkeypatch, clock, kind):
  peak, parts = CHIPS[kind]
  devices(monkeypatch, *[kind] * 4 * parts)
  counted = rates.Rates()
  clock.at += 2.0
  counted.add(tokens=1, flops=4 * peak * 1e12)
  assert counted.numbers()["mfu"] == pytest.approx(0.5)


def test_a_run_on_a_device_without_a_known_peak_says_that_there_is_no_mfu(monkeypatch, tmp_path, capsys):
  devices(monkeypatch, "TPU v4", "TPU v99")
  assert hardware.peak_flops() is None
  devices(monkeypatch, "Radeon", platform="gpu")
  report.Reporter(str(tmp_path), 0, 1, 1, lambda step: 0.1).close()
  assert capsys.readouterr().out == "mfu is left out of the log: training/hardware.py has no peak rate of Radeon\n"


@pytest.mark.parametrize(
  ("stats", "expected"),
  [
    ([{"peak_bytes_in_use": 5, "bytes_in_use": 9}, {"peak_bytes_in_use": 7}], {"hbm_peak_bytes": 7}),
    ([{"peak_bytes_in_use": 5}, jax.errors.JaxRuntimeError("UNIMPLEMENTED")], {"hbm_peak_bytes": 5}),
    ([None, {"bytes_in_use": 9}], {}),
  ],
)
def test_memory_is_the_high_water_mark_of_the_fullest_device(monkeypatch, clock, stats, expected):
  devices(monkeypatch, "TPU v3", "TPU v3", stats=stats)
  counted = rates.Rates()
  clock.at += 1.0
  counted.add(tokens=1, flops=1)
  found = counted.numbers()
  assert {name: value for name, value in found.items() if name == "hbm_peak_bytes"} == expected
