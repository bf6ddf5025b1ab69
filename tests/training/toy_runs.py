"""Runs of the toy for tests: in this process, and by command line."""

import os
import sys

import jax
import pytest

import train
from tests import compilation
from tests.training import toy
from training import metrics

VOLATILE = ("wall_s", "tokens_per_s", "step_s", "data_wait_s", "compute_s")


def series(workdir) -> list[dict]:
  """The records of a run without what the clock decides."""
  records = metrics.read(os.path.join(workdir, "metrics.jsonl"))
  return [{name: value for name, value in record.items() if name not in VOLATILE} for record in records]


def run(workdir, **fields) -> list[dict]:
  """Runs the toy in this process with fields changed; returns its series."""
  config = toy.get_config()
  config.update_from_flattened_dict({"mesh.data": 1} | fields)
  if config.mesh.data * config.mesh.fsdp != jax.device_count():
    with few_devices(config.mesh.data * config.mesh.fsdp):
      train.train(config, str(workdir), toy.build)
  else:
    train.train(config, str(workdir), toy.build)
  return series(workdir)


class few_devices:
  """Lets the run see the first n devices only."""

  def __init__(self, n):
    self._patch = pytest.MonkeyPatch()
    self._devices = jax.devices()[:n]

  def __enter__(self):
    self._patch.setattr(jax, "devices", lambda *args: self._devices)

  def __exit__(self, *args):
    self._patch.undo()


def command(workdir, *fields) -> list[str]:
  return [
    sys.executable,
    "-m",
    "tests.training.toy",
    "--config=tests/training/toy_config.py",
    f"--workdir={workdir}",
    *fields,
  ]


ENV = os.environ | {
  "JAX_PLATFORMS": "cpu",
  "XLA_FLAGS": compilation.QUICKLY,
  "TF_CPP_MIN_LOG_LEVEL": "3",  # else XLA says on stderr that it is slow, on a busy machine
}


def newest(workdir) -> int | None:
  folder = workdir / "checkpoints"
  return max((int(p.name) for p in folder.iterdir() if p.name.isdigit()), default=None) if folder.exists() else None
