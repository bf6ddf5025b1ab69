"""Small made-up tasks, and runs of them from the tiny checkpoints in tests/fixtures."""

import json
import pathlib
import random

import jax
import pytest
from ml_collections import ConfigDict

import train
from configs import base
from tests.runs import series

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
KINDS = ("classification", "regression", "tagging", "span", "choice")
WORDS = ("the", "of", "and", "in", "to", "was", "is", "for", "on", "as", "by", "with", "he", "that", "at", "his")


def write(folder: pathlib.Path, kind: str, count: int = 24) -> pathlib.Path:
  """Writes train.jsonl and dev.jsonl of a task of a kind; what is asked can be read off the text."""
  folder.mkdir(parents=True, exist_ok=True)
  for split, some, seed in (("train", count, 0), ("dev", 9, 2)):
    rng = random.Random(seed)
    lines = [json.dumps(record(kind, rng) | {"id": f"{split}{i}"}) for i in range(some)]
    (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
  return folder


def record(kind: str, rng: random.Random) -> dict:
  words = rng.choices(WORDS, k=rng.randrange(2, 9))
  text = " ".join(words)
  if kind == "classification":
    return {"sentence": text, "label": "many" if len(words) > 4 else "few"}
  if kind == "regression":
    return {"sentence": text, "label": len(words) / 2}
  if kind == "tagging":
    return {"words": words, "tags": ["B-PER" if word == "he" else "O" for word in words]}
  if kind == "choice":
    return {"context": text, "options": [words[0], "at", "his"], "label": rng.randrange(3)}
  first = rng.randrange(len(words))
  answer = {"text": words[first], "answer_start": len(" ".join(words[:first])) + (first > 0)}
  impossible = rng.random() < 0.3
  return {"question": "the", "context": text, "answers": [] if impossible else [answer], "is_impossible": impossible}


def config(source: pathlib.Path, kind: str, family: str = "bert", **fields) -> ConfigDict:
  """Returns a run of a few steps; `fields` by dotted name, with "__" for the dot."""
  c = base.get_config("task")
  c.init_from = str(FIXTURES / family)
  c.data.task, c.data.kind, c.data.source = "custom", kind, str(source)
  c.batch_size, c.length, c.epochs = 6, 24, 1.0
  c.log_every = 1
  c.optimizer.learning_rate = 1e-3
  c.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
  return c


STILL = {"model__hidden_dropout": 0.0, "model__attention_dropout": 0.0, "head__dropout": 0.0}


def run(workdir: pathlib.Path, config: ConfigDict, devices: int = 1) -> list[dict]:
  """Runs it on the first `devices` devices; returns its records without what the clock decides."""
  seen = jax.devices()[:devices]
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(jax, "devices", lambda: seen)
    train.train(config, str(workdir))
  return series(workdir)
