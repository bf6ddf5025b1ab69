"""Files become documents, however they are cut into parts, and what is refused is named by file and line."""

import gzip
import json
import random

import fsspec
import pytest
from fsspec.implementations.dirfs import DirFileSystem

from data import documents
from data.documents import Format, Part, cut, find_files, read
from data.sentences import splitter


def texts(path, **kwargs):
  return [text for _, text in read(Part(str(path)), Format(**kwargs))]


def write(path, content):
  path.write_bytes(content.encode() if isinstance(content, str) else content)
  return path


TEXT = "\n\nOne.\nTwo.\r\n \t\nThree.  \n\n\nFour.\nFive"


def test_boundaries(tmp_path):
  path = write(tmp_path / "a.txt", TEXT)
  assert texts(path) == ["One.\nTwo.", "Three.", "Four.\nFive"]
  assert texts(path, documents="line") == ["One.", "Two.", "Three.", "Four.", "Five"]
  assert texts(path, documents="file") == ["One.\nTwo.\n \t\nThree.  \n\n\nFour.\nFive"]


def test_an_id_is_file_and_byte(tmp_path):
  path = write(tmp_path / "a.txt", TEXT)
  assert [key for key, _ in read(Part(str(path)), Format())] == [f"{path}:{offset}" for offset in (2, 16, 27)]


def test_json_lines(tmp_path):
  lines = [{"text": "One.\n\nStill one.", "url": "x"}, {"text": " "}, {"text": "Zwei \u00fc"}]
  path = write(tmp_path / "a.jsonl", "\ufeff" + "\n".join(map(json.dumps, lines)) + "\n\n")
  assert texts(path, documents="json:text") == ["One.\n\nStill one.", "Zwei \u00fc"]


def test_json_lines_are_not_taken_for_text(tmp_path):
  for name in ("a.jsonl", "a.jsonl.gz"):
    with pytest.raises(ValueError, match=f"{name} holds JSON lines; .*--documents=json:FIELD"):
      texts(write(tmp_path / name, gzip.compress(b"{}") if name.endswith("gz") else b"{}"))


def test_gzip_reads_like_plain(tmp_path):
  for name, rule in (("a.txt.gz", "blank_line"), ("a.jsonl.gz", "json:t")):
    plain = TEXT if rule == "blank_line" else '{"t": "One."}\n{"t": "Two."}\n'
    packed = write(tmp_path / name, gzip.compress(plain.encode()))
    assert texts(packed, documents=rule) == texts(write(tmp_path / name[:-3], plain), documents=rule)


def test_a_byte_order_mark_is_no_text(tmp_path):
  assert texts(write(tmp_path / "a.txt", "\ufeffOne.")) == ["One."]


@pytest.mark.parametrize("rule", ["blank_line", "line", "json:t"])
def test_parts_hold_the_documents_of_the_whole(tmp_path, rule):
  rng = random.Random(0)
  for number in range(3):
    lines = [rng.choice(["", " ", "a", "bb" * rng.randrange(30)]) for _ in range(200)]
    if rule == "json:t":
      lines = [json.dumps({"t": line}) for line in lines]
    write(tmp_path / f"{number}.txt", "\n".join(lines) + "\n" * number)
  fmt = Format(rule)
  files = find_files([str(tmp_path / "*.txt")])
  whole = [document for file in files for document in read(Part(file), fmt)]
  assert len(whole) > 100
  for part_bytes in (1, 7, 50, 1000, 10**6):
    groups = cut(files, fmt, part_bytes)
    assert [document for group in groups for part in group for document in read(part, fmt)] == whole
  assert len(cut(files, fmt, 7)) > 50
  assert len(cut(files, fmt, 10**6)) == 1


def test_globs(tmp_path, monkeypatch):
  for name in ("b/1.txt", "a/2.txt", "a/c/3.txt", "a/4.md", "odd[1].txt"):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    write(tmp_path / name, "x")

  def found(*globs):
    return [path.removeprefix(f"{tmp_path}/") for path in find_files([f"{tmp_path}/{glob}" for glob in globs])]

  assert found("*/*.txt") == ["a/2.txt", "b/1.txt"]
  assert found("**/*.txt", "a/2.txt") == ["a/2.txt", "a/c/3.txt", "b/1.txt", "odd[1].txt"]
  assert found("odd[1].txt") == ["odd[1].txt"]
  monkeypatch.chdir(tmp_path)
  assert find_files(["a/*.md"]) == ["a/4.md"]
  with pytest.raises(FileNotFoundError, match=r"no file matches .*none"):
    found("none*")
  with pytest.raises(FileNotFoundError, match="no file matches"):
    found("none.txt")
  with pytest.raises(ValueError, match=r"is a folder; name its files, for example '.*a/\*\.txt'"):
    found("a/")


def test_files_in_a_bucket(tmp_path):
  class Bucket(DirFileSystem):
    """A folder that answers to s3://."""

    cachable = False

    def __init__(self, **kwargs):
      del kwargs
      super().__init__(str(tmp_path), fsspec.filesystem("file"))

    @classmethod
    def _strip_protocol(cls, path):
      return path.removeprefix("s3://").rstrip("/")

    def _join(self, path):
      return super()._join(self._strip_protocol(path))

  fsspec.register_implementation("s3", Bucket, clobber=True)
  (tmp_path / "bucket" / "dir").mkdir(parents=True)
  write(tmp_path / "bucket" / "dir" / "a.txt", TEXT)
  write(tmp_path / "bucket" / "dir" / "b.txt.gz", gzip.compress(b"Six."))
  files = find_files(["s3://bucket/d*/*"])
  assert files == ["s3://bucket/dir/a.txt", "s3://bucket/dir/b.txt.gz"]
  found = [text for group in cut(files, Format(), 8) for part in group for _, text in read(part, Format())]
  assert found == ["One.\nTwo.", "Three.", "Four.\nFive", "Six."]
  with pytest.raises(ValueError, match="cannot be read"):
    find_files(["s3://bucket/**/*"])


@pytest.mark.parametrize(
  ("content", "kwargs", "line", "message"),
  [
    (b"fine\nnot \xff fine\n", {}, 2, "byte 0xff is not UTF-8"),
    (b"fine\n\n\n\nnul \0\n", {}, 5, "NUL byte: is it a binary file"),
    (b"\x7fELF\x02\x01\x01\0\0\0\0", {}, 1, "binary"),
    (b"fine\n\n" + b"x" * 101 + b"\r\n", {"max_line_bytes": 100}, 3, "longer than 100 bytes; .*--max_line_bytes"),
    (b"x\n\n" + b"y\n" * 60, {"max_document_bytes": 100}, 3, "longer than 100 bytes; .*--max_document_bytes"),
    (b"y\n" * 60, {"documents": "file", "max_document_bytes": 100}, 1, "longer than 100 bytes"),
    (b'{"text": "a"}\n{"text"}\n', {"documents": "json:text"}, 2, "not JSON"),
    (b'\n{"body": "a", "id": 3}\n', {"documents": "json:text"}, 2, "no text in field 'text' .it has body, id"),
    (b'{"text": 3}\n', {"documents": "json:text"}, 1, "no text in field 'text'"),
    (b"[1]\n", {"documents": "json:text"}, 1, "it is no object"),
    (b'{"text": "\\ud800"}\n', {"documents": "json:text"}, 1, "half a surrogate pair"),
  ],
)
def test_what_is_refused_is_named(tmp_path, content, kwargs, line, message):
  for name, bytes_ in (("a.txt", content), ("b.txt.gz", gzip.compress(content))):
    path = write(tmp_path / name, bytes_)
    with pytest.raises(ValueError, match=message) as caught:
      texts(path, **kwargs)
    assert str(caught.value).startswith(f"{path}, line {line}: ")
    assert "\n" not in str(caught.value)


def test_the_line_is_counted_from_the_beginning_of_the_file(tmp_path):
  path = write(tmp_path / "a.txt", b"a\n\n" * 50 + b"\xff\n")
  parts = [part for group in cut([str(path)], Format(), 20) for part in group]
  assert len(parts) > 5
  with pytest.raises(ValueError, match="line 101: byte 0xff"):
    list(read(parts[-1], Format()))


def test_a_line_of_just_the_limit_is_read(tmp_path):
  for end in (b"", b"\n", b"\r\n"):
    assert texts(write(tmp_path / "a.txt", b"x" * 100 + end), max_line_bytes=100) == ["x" * 100]


def test_bad_bytes_are_replaced_on_request(tmp_path):
  path = write(tmp_path / "a.txt", b"a\xffb\0c\n")
  assert texts(path, encoding_errors="replace") == ["a\ufffdb\0c"]
  path = write(tmp_path / "a.jsonl", b'{"t": "\\ud800x"}')
  assert texts(path, documents="json:t", encoding_errors="replace") == ["?x"]


@pytest.mark.parametrize("damage", [lambda packed: packed[:-9], lambda packed: packed[:20] + b"xxxxxx" + packed[26:]])
def test_a_damaged_gzip_file_is_named(tmp_path, damage):
  packed = gzip.compress(" ".join(map(str, range(500))).encode())
  path = write(tmp_path / "a.txt.gz", damage(packed))
  with pytest.raises(ValueError, match=r"a\.txt\.gz is no intact gzip file"):
    texts(path)


def test_a_rule_that_does_not_exist():
  for rule in ("paragraph", "json:", "json"):
    with pytest.raises(ValueError, match="none of blank_line, file, line, json:FIELD"):
      Format(rule)


# --- sentences --------------------------------------------------------------------------------------------------


def test_sentences_a_line():
  assert splitter("line")("One. Two.\n\n  Three \r\n") == ["One. Two.", "Three"]


def test_sentences_split():
  text = "Dr. Smith paid $3.50 for it. He left!\nA line's end ends a sentence\n\nDid it? Yes."
  sentences = ["Dr. Smith paid $3.50 for it.", "He left!", "A line's end ends a sentence", "Did it?", "Yes."]
  assert splitter("split")(text) == sentences


def test_a_splitter_loses_no_character():
  rng = random.Random(0)
  for _ in range(200):
    text = "".join(rng.choices("ab cD.!?\"')( \n\u3002", k=60))
    assert "".join("".join(splitter("split")(text)).split()) == "".join(text.split())


def test_sentences_by_an_unknown_rule():
  with pytest.raises(ValueError, match="neither line nor split"):
    splitter("word")


def test_module_reads_in_pieces(tmp_path, monkeypatch):
  """The boundary of a part is found although a line is longer than what is read at a time."""
  monkeypatch.setattr(documents, "_ANY_LINE", 4)
  path = write(tmp_path / "a.txt", "aaaaaaaaaaaa   \n\nbbbbbbbb\n    \n   cc\n\nd\n")
  whole = texts(path)
  for part_bytes in range(1, 20):
    groups = cut([str(path)], Format(), part_bytes)
    assert [text for group in groups for part in group for _, text in read(part, Format())] == whole
