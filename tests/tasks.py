"""Small made-up tasks, and runs of them from the tiny checkpoints in tests/fixtures."""

import json
import pathlib
import random

import jax
import pytest
from ml_collections import ConfigDict

import train
from configs import base
from data.tasks.table import TASKS, Task
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


def write_official(folder: pathlib.Path, name: str, count: int = 24) -> pathlib.Path:
  """Writes a task of data.tasks.table in the layout of its official files; test splits have no labels."""
  splits = {"train": (count, 0), "dev": (9, 2), "dev_mismatched": (5, 3), "test": (7, 4), "test_mismatched": (3, 5)}
  task = TASKS[name]
  for split, (some, seed) in splits.items():
    if split in task.files:
      rng = random.Random(seed)
      records = [record(task.kind, rng) for _ in range(some)]
      _LAYOUTS[task.layout](folder / task.folder / task.files[split][0], task, records, not split.startswith("test"))
  return folder


def _table(path: pathlib.Path, task: Task, records: list[dict], labelled: bool) -> None:
  of = dict(zip(("few", "many"), task.labels, strict=False))
  rows = [["index", *task.texts, *[task.label] * labelled]]
  for i, one in enumerate(records):
    first, *more = one["sentence"].split()
    label = of.get(one["label"], one["label"])
    rows.append([f"{10 + i}", first, " ".join(more), *[str(label)] * labelled])
  _text(path, "".join("\t".join(row) + "\n" for row in rows))


def _squad(path: pathlib.Path, task: Task, records: list[dict], labelled: bool) -> None:
  keys = ("question", *("answers", "is_impossible") * labelled)
  records = [one for one in records if task.impossible or one["answers"]]
  paragraphs = [
    {"context": one["context"], "qas": [{"id": f"q{i}"} | {key: one[key] for key in keys}]}
    for i, one in enumerate(records)
  ]
  _text(path, json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))


def _conll(path: pathlib.Path, task: Task, records: list[dict], labelled: bool) -> None:
  sentences = [zip(one["words"], one["tags"], strict=True) for one in records]
  _text(path, "\n".join("".join(f"{word} {tag if labelled else ''}\n" for word, tag in some) for some in sentences))


def _race(path: pathlib.Path, task: Task, records: list[dict], labelled: bool) -> None:
  for i, one in enumerate(records):
    group = task.groups[i % 2]
    answers = {"answers": ["ABC"[one["label"]]]} if labelled else {}
    passage = {"id": f"{group}{i}.txt", "article": one["context"], "questions": ["the _"], "options": [one["options"]]}
    _text(path / group / f"{i}.txt", json.dumps(passage | answers))


def _text(path: pathlib.Path, text: str) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text)


_LAYOUTS = {"table": _table, "squad": _squad, "conll": _conll, "race": _race}


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


def changed(config: ConfigDict) -> dict:
  """The fields of a fine-tuning run that differ from the defaults, by dotted name."""
  default = dict(flat(base.get_config("task")))
  return {name: value for name, value in flat(config) if value != default[name]}


def flat(config: ConfigDict, before: str = ""):
  """Yields (dotted name, value) of every field."""
  for name, value in config.items():
    if isinstance(value, ConfigDict):
      yield from flat(value, f"{before}{name}.")
    else:
      yield before + name, value


STILL = {"model__hidden_dropout": 0.0, "model__attention_dropout": 0.0, "head__dropout": 0.0}


def run(workdir: pathlib.Path, config: ConfigDict, devices: int = 1) -> list[dict]:
  """Runs it on the first `devices` devices; returns its records without what the clock decides."""
  seen = jax.devices()[:devices]
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(jax, "devices", lambda: seen)
    train.train(config, str(workdir))
  return series(workdir)
