"""The examples of a task, from its official files or from TFDS. No TensorFlow.

Files may have a byte-order mark or Windows line ends (a note says so). GLUE's tables have no quoting: a quote is text,
and a tab separates, always. Whatever is wrong is named with its file and line.
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Callable, Iterable

from data.tasks import files, tfds_sets
from data.tasks import tags as tag_schemes
from data.tasks.examples import Example, TagExample, TextExample
from data.tasks.records import Labels, Record, check_label, from_record, list_of
from data.tasks.table import Task

TFDS = "tfds:"
DOCUMENT = "-DOCSTART-"


def read(
  task: Task, source: str | pathlib.Path, split: str, *, labelled: bool | None = None, data_dir: str | None = None
) -> list[Example]:
  """Reads one split.

  Args:
    task: a row of TASKS, or `custom(…)`.
    source: the folder with the official files, or the root over the tasks' folders, or one file; or "tfds:" and a data
      set's name in TFDS ("tfds:" alone is the task's own).
    split: one of task.files: "train", "dev", "test"; MNLI has "dev_mismatched" and "test_mismatched" too.
    labelled: an example without a label is an error; None = in all splits but test sets.
    data_dir: where TFDS keeps its data sets.

  Raises:
    FileNotFoundError: no such file; names the ones sought.
    ValueError: a file that is not what it must be; names file, line and what to do.
  """
  if split not in task.files:
    raise ValueError(f"task {task.name} has no split {split!r}; it has {', '.join(task.files)}")
  labelled = not split.startswith("test") if labelled is None else labelled
  labels = "needed" if labelled else "optional"
  if str(source).startswith(TFDS):
    where, examples = source, _from_tfds(task, str(source).removeprefix(TFDS), split, labels, data_dir)
  else:
    path = find_file(task, pathlib.Path(source), split)
    where, examples = path if path.is_dir() else f"{path}:1", read_file(task, path, labels)
  if not examples:
    raise ValueError(f"{where}: the {split} split of task {task.name} holds no examples")
  return examples


def find_file(task: Task, source: pathlib.Path, split: str) -> pathlib.Path:
  """Returns the file (a folder, for some tasks) of a split: `source` itself, in it, or in the task's folder of it."""
  if source.is_file():
    return source
  folders = [source, source / task.folder] if task.folder else [source]
  names = [*task.files[split], f"{split}.jsonl"]
  sought = [folder / name for name in dict.fromkeys(names) for folder in folders]
  found = [path for path in dict.fromkeys(sought) if path.exists()]
  if not found:
    raise FileNotFoundError(
      f"no {split} split of task {task.name} in {source}: neither {' nor '.join(map(str, dict.fromkeys(sought)))}"
    )
  if len(found) > 1:
    files.note(
      f"{found[0]} is the {split} split; {', '.join(path.name for path in found[1:])} is there, too, and not read"
    )
  return found[0]


def read_file(task: Task, path: pathlib.Path, labels: Labels = "optional") -> list[Example]:
  """Reads a file by its kind: .jsonl is JSON lines for every task; else as the task's layout has it.

  Args:
    task, path: what is read.
    labels: see `records.Labels`; CoNLL's tags and IMDB's folders are read in any case.

  Raises:
    ValueError: see `read`.
  """
  if path.suffix == ".jsonl":
    return _distinct(_from_records(task, files.json_lines(path), labels))
  return _distinct(_LAYOUTS[task.layout](task, path, labels))


def _distinct(examples: list[Example]) -> list[Example]:
  """The examples; raises ValueError if two have one id."""
  seen = {}
  for example in examples:
    if (before := seen.setdefault(example.id, example)) is not example:
      advice = "give each its own, or leave ids out and they are numbered"
      raise ValueError(f"{example.where}: the id {example.id!r} is also that of {before.where}; {advice}")
  return examples


def with_labels(task: Task, examples: Iterable[Example]) -> Task:
  """Returns the task with the labels that the (training) examples have, sorted, if it names none.

  Tags get both B- and I- of each type, whichever were met.
  """
  if task.labels or not task.is_labelled_by_name:
    return task
  if task.kind == "tagging":
    kinds = sorted({tag[2:] for e in examples for tag in e.tags or () if tag != "O"})
    return dataclasses.replace(task, labels=("O", *(f"{prefix}-{kind}" for kind in kinds for prefix in "BI")))
  return dataclasses.replace(task, labels=tuple(sorted({e.label for e in examples if e.label is not None})))


def _table(task: Task, path: pathlib.Path, labels: Labels) -> list[Example]:
  rows_of = files.csv_rows if path.suffix == ".csv" else files.tsv
  rows = rows_of(path, task, labels == "needed")
  return _from_records(task, rows, labels)


def _from_records(task: Task, rows: Iterable[tuple[str, Record]], labels: Labels) -> list[Example]:
  examples = []
  for where, record in rows:
    examples += from_record(task, record, str(len(examples)), where, labels)
  return examples


def _folders(task: Task, path: pathlib.Path, labels: Labels) -> list[Example]:
  """A folder for each class, a file for each text (IMDB)."""
  examples = []
  for label in task.labels:
    if not (path / label).is_dir():
      raise FileNotFoundError(f"{path / label}: no such folder; task {task.name} keeps the class {label!r} there")
    for file in sorted((path / label).glob("*.txt"), key=_natural):
      text = " ".join(files.read_text(file).replace("<br />", " ").split())
      examples.append(TextExample(f"{label}/{file.stem}", (text,), label, f"{file}:1"))
  return examples


def _race(task: Task, path: pathlib.Path, labels: Labels) -> list[Example]:
  """A folder for each level; in it a file for each passage, or all.txt with a passage a line."""
  if path.is_file():
    return _from_records(task, files.json_lines(path), labels)
  examples = []
  for group in task.groups:
    folder = path / group
    found = sorted((f for f in folder.glob("*.txt") if f.name != "all.txt"), key=_natural) or [folder / "all.txt"]
    if not found[0].exists():
      raise FileNotFoundError(f"{folder}: neither passages (1.txt …) nor all.txt")
    records = ((where, record | {"group": group}) for file in found for where, record in files.json_lines(file))
    examples += _from_records(task, records, labels)
  return examples


def _natural(path: pathlib.Path) -> tuple[int, int, str]:
  digits = path.stem.split("_")[0]
  return (0, int(digits), path.stem) if digits.isdecimal() else (1, 0, path.stem)


def _conll(task: Task, path: pathlib.Path, labels: Labels) -> list[Example]:
  """A word a line, columns separated by white space, the tag last; a blank line ends a sentence."""
  examples, sentence, width = [], [], 0

  def finish():
    if not sentence:
      return
    where, words = f"{path}:{sentence[0][0]}", tuple(fields[0] for _, fields in sentence)
    found = None
    if width > 1:
      wheres = [f"{path}:{i}" for i, _ in sentence]
      found = tag_schemes.to_iob2([fields[-1] for _, fields in sentence], wheres)
      for at, tag in zip(wheres, found, strict=True):
        check_label(task, "tag", tag, at)
    examples.append(TagExample(str(len(examples)), words, found, where))
    sentence.clear()

  for i, line in files.lines(path):
    fields = [field for field in re.split("[ \t]+", line) if field]  # other white space may be a word
    if not fields or fields[0] == DOCUMENT:
      finish()
      continue
    width = width or len(fields)
    if len(fields) != width:
      raise ValueError(f"{path}:{i}: {len(fields)} columns, where the file's first word has {width}; mend the line")
    if width == 1 and labels == "needed":
      raise ValueError(f"{path}:{i}: a word without a tag; columns are the word first and its tag last")
    sentence.append((i, fields))
  finish()
  return examples


def _squad(task: Task, path: pathlib.Path, labels: Labels) -> list[Example]:
  text = files.read_text(path)
  try:
    content = json.loads(text)
  except json.JSONDecodeError as error:
    raise ValueError(f"{path}:{error.lineno}: no JSON: {error.msg} (column {error.colno})") from None
  if not isinstance(content, dict) or "data" not in content:
    raise ValueError(f'{path}:1: no \'data\'; SQuAD\'s files are {{"version": …, "data": […]}}')
  line_of = _line_finder(text)
  examples = []

  def inner(name: str, outer: dict) -> list[dict]:
    where = f"{path}:{line_of()}"
    found = list_of(outer.get(name), name, where)
    for one in found:
      if not isinstance(one, dict):
        raise ValueError(f"{where}: in {name!r} an object {{…}} is needed, not {type(one).__name__}")
    return found

  for article in inner("data", content):
    for paragraph in inner("paragraphs", article):
      for question in inner("qas", paragraph):
        number = question.get("id", len(examples))
        where = f"{path}:{line_of(number)}"
        record = question | {"context": paragraph.get("context"), "title": article.get("title")}
        examples += from_record(task, record, str(len(examples)), where, labels)
  return examples


def _line_finder(text: str) -> Callable[..., int]:
  """The line of a question's id, or of the last that was found; the file's questions are asked for in order. (Most
  files are a single line.)"""
  at, line = 0, 1

  def line_of(number: object = None) -> int:
    nonlocal at, line
    found = -1 if number is None else text.find(json.dumps(number), at + 1)
    if found >= 0:
      line += text.count("\n", at, found)
      at = found
    return line

  return line_of


def _from_tfds(task: Task, name: str, split: str, labels: Labels, data_dir: str | None) -> list[Example]:
  name = name or task.tfds
  if not name:
    raise ValueError(f"task {task.name} is not in TFDS; give the folder with its official files")
  names = [(f"{name}/{g}", g) for g in task.groups] if name == task.tfds and task.groups else [(name, "")]
  examples = []
  for full, group in names:
    own = {"group": group} if group else {}
    for i, record in enumerate(tfds_sets.records(task, full, split, data_dir)):
      examples += from_record(task, record | own, str(len(examples)), f"{full} {split}:{i}", labels)
  return _distinct(examples)


_LAYOUTS = {
  "table": _table,
  "swag": _table,
  "folders": _folders,
  "race": _race,
  "conll": _conll,
  "squad": _squad,
}
