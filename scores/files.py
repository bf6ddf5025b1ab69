"""Prediction files, written and read: GLUE's TSVs, SQuAD's JSON, CoNLL's columns, and JSON lines for any task.

Every reader raises ValueError, naming the file and the line, for what it cannot read; files may have a byte-order mark
or Windows line ends.
"""

import dataclasses
import json
import math
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from scores.spans import Answer

# What gluebenchmark.com wants the file of a task's test set to be called.
_GLUE_FILES = {
  "cola": "CoLA.tsv",
  "sst2": "SST-2.tsv",
  "mrpc": "MRPC.tsv",
  "stsb": "STS-B.tsv",
  "qqp": "QQP.tsv",
  "mnli": "MNLI-m.tsv",
  "mnli_mismatched": "MNLI-mm.tsv",
  "qnli": "QNLI.tsv",
  "rte": "RTE.tsv",
  "wnli": "WNLI.tsv",
  "ax": "AX.tsv",
}
SQUAD_FILES = ("predictions.json", "nbest_predictions.json", "null_odds.json")  # as BERT's run_squad.py
LOGITS, LOG_PROBABILITIES = ("start_logit", "end_logit"), ("start_log_prob", "end_log_prob")  # BERT's, XLNet's names


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
  """A line of a prediction file.

  Attributes:
    value: a label's name, a number, the tags of a sentence, or an answer's text.
    probabilities: of each label, if the file has them.
  """

  value: str | float | tuple[str, ...]
  probabilities: Mapping[str, float] | Sequence[float] | None = None  # by name, or in the labels' order


def labels_file(task: str, split: str = "test") -> str:
  """The leaderboard's name for a task's file of labels ("CoLA.tsv"); NAME.tsv for tasks that are not of GLUE."""
  mismatched = "_mismatched" if split.endswith("_mismatched") else ""
  return _GLUE_FILES.get(task + mismatched, f"{task}.tsv")


def write_labels(
  path: str | pathlib.Path,
  ids: Iterable[str],
  predictions: Iterable[str | float],
  bounds: tuple[float, float] | None = None,
) -> None:
  """Writes GLUE's format: a header `index`, `prediction`, then a line an example.

  Args:
    path: of the file; its folder is made.
    ids: of the examples.
    predictions: labels' names, or numbers, which get three decimals.
    bounds: numbers are kept within (STS-B: 0 to 5).

  Raises:
    ValueError: a tab or a line end in an id or a label, or not as many of both.
  """
  least, most = bounds or (-math.inf, math.inf)
  lines = ["index\tprediction"]
  for key, value in zip(ids, predictions, strict=True):
    shown = value if isinstance(value, str) else f"{min(max(float(value), least), most):.3f}"
    if any(mark in field for field in (key, shown) for mark in "\t\r\n"):
      raise ValueError(f"{path}: a tab or a line end in {key!r} or its prediction {shown!r}")
    lines.append(f"{key}\t{shown}")
  _write(path, "\n".join(lines) + "\n")


def read_labels(path: str | pathlib.Path) -> dict[str, str]:
  """Returns the predictions of a GLUE file by id (`index`); the columns may stand in any order."""
  lines = _lines(path)
  header = lines[0].split("\t") if lines else []
  for name in ("index", "prediction"):
    if name not in header:
      raise ValueError(f"{path}:1: no column {name!r}; the first line must name the columns index and prediction")
  result = {}
  for number, line in enumerate(lines[1:], 2):
    fields = line.split("\t")
    if len(fields) != len(header):
      raise ValueError(f"{path}:{number}: {len(fields)} fields, and the header has {len(header)}")
    row = dict(zip(header, fields, strict=True))
    if row["index"] in result:
      raise ValueError(f"{path}:{number}: a second prediction for {row['index']}")
    result[row["index"]] = row["prediction"]
  return result


def read_probabilities(path: str | pathlib.Path) -> np.ndarray:
  """float64 [examples, classes] of BERT's test_results.tsv: a line an example, the probability of each class."""
  rows = []
  for number, line in enumerate(_lines(path), 1):
    try:
      rows.append([float(x) for x in line.split("\t")])
    except ValueError:
      raise ValueError(f"{path}:{number}: not numbers separated by tabs") from None
    if not all(map(math.isfinite, rows[-1])):
      raise ValueError(f"{path}:{number}: a probability that is no number")
    if len(rows[-1]) != len(rows[0]):
      raise ValueError(f"{path}:{number}: {len(rows[-1])} numbers, and the first line has {len(rows[0])}")
  if not rows:
    raise ValueError(f"{path}: empty")
  return np.array(rows)


def write_squad(
  folder: str | pathlib.Path,
  answers: Mapping[str, Answer],
  threshold: float | None = None,
  score_names: tuple[str, str] = LOGITS,
) -> None:
  """Writes predictions.json, nbest_predictions.json and, of models that may not answer, null_odds.json.

  Args:
    folder: is made.
    answers: by the question's id.
    threshold: odds above it make a prediction ""; None = always the best text, as a search of thresholds needs it.
    score_names: what the two scores of an entry are called.
  """
  decide = lambda answer: answer.text if threshold is None else answer.decided(threshold)
  entry = lambda x: dict(
    zip(("text", "probability", *score_names), (x.text, x.probability, x.start_score, x.end_score), strict=True)
  )
  odds = {key: answer.null_odds for key, answer in answers.items() if answer.null_odds is not None}
  contents = (
    {key: decide(answer) for key, answer in answers.items()},
    {key: [entry(x) for x in answer.nbest] for key, answer in answers.items()},
    odds,
  )
  for name, content in zip(SQUAD_FILES, contents, strict=True):
    if name != "null_odds.json" or odds:
      write_json(pathlib.Path(folder) / name, content)


def write_json(path: str | pathlib.Path, content: Mapping[str, object]) -> None:
  """Writes an object by question, as SQuAD's files are."""
  _write(path, json.dumps(content, indent=4, ensure_ascii=False, allow_nan=False) + "\n")


def read_texts(path: str | pathlib.Path) -> dict[str, str]:
  """The texts of a predictions.json by id; of an nbest_predictions.json, each question's best that is not empty."""
  content = _object(path)
  if any(isinstance(value, list) for value in content.values()):
    nbest = read_nbest(path)
    return {key: next((text for text, _ in entries if text), "") for key, entries in nbest.items()}
  for key, value in content.items():
    if not isinstance(value, str):
      raise ValueError(f"{path}: the prediction of {key} is not a text")
  return content


def read_nbest(path: str | pathlib.Path) -> dict[str, list[tuple[str, float]]]:
  """(text, probability) of the n best of each id in an nbest_predictions.json."""
  result = {}
  for key, entries in _object(path).items():
    try:
      result[key] = [(str(entry["text"]), float(entry["probability"])) for entry in entries]
    except (TypeError, KeyError, ValueError):
      raise ValueError(
        f"{path}: {key} has no list of entries with text and probability, as in nbest_predictions.json"
      ) from None
  return result


def read_odds(path: str | pathlib.Path) -> dict[str, float]:
  """The null odds by id of a null_odds.json (or the official na_prob.json)."""
  content = _object(path)
  for key, value in content.items():
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
      raise ValueError(f"{path}: the null odds of {key} are not a number")
  return {key: float(value) for key, value in content.items()}


def write_tags(
  path: str | pathlib.Path,
  words: Iterable[Sequence[str]],
  predictions: Iterable[Sequence[str]],
  targets: Iterable[Sequence[str]] | None = None,
) -> None:
  """Writes what conlleval.pl reads: word, true tag (if known) and predicted tag on a line, a blank line a sentence."""
  lines = []
  for sentence in zip(words, *([] if targets is None else [targets]), predictions, strict=True):
    lines += [" ".join(fields) + "\n" for fields in zip(*sentence, strict=True)] + ["\n"]
  _write(path, "".join(lines))


def read_tags(path: str | pathlib.Path) -> list[tuple[str, ...]]:
  """The predicted tags, in the last column, of each sentence of a file of columns; -DOCSTART- lines do not count."""
  sentences, tags = [], []
  for number, line in enumerate([*_lines(path), ""], 1):
    fields = [field for field in re.split("[ \t]+", line) if field]
    if fields and fields[0] != "-DOCSTART-":
      if len(fields) < 2:
        raise ValueError(f"{path}:{number}: a word without a tag")
      tags.append(fields[-1])
    elif tags:
      sentences.append(tuple(tags))
      tags = []
  return sentences


def write_lines(path: str | pathlib.Path, ids: Iterable[str], records: Iterable[Mapping[str, object]]) -> None:
  """Writes JSON lines: each record, behind its `id`."""
  rows = [{"id": key} | dict(one) for key, one in zip(ids, records, strict=True)]
  _write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def read_lines(path: str | pathlib.Path) -> dict[str, Prediction]:
  """Predictions by id of JSON lines: `id`, `prediction` and, if there, `probabilities` (of each label)."""
  result = {}
  for number, line in enumerate(_lines(path), 1):
    try:
      row = json.loads(line)
    except json.JSONDecodeError as error:
      raise ValueError(f"{path}:{number}: not JSON: {error}") from None
    for name in ("id", "prediction"):
      if not isinstance(row, dict) or name not in row:
        raise ValueError(f"{path}:{number}: not an object with the fields id and prediction")
    key, value = str(row["id"]), row["prediction"]
    if value is None or isinstance(value, dict):
      kind = "null" if value is None else "an object"
      raise ValueError(f"{path}:{number}: the prediction is {kind}, not a label, a number, a text or a list of tags")
    if key in result:
      raise ValueError(f"{path}:{number}: a second prediction for {key}")
    result[key] = Prediction(tuple(value) if isinstance(value, list) else value, row.get("probabilities"))
  return result


def _lines(path: str | pathlib.Path) -> list[str]:
  try:
    # Only these end a line; str.splitlines would also cut at form feeds and Unicode's separators inside fields.
    text = pathlib.Path(path).read_text(encoding="utf-8-sig")
  except UnicodeDecodeError as error:
    raise ValueError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
  lines = text.split("\n")  # reading has made \r\n and \r to \n
  return lines[:-1] if lines[-1] == "" else lines


def _object(path: str | pathlib.Path) -> dict:
  try:
    content = json.loads("\n".join(_lines(path)))
  except json.JSONDecodeError as error:
    raise ValueError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
  if not isinstance(content, dict):
    raise ValueError(f"{path}: not a JSON object with the questions' ids as names")
  return content


def _write(path: str | pathlib.Path, text: str) -> None:
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  unfinished = path.with_name(path.name + ".part")
  unfinished.write_text(text, encoding="utf-8", newline="\n")
  os.replace(unfinished, path)
