"""Every recipe in configs/ builds, and takes a step at tiny size."""

import importlib
import json
import pathlib

import jax
import numpy as np
import pytest

import train
from configs import albert, quickstart
from models.config import BERT_SIZES, EncoderConfig
from training import metrics, settings

# File → its variants. A file that is missing here fails the first test.
RECIPES = {"quickstart": quickstart.FAMILIES, "bert": list(BERT_SIZES), "albert": albert.VARIANTS}
STEPPED = ["quickstart:bert", "quickstart:albert", "bert:base", "albert:base"]  # others differ in numbers alone


def recipe(name: str):
  module, variant = name.split(":")
  return importlib.import_module(f"configs.{module}").get_config(variant)


def test_every_file_is_listed():
  files = {path.stem for path in (pathlib.Path(train.__file__).parent / "configs").glob("*.py")}
  assert files - {"__init__", "base"} == set(RECIPES)


@pytest.mark.parametrize(
  "name", [f"{module}:{variant}" for module, variants in RECIPES.items() for variant in variants]
)
def test_it_builds(name):
  config = recipe(name)
  EncoderConfig(**dict(config.model) | {"vocab_size": config.model.vocab_size or 100})
  settings.optimizer_config(config.optimizer)
  assert "python train.py --config=configs/" in importlib.import_module(f"configs.{name.split(':')[0]}").__doc__


@pytest.mark.parametrize("name", STEPPED)
def test_it_takes_a_step_at_tiny_size(name, prepared_corpus, tmp_path, monkeypatch):
  config = recipe(name)
  devices = jax.devices()[:1]
  monkeypatch.setattr(jax, "devices", lambda: devices)
  tiny = {
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 0,
    "max_length": 32,
  }
  tiny["initializer_range"] = 0.02  # so that untrained logits are near 0
  for field, value in tiny.items():
    config.model[field] = value
  config.model.embedding_size = min(config.model.embedding_size, 8)
  config.data.corpus = str(prepared_corpus)
  config.steps = config.batch_size = 2
  config.eval_batches = 1
  for stage, length in zip(config.stages, (16, 32), strict=False):
    stage.steps, stage.length = 1, length
  config.length = 16
  config.optimizer.learning_rate = 1e-5
  train.train(config, str(tmp_path))
  vocab_size = json.loads((tmp_path / "config.json").read_text())["model"]["vocab_size"]
  records = metrics.read(str(tmp_path / "metrics.jsonl"))
  assert [(r["step"], r["split"]) for r in records] == [(0, "eval"), (2, "train"), (2, "eval")]
  assert all(abs(r["loss"] - np.log(2) - np.log(vocab_size)) < 0.2 for r in records)  # an untrained model knows nothing
