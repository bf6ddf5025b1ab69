"""Small real runs for tests: a tiny BERT on a prepared corpus, in this process, on the first few devices."""

import os
import pathlib

import jax
import pytest
from ml_collections import ConfigDict

import train
from configs import quickstart
from training import metrics

VOLATILE = ("wall_s", "tokens_per_s", "step_s", "data_wait_s", "compute_s")  # what the clock decides


def config(corpus: pathlib.Path, **fields) -> ConfigDict:
  """Returns a run of six steps of a tiny BERT; `fields` by dotted name, with "__" for the dot."""
  c = quickstart.get_config("bert")
  c.steps, c.batch_size, c.length = 6, 8, 32
  c.log_every, c.eval_every, c.eval_batches, c.checkpoint_every = 1, 3, 2, 2
  c.data.corpus = str(corpus)
  c.model.hidden_size, c.model.intermediate_size, c.model.max_length = 32, 64, 32
  c.optimizer.warmup_steps = 2
  c.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
  return c


def run(workdir: pathlib.Path, config: ConfigDict, devices: int = 1) -> list[dict]:
  """Runs it on the first `devices` devices; returns its records without what the clock decides."""
  seen = jax.devices()[:devices]
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(jax, "devices", lambda: seen)
    train.train(config, str(workdir))
  return series(workdir)


def series(workdir: pathlib.Path) -> list[dict]:
  """The records of a run without what the clock decides."""
  records = metrics.read(os.path.join(workdir, "metrics.jsonl"))
  return [{name: value for name, value in record.items() if name not in VOLATILE} for record in records]
