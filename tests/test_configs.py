"""Every recipe in configs/ builds, and one of each kind of pretraining runs at tiny size.

The ablations' are in tests/test_ablations.py; fine-tuning's change nothing but numbers of the runs in
tests/test_fine_tuning.py and tests/test_feature_based.py.
"""

import importlib
import json
import pathlib
import re

import jax
import numpy as np
import pytest

import train
from configs import albert, quickstart, xlnet
from configs.finetune import albert as finetune_albert
from configs.finetune import bert as finetune_bert
from configs.finetune import features as finetune_features
from configs.finetune import xlnet as finetune_xlnet
from data.tasks import decode, table
from models.config import BERT_SIZES, EncoderConfig
from models.features import KINDS as FEATURES
from models.head_config import HeadConfig
from models.xlnet_config import XLNetConfig
from training import metrics, run_flags, settings

# File → its variants. A file that is missing here fails the first test.
RECIPES = {
  "quickstart": quickstart.FAMILIES,
  "bert": list(BERT_SIZES),
  "albert": albert.VARIANTS,
  "xlnet": xlnet.VARIANTS,
}
# One of each kind: others differ in numbers alone.
STEPPED = ["quickstart:xlnet", "bert:base", "albert:base"]
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("quickstart:bert", "quickstart:albert", "xlnet:large")]
MODELS = {"encoder": EncoderConfig, "xlnet": XLNetConfig}

# What fits rows of 16 tokens.
TINY = {
  "encoder": {"model": {"max_length": 32, "embedding_size": 8}, "objective": {}, "data": {}},
  "xlnet": {"model": {"mem_len": 8}, "objective": {"perm_size": 8, "num_predict": 4}, "data": {"reuse_len": 8}},
}


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
  MODELS[config.family](**dict(config.model) | {"vocab_size": config.model.vocab_size or 100})
  settings.optimizer_config(config.optimizer, 1000)
  assert "python train.py --config=configs/" in importlib.import_module(f"configs.{name.split(':')[0]}").__doc__


@pytest.mark.parametrize("name", STEPPED + SLOW)
def test_it_takes_a_step_at_tiny_size(name, prepared_corpus, tmp_path, monkeypatch):
  config = recipe(name)
  devices = jax.devices()[:1]
  monkeypatch.setattr(jax, "devices", lambda: devices)
  tiny = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "intermediate_size": 32, "vocab_size": 0}
  tiny["initializer_range"] = 0.02  # so that untrained logits are near 0
  config.model.update(tiny | TINY[config.family]["model"])
  config.objective.update(TINY[config.family]["objective"])
  config.data.update(TINY[config.family]["data"])
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
  knows_nothing = np.log(vocab_size) + (np.log(2) if config.family == "encoder" else 0)
  assert all(abs(r["loss"] - knows_nothing) < 0.2 for r in records)


FINE_TUNING = {"bert": finetune_bert, "albert": finetune_albert, "xlnet": finetune_xlnet}


@pytest.mark.parametrize(
  "name", [f"{family}:{task}" for family, module in FINE_TUNING.items() for task in module.TASKS]
)
def test_a_fine_tuning_recipe_builds(name):
  family, task = name.split(":")
  config = FINE_TUNING[family].get_config(task)
  settings.check(config)
  optimizer = settings.optimizer_config(config.optimizer, config.steps or 100)
  assert 0 < optimizer.schedule.warmup_steps < (config.steps or 100)
  decode.AnswerConfig(config.data.n_best, config.data.max_answer_length)
  assert set(config.data.eval_splits) <= table.find_task(task).files.keys()
  assert config.head.kind in ("", "conditional_span" if table.TASKS[task].kind == "span" else "")
  assert f"python train.py --config=configs/finetune/{family}.py:" in FINE_TUNING[family].__doc__


@pytest.mark.parametrize("family", FINE_TUNING)
def test_a_task_without_a_row_is_told_a_way_that_works(family):
  said = f"configs/finetune/{family}.py has no task 'sudoku'; use one of {', '.join(FINE_TUNING[family].TASKS)}. "
  with pytest.raises(ValueError, match=re.escape(said)) as raised:
    FINE_TUNING[family].get_config("sudoku")
  flags = re.findall(r"--config\S*", str(raised.value))
  for task in ("race", "custom"):
    _, config = run_flags.parsed(["--workdir=", *(flag.replace("TASK", task) for flag in flags)])
    assert config.data.task == task


def test_every_fine_tuning_file_is_listed():
  files = {path.stem for path in (pathlib.Path(train.__file__).parent / "configs" / "finetune").glob("*.py")}
  assert files - {"__init__", "features"} == set(FINE_TUNING)


@pytest.mark.parametrize("row", FEATURES)
def test_a_feature_based_recipe_builds(row):
  config = finetune_features.get_config(row)
  settings.check(config)
  settings.optimizer_config(config.optimizer, 100)
  task = table.find_task(config.data.task)
  head = HeadConfig(task.kind, task.labels, **{name: x for name, x in config.head.items() if name != "kind"})
  assert (head.features, head.lstm_layers, head.lstm_width, head.freeze) == (row, 2, 768, True)
  assert f"\n{row} " in finetune_features.__doc__.replace(": ", "\n").replace(", ", "\n")
  with pytest.raises(ValueError, match=r"configs/finetune/features.py has no row 'all'; use one of embeddings, "):
    finetune_features.get_config("all")


def test_the_recipe_of_a_bilstm_on_a_left_to_right_model_trains_both():
  config = finetune_features.get_config("ltr_bilstm")
  settings.check(config)
  assert (config.data.task, config.optimizer.learning_rate, config.batch_size, config.epochs) == ("mrpc", 5e-5, 32, 3.0)
  head = dict(config.head)
  assert (head["features"], head["lstm_layers"], head["lstm_width"], head["freeze"]) == ("last", 1, 768, False)
