"""Files of text, tables and JSON lines as records, each with its file and line.

A byte-order mark or Windows line ends are mended, and a note says so. Whatever is wrong is named with file and line.
"""

import codecs
import csv
import io
import itertools
import json
import pathlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from data.tasks.records import Record
from data.tasks.table import Task

_GZIP = b"\x1f\x8b"  # what such a file begins with
_LONGEST = 1 << 30  # characters of a field of a CSV file; Python's own limit is 131,072


def read_text(path: pathlib.Path) -> str:
  """The text of a file, without a byte-order mark (a note says if there was one).

  Raises:
    ValueError: it is empty, or not UTF-8.
  """
  raw = path.read_bytes()
  if not raw.removeprefix(codecs.BOM_UTF8).strip():
    raise ValueError(f"{path}:1: the file is empty")
  try:
    text = raw.decode()
  except UnicodeDecodeError as error:
    line = raw[: error.start].count(b"\n") + 1
    if raw.startswith(_GZIP):
      raise ValueError(f"{path} is compressed; unpack it: gunzip") from None
    raise ValueError(f"{path}:{line}: not UTF-8; convert it: iconv -t UTF-8") from None
  if text.startswith("\ufeff"):
    note(f"{path}:1: a byte-order mark, left out")
    text = text[1:]
  return text


def note(text: str) -> None:
  """Says what was mended, on stderr."""
  print(f"note: {text}", file=sys.stderr)


def lines(path: pathlib.Path) -> Iterator[tuple[int, str]]:
  """Yields (number, line) of a file, without the line end; blank lines at the end of the file are none."""
  yield from enumerate(plain_ends(path, read_text(path).rstrip("\r\n")).split("\n"), 1)


def plain_ends(path: pathlib.Path, text: str) -> str:
  """The text with "\n" for Windows' line ends; a note says so if there were any."""
  first = text.find("\r\n")
  if first < 0:
    return text
  note(f"{path}:{text.count(chr(10), 0, first) + 1}: Windows line ends (CRLF), read as plain ones")
  return text.replace("\r\n", "\n")


def tsv(path: pathlib.Path, task: Task, labelled: bool) -> Iterator[tuple[str, Record]]:
  """Yields (file and line, record) of a table with tabs, without quoting."""
  rows = ((i, line.split("\t")) for i, line in lines(path))
  advice = "a tab always separates, quotes are text and a text has no line end: write blanks instead"
  return _rows(path, task, labelled, rows, advice)


def csv_rows(path: pathlib.Path, task: Task, labelled: bool) -> Iterator[tuple[str, Record]]:
  """Yields (file and line, record) of a table with commas, fields quoted where they must be."""
  advice = "a field with a comma, a quote or a line end is quoted, and a quote in it doubled"

  def rows():
    csv.field_size_limit(_LONGEST)
    text = plain_ends(path, read_text(path).rstrip("\r\n"))
    reader, at = csv.reader(io.StringIO(text, newline=""), strict=True), 1
    try:
      for row in reader:
        if row:
          yield at, row
        at = reader.line_num + 1
    except csv.Error as error:
      raise ValueError(f"{path}:{at}: {error}; {advice}") from None

  return _rows(path, task, labelled, rows(), advice)


def _rows(
  path: pathlib.Path, task: Task, labelled: bool, rows: Iterable[tuple[int, list[str]]], advice: str
) -> Iterator[tuple[str, Record]]:
  """Yields (where, record) of each row but the header, after checking that it has the header's fields."""
  rows = iter(rows)
  first, columns = next(rows)
  columns = [name.strip() for name in columns]
  texts = ("sent1", "sent2") if task.layout == "swag" else task.texts
  needed = [*texts, task.label] if labelled else texts
  if task.header and not set(texts) <= set(columns):
    rows = itertools.chain([(first, columns)], rows)
    columns = list(task.header)
  elif missing := [name for name in needed if name not in columns]:
    raise ValueError(f"{path}:{first}: no column {missing[0]!r}; the first line names {', '.join(map(repr, columns))}")
  if twice := [name for name in (*texts, task.label) if columns.count(name) > 1]:
    raise ValueError(f"{path}:{first}: two columns {twice[0]!r}; give one of them another name")
  skipped = []
  for i, row in rows:
    if len(row) != len(columns):
      if task.broken == "skip":
        skipped.append(i)
        continue
      if row == [""]:
        raise ValueError(f"{path}:{i}: a blank line in a table; remove it")
      raise ValueError(f"{path}:{i}: {len(row)} fields, where {len(columns)} columns are named; {advice}")
    yield f"{path}:{i}", dict(zip(columns, row, strict=True))
  if skipped:
    some = ", ".join(map(str, skipped[:5]))
    note(f"{path}:{skipped[0]}: {len(skipped)} lines with another number of fields were left out (lines {some})")


def json_lines(path: pathlib.Path) -> Iterator[tuple[str, Record]]:
  """Yields (file and line, record) of a file of JSON lines."""
  for i, line in lines(path):
    if line.strip():
      yield f"{path}:{i}", parse_json(line, f"{path}:{i}")


def parse_json(text: str, where: str) -> dict[str, Any]:
  """An object of JSON.

  Raises:
    ValueError: no JSON, or something else than an object; names `where`.
  """
  try:
    value = json.loads(text)
  except json.JSONDecodeError as error:
    raise ValueError(f"{where}: no JSON: {error.msg} (column {error.colno})") from None
  if not isinstance(value, dict):
    raise ValueError(f"{where}: an object {{…}} is needed, not {type(value).__name__}")
  return value
