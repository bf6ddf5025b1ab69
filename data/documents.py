"""Documents from files of text: what separates them, and what is refused.

Files are globs on any path that etils understands (local, gs://, s3://, …). A name that ends in `.gz` is unpacked; each
line of a `.jsonl` file is a JSON object; everything else is plain UTF-8 text. Reading is a stream: memory holds one
document. Large files are cut at document boundaries into parts that processes read side by side.
"""

import dataclasses
import glob
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from etils import epath

from data import places

BLANK_LINE, FILE, LINE, JSON = "blank_line", "file", "line", "json:"
_ANY_LINE = 1 << 20  # bytes read at a time while looking for a boundary


@dataclasses.dataclass(frozen=True)
class Format:
  """How bytes become documents.

  Attributes:
    documents: what holds one document: lines up to a `blank_line`, a `file`, a `line`, or `json:FIELD` of a line.
    encoding_errors: `strict` refuses NUL and bytes that are not UTF-8; `replace` reads U+FFFD there, which WordPiece
      drops and SentencePiece takes for a blank.
    max_line_bytes: a longer line is refused; most often the file is something else than the reader was told.
    max_document_bytes: likewise; one document is what memory must hold.
  """

  documents: str = BLANK_LINE
  encoding_errors: str = "strict"
  max_line_bytes: int = 1_000_000
  max_document_bytes: int = 64_000_000

  def __post_init__(self):
    if self.documents not in (BLANK_LINE, FILE, LINE) and not (
      self.documents.startswith(JSON) and len(self.documents) > len(JSON)
    ):
      raise ValueError(f"documents={self.documents!r} is none of blank_line, file, line, json:FIELD")
    if self.encoding_errors not in ("strict", "replace"):
      raise ValueError(f"encoding_errors={self.encoding_errors!r} is neither strict nor replace")
    for name in ("max_line_bytes", "max_document_bytes"):
      if getattr(self, name) < 1:
        raise ValueError(f"{name}={getattr(self, name)} must be at least 1")

  @property
  def field(self) -> str:
    """The field of `json:FIELD`, or ''."""
    return self.documents.removeprefix(JSON) if self.documents.startswith(JSON) else ""


@dataclasses.dataclass(frozen=True)
class Part:
  """Bytes `start` to `stop` of a file (to its end if -1), which begin and end at document boundaries."""

  path: str
  start: int = 0
  stop: int = -1


def find_files(globs: Sequence[str]) -> list[str]:
  """Returns the files that match, sorted, each once.

  Raises:
    FileNotFoundError: a glob that matches nothing.
    ValueError: a folder, or a place that cannot be reached for want of a package.
  """
  found = set()
  for pattern in globs:
    try:
      found.update(map(str, _matches(pattern)))
    except (ImportError, KeyError, NotImplementedError) as error:  # what etils raises
      raise ValueError(f"{pattern} cannot be read: {error}") from None
  return sorted(found)


def _matches(pattern: str) -> list[epath.Path]:
  path = epath.Path(pattern)
  if path.is_dir():
    raise ValueError(f"{pattern} is a folder; name its files, for example '{pattern.rstrip('/')}/*.txt'")
  matches = [path] if path.exists() else [match for match in _glob(pattern) if not match.is_dir()]
  if not matches:
    raise FileNotFoundError(f"no file matches {pattern}")
  return matches


def _glob(pattern: str) -> list[epath.Path]:
  if "://" not in pattern:
    return [epath.Path(path) for path in glob.glob(pattern, recursive=True)]
  parts = pattern.split("/")
  fixed = next((i for i, part in enumerate(parts) if re.search(r"[*?\[]", part)), len(parts))
  return list(epath.Path("/".join(parts[:fixed])).glob("/".join(parts[fixed:]))) if fixed < len(parts) else []


def cut(files: Sequence[str], fmt: Format, part_bytes: int) -> list[tuple[Part, ...]]:
  """Cuts files into groups of parts, each group of about `part_bytes`, in order.

  A large file is cut where a document ends; small files share a group. Compressed files stay whole, and so does
  everything if a file is a document.
  """
  groups, size = [[]], 0
  for pieces in places.each(lambda path: list(_cut_file(path, fmt, part_bytes)), files):
    for part, part_size in pieces:
      if groups[-1] and size + part_size > part_bytes:
        groups.append([])
        size = 0
      groups[-1].append(part)
      size += part_size
  return [tuple(group) for group in groups]


def _cut_file(path: str, fmt: Format, part_bytes: int) -> Iterator[tuple[Part, int]]:
  length = epath.Path(path).stat().length
  if path.endswith(".gz") or fmt.documents == FILE or length <= part_bytes:
    yield Part(path), length
    return
  with epath.Path(path).open("rb") as file:
    start = 0
    while start < length:
      stop = length if start + part_bytes >= length else _boundary(file, start + part_bytes, fmt)
      yield Part(path, start, stop), stop - start
      start = stop


def _boundary(file: BinaryIO, position: int, fmt: Format) -> int:
  """The first document boundary behind `position`."""
  file.seek(position)
  whole = False  # `position` may lie inside a line: what is left of that one may only look blank
  while line := file.readline(_ANY_LINE):
    position += len(line)
    ended = line.endswith(b"\n")
    if ended and (fmt.documents != BLANK_LINE or (whole and not line.strip())):
      return position
    whole = ended
  return position


def read(part: Part, fmt: Format) -> Iterator[tuple[str, str]]:
  """Yields (id, text) of each document that is not blank; an id is "FILE:BYTE".

  Raises:
    ValueError: what `Format` refuses; the message names file and line.
  """
  if part.path.removesuffix(".gz").endswith(".jsonl") and not fmt.field:
    raise ValueError(f"{part.path} holds JSON lines; say which field is the text with --documents=json:FIELD")
  start, size, lines = part.start, 0, []
  try:
    for offset, line in _lines(part, fmt):
      content = line.strip()
      if fmt.documents == BLANK_LINE:
        if content:
          start = start if lines else offset
          lines.append(line)
          size += len(line)
        if lines and (not content or size > fmt.max_document_bytes):
          yield from _document(part, fmt, start, lines)
          lines, size = [], 0
      elif fmt.documents == FILE:
        lines.append(line)
        size += len(line)
        if size > fmt.max_document_bytes:
          break
      elif content:
        yield from _document(part, fmt, offset, [line])
    if lines:
      yield from _document(part, fmt, start, lines)
  except (EOFError, zlib.error, gzip.BadGzipFile) as error:
    raise ValueError(f"{part.path} is no intact gzip file ({error}); fetch it again") from None


def _lines(part: Part, fmt: Format) -> Iterator[tuple[int, bytes]]:
  """Yields (offset, line) with the line's end."""
  with epath.Path(part.path).open("rb") as raw:
    file = gzip.GzipFile(fileobj=raw) if part.path.endswith(".gz") else raw
    file.seek(part.start)
    offset = part.start
    while (offset < part.stop or part.stop < 0) and (line := file.readline(fmt.max_line_bytes + 2)):
      if len(line.rstrip(b"\r\n")) > fmt.max_line_bytes:
        raise _error(part, offset, f"longer than {fmt.max_line_bytes} bytes; break it up or raise --max_line_bytes")
      yield offset, line
      offset += len(line)


def _document(part: Part, fmt: Format, offset: int, lines: list[bytes]) -> Iterator[tuple[str, str]]:
  raw = b"".join(lines)
  if len(raw) > fmt.max_document_bytes:
    problem = f"the document that begins here is longer than {fmt.max_document_bytes} bytes"
    raise _error(part, offset, f"{problem}; choose --documents={fmt.documents} otherwise or raise --max_document_bytes")
  text = _decode(raw, part, fmt, offset).removeprefix("\ufeff").replace("\r\n", "\n").strip()
  if fmt.field:
    text = _json_field(text, part, fmt, offset).strip()
  if text:
    yield f"{part.path}:{offset}", text


def _decode(raw: bytes, part: Part, fmt: Format, offset: int) -> str:
  if fmt.encoding_errors == "replace":
    return raw.decode("utf-8", "replace")
  if (nul := raw.find(b"\0")) >= 0:
    raise _error(part, offset + nul, "holds a NUL byte: is it a binary file? --encoding_errors=replace reads it anyway")
  try:
    return raw.decode("utf-8")
  except UnicodeDecodeError as error:
    problem = f"byte 0x{raw[error.start]:02x} is not UTF-8"
    fix = "convert the file, or --encoding_errors=replace reads it anyway"
    raise _error(part, offset + error.start, f"{problem}; {fix}") from None


def _json_field(line: str, part: Part, fmt: Format, offset: int) -> str:
  try:
    record = json.loads(line)
  except ValueError as error:
    raise _error(part, offset, f"not JSON ({error})") from None
  if not isinstance(record, dict) or not isinstance(record.get(fmt.field), str):
    has = f"it has {', '.join(record)}" if isinstance(record, dict) else "it is no object"
    raise _error(part, offset, f"no text in field {fmt.field!r} ({has}); choose --documents=json:FIELD otherwise")
  text = record[fmt.field]
  try:
    text.encode()
  except UnicodeEncodeError:  # "\ud800" alone is JSON, and no character
    if fmt.encoding_errors == "strict":
      raise _error(part, offset, "holds half a surrogate pair; --encoding_errors=replace reads it anyway") from None
    text = text.encode("utf-8", "replace").decode()
  return text


def _error(part: Part, offset: int, problem: str) -> ValueError:
  """Names the line, counted from the file's beginning only now that somebody wants to know."""
  line, left = 1, offset
  with epath.Path(part.path).open("rb") as raw:
    file = gzip.GzipFile(fileobj=raw) if part.path.endswith(".gz") else raw
    while left > 0 and (chunk := file.read(min(left, _ANY_LINE))):
      line += chunk.count(b"\n")
      left -= len(chunk)
  return ValueError(f"{part.path}, line {line}: {problem}")
