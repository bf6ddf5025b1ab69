"""Scores of prediction files against a task's gold labels, as the official scripts give them.

  python -m tools.evaluate --task=mrpc --gold=glue/MRPC --predictions MRPC.tsv
  python -m tools.evaluate --task=squad2 --gold=dev-v2.0.json --predictions predictions.json --null_odds null_odds.json
  python -m tools.evaluate --task=conll2003 --gold=conll2003 --split=test --predictions tags.txt --json

Prediction files: GLUE's (index, prediction), BERT's test_results.tsv (probabilities, in the examples' order), columns
with the tag last, SQuAD's predictions.json or nbest_predictions.json, or JSON lines with `id`, `prediction` and perhaps
`probabilities`. Several files are joined into one prediction first: by mean probability if all have any (SQuAD: of the
n best), else by vote; numbers by their mean. `--output` writes the joined predictions.

SQuAD's scores are percent, all others fractions. With null odds, SQuAD 2.0's best thresholds are searched, too: those
named best_ as the official script does it, and `threshold`, which gives the best F1 when predicting.
"""

import argparse
import collections
import dataclasses
import json
import math
import pathlib
import sys
from collections.abc import Callable, Sequence

import numpy as np

import scores
from data.tasks import readers, table
from data.tasks.examples import Example
from data.tasks.table import Task
from scores import ensembles, entities, files, squad
from tools import cli


def read_classes(task: Task, examples: Sequence[Example], path: pathlib.Path) -> tuple[list[str], np.ndarray | None]:
  """Returns a label's name for each example and, if the file has them, probabilities [examples, labels]."""
  names = list(task.labels) or [str(i) for i in range(max(len(e.options) for e in examples))]
  if path.suffix == ".jsonl":
    rows = _by_id(path, files.read_lines(path), examples)
    values = [str(row.value) for row in rows]
    given = [row.probabilities for row in rows]
    own = [len(e.options) if task.kind == "choice" else len(names) for e in examples]
    table = None
    if None not in given:
      table = np.array([_in_order(path, x, names, n) for x, n in zip(given, own, strict=True)])
  elif _has_header(path):
    values, table = _by_id(path, files.read_labels(path), examples), None
  else:
    table = files.read_probabilities(path)
    if table.shape != (len(examples), len(names)):
      shape = f"{len(examples)} lines of {len(names)} probabilities"
      raise ValueError(f"{path}: {table.shape[0]} lines of {table.shape[1]} numbers, and the task needs {shape}")
    values = [names[i] for i in table.argmax(axis=1)]
  if task.kind == "choice":  # options by letter, as RACE has them
    values = [str(ord(x) - ord("A")) if len(x) == 1 and "A" <= x <= "Z" else x for x in values]
  if wrong := [x for x in values if x not in names]:
    raise ValueError(f"{path}: prediction {wrong[0]!r} is not one of {', '.join(names)}")
  if task.kind == "choice":
    for x, e in zip(values, examples, strict=True):
      if int(x) >= len(e.options):
        raise ValueError(f"{path}: prediction {x} for {e.id}, which has {len(e.options)} options")
  return values, table


def read_numbers(task: Task, examples: Sequence[Example], path: pathlib.Path) -> list[float]:
  """Returns a number for each example."""
  is_lines = path.suffix == ".jsonl"
  rows = {key: row.value for key, row in files.read_lines(path).items()} if is_lines else files.read_labels(path)
  try:
    return [float(x) for x in _by_id(path, rows, examples)]
  except (TypeError, ValueError) as error:
    raise ValueError(f"{path}: {error}") from None


def read_tags(task: Task, examples: Sequence[Example], path: pathlib.Path) -> list[tuple[str, ...]]:
  """Returns the tags of each sentence: by id from JSON lines, else in order."""
  if path.suffix == ".jsonl":
    found = [row.value for row in _by_id(path, files.read_lines(path), examples)]
  else:
    found = files.read_tags(path)
  if len(found) != len(examples):
    raise ValueError(f"{path}: {len(found)} sentences, and the gold file has {len(examples)}")
  for tags, example in zip(found, examples, strict=True):
    if not isinstance(tags, tuple) or len(tags) != len(example.words):
      raise ValueError(f"{path}: not a tag for each of the {len(example.words)} words of sentence {example.id}")
  return found


def _join_classes(task: Task, read: Sequence[tuple[list[str], np.ndarray | None]]) -> list[str]:
  values, tables = zip(*read, strict=True)
  if len(values) == 1:
    return values[0]
  if any(table is None for table in tables):
    return ensembles.vote(values)
  names = task.labels or [str(i) for i in range(tables[0].shape[1])]
  return [names[i] for i in ensembles.mean(tables).argmax(axis=1)]


def _join_tags(task: Task, read: Sequence[list[tuple[str, ...]]]) -> list[tuple[str, ...]]:
  return [tuple(ensembles.vote(sentence)) for sentence in zip(*read, strict=True)]


def join_texts(paths: Sequence[pathlib.Path]) -> dict[str, str]:
  """The text of each question: of one file, or the likeliest of several files of n best."""
  if len(paths) == 1:
    path = paths[0]
    if path.suffix != ".jsonl":
      return files.read_texts(path)
    return {key: str(row.value) for key, row in files.read_lines(path).items()}
  if lines := [path for path in paths if path.suffix == ".jsonl"]:
    raise ValueError(f"{lines[0]} has one answer a question; several files are joined by their nbest_predictions.json")
  joined = ensembles.mean_nbest([files.read_nbest(path) for path in paths])
  return {key: next((text for text, _ in entries if text), "") for key, entries in joined.items()}


def evaluate_examples(task: Task, examples: Sequence[Example], args: argparse.Namespace) -> dict[str, float]:
  """Scores classes, choices, numbers and tags."""
  read, join = _KINDS[task.kind]
  predictions = join(task, [read(task, examples, path) for path in args.predictions])
  if args.output:
    _write(task, examples, predictions, args.output)
  targets = [e.tags if task.kind == "tagging" else e.label for e in examples]
  if missing := [e for e, target in zip(examples, targets, strict=True) if target is None]:
    if args.output:
      return {}
    raise ValueError(f"{missing[0].where}: no label to score against; --output joins predictions without scores")
  if task.kind == "classification":
    number = {name: i for i, name in enumerate(task.labels)}
    predictions, targets = [number[x] for x in predictions], [number[x] for x in targets]
  elif task.kind == "choice":
    predictions = [int(x) for x in predictions]
  groups = [e.group for e in examples] if task.kind == "choice" and any(e.group for e in examples) else None
  found = scores.score(task.scores, predictions, targets, groups)
  if task.kind == "tagging":
    for kind, rates in entities.entity_report(predictions, targets).items():
      found |= {f"{metric}_{kind}": value for metric, value in rates.items()}
  return found


def evaluate_answers(task: Task, examples: Sequence[Example], args: argparse.Namespace) -> dict[str, float]:
  """Scores answers to questions."""
  if task.scores == ("squad1",) and (args.null_odds or args.threshold is not None):
    raise ValueError(f"--null_odds and --threshold are of squad2; task {task.name} always has an answer")
  if args.threshold is not None and not args.null_odds:
    raise ValueError("--threshold needs --null_odds")
  predictions = join_texts(args.predictions)
  odds = ensembles.mean_odds([files.read_odds(path) for path in args.null_odds]) if args.null_odds else None
  if args.output:
    chosen = predictions
    if args.threshold is not None:
      chosen = squad.apply_threshold(predictions, odds, args.threshold)
    files.write_json(args.output, chosen)
  targets = {e.id: [text for text, _ in e.answers] for e in examples}
  if unknown := [e for e in examples if not e.answers and e.impossible is None]:
    if args.output:
      return {}
    raise ValueError(f"{unknown[0].where}: no answer to score against; --output joins predictions without scores")
  _note(len(predictions.keys() - targets.keys()), "predictions are for questions that the gold file does not have")
  if "squad2" in task.scores:
    found = squad.squad2(predictions, targets, odds, args.threshold)
    return found if odds is None else found | {"threshold": squad.best_threshold(predictions, targets, odds)}
  _note(len(targets.keys() - predictions.keys()), "questions without a prediction count as wrong")
  return scores.score(task.scores, predictions, targets)


_KINDS: dict[str, tuple[Callable, Callable]] = {
  "classification": (read_classes, _join_classes),
  "choice": (read_classes, _join_classes),
  "regression": (read_numbers, lambda task, read: ensembles.mean(read).tolist()),
  "tagging": (read_tags, _join_tags),
}


def _by_id(path: pathlib.Path, rows: dict, examples: Sequence[Example]) -> list:
  """The rows in the examples' order."""
  ids = [e.id for e in examples]
  if len(set(ids)) < len(ids):
    twice = collections.Counter(ids).most_common(1)[0][0]
    raise ValueError(f"the gold file has several examples of the id {twice}, so predictions cannot be told apart")
  if missing := [key for key in ids if key not in rows]:
    raise ValueError(f"{path}: no prediction for {len(missing)} of {len(ids)} examples, the first is {missing[0]}")
  if len(rows) > len(ids):
    other = next(key for key in rows if key not in set(ids))
    raise ValueError(f"{path}: {len(rows)} predictions for {len(ids)} examples; {other} is not in the gold file")
  return [rows[key] for key in ids]


def _in_order(path: pathlib.Path, probabilities, names: Sequence[str], own: int) -> list[float]:
  """The probabilities of the names, of which an example has the first `own`; 0 for the others."""
  try:
    row = [probabilities[name] for name in names[:own]] if isinstance(probabilities, dict) else list(probabilities)
    row = [float(x) for x in row]
  except (KeyError, TypeError, ValueError):
    row = []
  if len(row) != own or not all(map(math.isfinite, row)):
    raise ValueError(f"{path}: probabilities {probabilities!r} are not of the labels {', '.join(names[:own])}")
  return row + [0.0] * (len(names) - own)


def _with_predicted(task: Task, paths: Sequence[pathlib.Path]) -> Task:
  """The task with the gold file's labels and those of the predictions: a model may know classes that a small gold file
  does not have, and a file without labels has none."""
  predicted = set()
  for path in paths:
    if path.suffix == ".jsonl":
      rows = files.read_lines(path).values()
      predicted |= {str(row.value) for row in rows}
      predicted |= {name for row in rows if isinstance(row.probabilities, dict) for name in row.probabilities}
    elif _has_header(path):
      predicted |= set(files.read_labels(path).values())
  if task.labels and (alone := sorted(predicted - set(task.labels))):
    print(f"note: labels that the gold file does not have: {', '.join(alone)}", file=sys.stderr)
  labels = tuple(sorted(predicted.union(task.labels)))
  if not labels:
    raise ValueError(f"{paths[0]} does not say what its probabilities are of; name the classes by --labels")
  return dataclasses.replace(task, labels=labels)


def _has_header(path: pathlib.Path) -> bool:
  """Whether a file of tabs names its columns; one of probabilities has numbers alone."""
  with open(path, encoding="utf-8-sig", errors="replace") as file:
    fields = file.readline().split("\t")
  try:
    return not [float(x) for x in fields]
  except ValueError:
    return True


def _write(task: Task, examples: Sequence[Example], predictions: Sequence, path: pathlib.Path) -> None:
  if task.kind == "tagging":
    files.write_tags(path, [e.words for e in examples], predictions)
  else:
    files.write_labels(path, [e.id for e in examples], predictions, task.bounds)


def _note(count: int, what: str) -> None:
  if count:
    print(f"note: {count} {what}", file=sys.stderr)


def _parse() -> argparse.Namespace:
  parser = cli.parser(__doc__)
  add = parser.add_argument
  add("--task", required=True, help=f"one of {', '.join(table.TASKS)}, or custom")
  add("--gold", required=True, help="the folder with the official files, the gold file itself, or tfds:NAME")
  add("--split", default="dev", help="of the gold file: dev, test … (default: dev)")
  add("--data_dir", help="where TFDS keeps its data sets")
  add("--predictions", required=True, nargs="+", type=pathlib.Path, metavar="FILE")
  add("--null_odds", nargs="+", type=pathlib.Path, default=[], metavar="FILE", help="squad2: null_odds.json")
  add("--threshold", type=float, help="squad2: odds above it mean no answer (without it, predictions stay)")
  add("--output", type=pathlib.Path, help="write the joined predictions here")
  add("--json", action="store_true", help="one JSON object instead of lines")
  custom = parser.add_argument_group("a task of your own (--task=custom)")
  custom.add_argument("--kind", choices=table.KINDS, default="classification")
  custom.add_argument("--texts", nargs="+", default=["sentence"], help="columns with the text or the two texts")
  custom.add_argument("--label", default="label", help="the column with the label")
  custom.add_argument("--labels", nargs="+", default=[], help="the classes, in the order of the model's probabilities")
  custom.add_argument("--scores", nargs="+", default=[], choices=list(scores.SCORES))
  return parser.parse_args()


def main() -> None:
  args = _parse()
  if args.task == "custom":
    task = table.custom(args.kind, texts=args.texts, label=args.label, labels=args.labels, scores=args.scores)
  else:
    task = table.find_task(args.task)
  # Joining predictions needs no labels.
  examples = readers.read(task, args.gold, args.split, labelled=False if args.output else None, data_dir=args.data_dir)
  if task.kind == "classification" and not task.labels:
    task = _with_predicted(readers.with_labels(task, examples), args.predictions)
  found = (evaluate_answers if task.kind == "span" else evaluate_examples)(task, examples, args)
  if args.json:
    finite = {name: None if math.isnan(value) else value for name, value in found.items()}
    print(json.dumps(finite, allow_nan=False))
    return
  for name, value in found.items():
    print(f"{name:<20} {value:.6g}")


if __name__ == "__main__":
  cli.run(main)
