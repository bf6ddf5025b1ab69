"""Corpora are TFDS data sets: documents in order, splits without overlap, interrupted builds continued."""

import dataclasses
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow_datasets as tfds

from data import corpora, documents, parts, shards
from data.corpora import HELDOUT, TRAIN
from data.documents import Format
from tests import buckets

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def data_dir(tmp_path):
  return str(tmp_path / "tfds")


@pytest.fixture
def files(tmp_path):
  """Forty documents in four files."""
  for number in range(4):
    text = "\n\n".join(f"Document {number}.{i}\nSecond line é." for i in range(10))
    (tmp_path / f"{number}.txt").write_text(text, encoding="utf-8")
  return [str(tmp_path / "*.txt")]


def read(split):
  return list(split.read(0, len(split)))


ALL = [f"Document {number}.{i}\nSecond line é." for number in range(4) for i in range(10)]


def test_documents_keep_their_order_and_are_read_at_random(files, data_dir):
  splits = corpora.text_files(files, Format(), data_dir=data_dir)
  assert list(splits) == [TRAIN]
  assert read(splits[TRAIN]) == ALL
  assert list(splits[TRAIN].read(7, 23)) == ALL[7:23]
  assert "tensorflow" not in sys.modules


def test_a_fraction_is_held_out_by_the_documents_hash(files, data_dir, tmp_path):
  splits = corpora.text_files(files, Format(), heldout=0.3, data_dir=data_dir)
  train, heldout = read(splits[TRAIN]), read(splits[HELDOUT])
  assert [text for text in ALL if text in train] == train
  assert [text for text in ALL if text in heldout] == heldout
  assert sorted(train + heldout) == sorted(ALL)
  assert 4 <= len(heldout) <= 20
  # A copy of a document, in another file, lands where the document is.
  (tmp_path / "again.txt").write_text("\n\n".join(ALL), encoding="utf-8")
  again = corpora.text_files(files, Format(), heldout=0.3, data_dir=data_dir)
  assert read(again[HELDOUT]) == heldout * 2


def test_files_are_held_out(files, data_dir, tmp_path):
  heldout_files = [str(tmp_path / "2.txt")]
  splits = corpora.text_files(files, Format(), heldout_files=heldout_files, data_dir=data_dir)
  assert read(splits[HELDOUT]) == ALL[20:30]
  assert read(splits[TRAIN]) == ALL[:20] + ALL[30:]
  with pytest.raises(ValueError, match="either a fraction to hold out or files"):
    corpora.text_files(files, Format(), heldout=0.1, heldout_files=heldout_files, data_dir=data_dir)


def test_other_files_or_rules_are_another_corpus(files, data_dir, tmp_path):
  first = corpora.text_files(files, Format(), data_dir=data_dir)[TRAIN]
  assert corpora.text_files(files, Format(), data_dir=data_dir)[TRAIN] == first
  assert len(corpora.text_files(files, Format("line"), data_dir=data_dir)[TRAIN]) == 80
  (tmp_path / "3.txt").write_text("Less.")
  assert len(corpora.text_files(files, Format(), data_dir=data_dir)[TRAIN]) == 31


@pytest.mark.parametrize("kwargs", [{}, {"heldout": 0.5}])
def test_files_without_documents(tmp_path, data_dir, kwargs):
  (tmp_path / "empty.txt").write_text("\n \n")
  (tmp_path / "one.txt").write_text("Only one.")
  for name in ["empty", "one"] if kwargs else ["empty"]:
    for _ in range(2):  # a build that failed fails the same way again
      with pytest.raises(
        ValueError, match=rf"no documents in the \w+ split: {tmp_path}/{name}.txt hold no text"
      ) as caught:
        corpora.text_files([str(tmp_path / f"{name}.txt")], Format(), data_dir=data_dir, **kwargs)
      assert ("--heldout=0.5" in str(caught.value)) == bool(kwargs)


def test_held_out_files_without_documents(files, tmp_path, data_dir):
  (tmp_path / "empty").write_text("\n")
  for heldout_files, message in (
    ([str(tmp_path / "empty")], r"heldout split: .*empty \(--heldout_input\) hold no text"),
    (files, "train split: --heldout_input matches all files of --input"),
  ):
    with pytest.raises(ValueError, match=message):
      corpora.text_files(files, Format(), heldout_files=heldout_files, data_dir=data_dir)


def folder_bytes(folder):
  return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}


def test_an_interrupted_build_continues(files, data_dir, tmp_path, monkeypatch):
  monkeypatch.setattr(corpora, "_PART_BYTES", 400)
  whole = corpora.text_files(files, Format(), heldout=0.2, data_dir=str(tmp_path / "whole"))
  reads, broken = [], documents.read

  def read_until_broken(part, fmt):
    reads.append(part)
    if len(reads) == 3:
      raise KeyboardInterrupt
    return broken(part, fmt)

  monkeypatch.setattr(documents, "read", read_until_broken)
  with pytest.raises(KeyboardInterrupt):
    corpora.text_files(files, Format(), heldout=0.2, data_dir=data_dir)
  config = pathlib.Path(whole[TRAIN].folder).parent.name
  assert {path.name for path in (tmp_path / "tfds" / "text_files" / config).iterdir()} == {".lock", "unfinished"}
  # A killed process leaves TFDS's folder for what is incomplete, and half a file.
  (tmp_path / "tfds" / "text_files" / config / "incomplete.ABC_1.0.0").mkdir()
  (tmp_path / "tfds" / "text_files" / config / "unfinished" / "train-00002.array_record.partial").write_text("half")
  rest = corpora.text_files(files, Format(), heldout=0.2, data_dir=data_dir)
  parts = len(documents.cut(documents.find_files(files), Format(), 400))
  assert parts > 3
  assert len(reads) == parts + 1  # only the part it was at is read twice
  assert folder_bytes(rest[TRAIN].folder) == folder_bytes(whole[TRAIN].folder)
  assert {path.name for path in (tmp_path / "tfds" / "text_files" / config).iterdir()} == {".lock", "1.0.0"}


# Every operation that gives a file its name or takes it away is, in turn, the one before which the process is killed,
# or that fails; each time the same build is started again. The files, and the folder for the builds, are arguments.
DISTURBED = """
import errno, itertools, os, signal, sys
from data import corpora
from data.documents import Format
corpora._PART_BYTES = 700
CHANGES = {"os.link", "os.rename", "shutil.rmtree"}

def kill():
  os.kill(os.getpid(), signal.SIGKILL)

def fail():
  raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

def build(folder, disturb, at):
  if child := os.fork():
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
  count = 0
  def hook(event, args):
    nonlocal count
    if event in CHANGES:
      count += 1
      if count == at:
        disturb()
  sys.addaudithook(hook)
  try:
    corpora.text_files([sys.argv[1]], Format(), heldout=0.2, data_dir=folder)
  except OSError as error:
    os._exit(1 if error.errno == errno.ENOSPC else 2)
  finally:
    os._exit(3) if sys.exc_info()[0] else os._exit(0 if count < at else 4)

# What TFDS loads on first use, the children inherit.
try:
  corpora.text_files([os.devnull], Format(), data_dir=f"{sys.argv[2]}/empty")
except ValueError:
  pass

for disturb, ends in ((kill, {-9}), (fail, {1, 4})):
  for at in itertools.count(1):
    folder = f"{sys.argv[2]}/{disturb.__name__}{at}"
    end = build(folder, disturb, at)
    assert end in {0, *ends}, (disturb, at, end)
    assert build(folder, None, 0) in (0, 4), (disturb, at)
    if end == 0:
      break
  assert at > 12, (disturb, at)
"""


def test_whatever_ends_a_build_the_same_command_finishes_it(files, tmp_path, monkeypatch):
  command = [sys.executable, "-c", DISTURBED, *files, str(tmp_path / "disturbed")]
  done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
  assert done.returncode == 0, done.stderr.decode()
  monkeypatch.setattr(corpora, "_PART_BYTES", 700)
  open_corpus = functools.partial(corpora.text_files, files, Format(), heldout=0.2)
  whole = open_corpus(data_dir=str(tmp_path / "whole"))
  monkeypatch.setattr(corpora.TextFiles, "parts", None)  # all are finished
  for folder in (tmp_path / "disturbed").glob("*[0-9]"):
    for split, documents_ in open_corpus(data_dir=str(folder)).items():
      assert str(documents_) == str(whole[split])
      assert read(documents_) == read(whole[split])
      assert {path.name for path in pathlib.Path(documents_.folder).parent.iterdir()} == {".lock", "1.0.0"}


def test_without_links_parts_move(files, data_dir, tmp_path, monkeypatch):
  whole = corpora.text_files(files, Format(), heldout=0.2, data_dir=str(tmp_path / "whole"))

  def refuse(path, target):
    raise PermissionError

  monkeypatch.setattr(os, "link", refuse)
  moved = corpora.text_files(files, Format(), heldout=0.2, data_dir=data_dir)
  assert folder_bytes(moved[TRAIN].folder) == folder_bytes(whole[TRAIN].folder)


def test_a_part_counts_only_with_all_of_its_files(files, data_dir, monkeypatch):
  monkeypatch.setattr(parts.PartsBuilder, "_join", lambda *args: 1 / 0)
  with pytest.raises(ZeroDivisionError):
    corpora.text_files(files, Format(), heldout=0.2, data_dir=data_dir)
  monkeypatch.undo()
  (record_file,) = pathlib.Path(data_dir).rglob("heldout-00000.array_record")
  record_file.write_bytes(record_file.read_bytes()[:40_000])
  (record_file,) = pathlib.Path(data_dir).rglob("train-00000.array_record")
  record_file.unlink()
  splits = corpora.text_files(files, Format(), heldout=0.2, data_dir=data_dir)
  assert sorted(read(splits[TRAIN]) + read(splits[HELDOUT])) == sorted(ALL)


@pytest.mark.parametrize("name", ["text_files", "tiny_text"])
def test_of_two_commands_one_builds_and_the_other_waits(files, data_dir, monkeypatch, capsys, name):
  """The second starts while the first is in the middle of it."""
  builds, reads = [], []
  if name == "text_files":
    original, owner, method = documents.read, documents, "read"
    open_corpus = functools.partial(corpora.text_files, files, Format(), data_dir=data_dir)
  else:
    original, owner, method = TinyText._generate_examples, TinyText, "_generate_examples"
    open_corpus = functools.partial(corpora.tfds_corpus, "tiny_text", "body", data_dir=data_dir)
  second = threading.Thread(target=lambda: builds.append(open_corpus()))

  def read_slowly(*args):
    reads.append(args)
    if len(reads) == 1:
      second.start()
      said = ""
      while "waiting" not in said and second.is_alive():
        said += capsys.readouterr().err
        time.sleep(0.01)
      # Not the whole of it: TFDS shows its progress there.
      assert re.search(rf"waiting for another command that is building {data_dir}/{name}/\S+\n", said)
    yield from original(*args)

  monkeypatch.setattr(owner, method, read_slowly)
  builds.append(open_corpus())
  second.join()
  assert builds[0] == builds[1]
  assert read(builds[0][TRAIN]) == read(builds[1][TRAIN])
  assert len(reads) == (4 if name == "text_files" else 2)


def test_in_a_bucket_lies_the_same(files, data_dir, tmp_path, monkeypatch):
  here = corpora.text_files(files, Format(), heldout=0.2, data_dir=data_dir)
  bucket = buckets.stand_in(tmp_path, monkeypatch)
  there = corpora.text_files(files, Format(), heldout=0.2, data_dir="gs://bucket/tfds")
  for split in (TRAIN, HELDOUT):
    assert str(there[split]) == str(here[split])
    assert there[split].folder.startswith("gs://bucket/tfds/text_files/")
    copy = dataclasses.replace(there[split], folder=there[split].folder.replace("gs://bucket", str(bucket)))
    assert read(copy) == read(here[split])
  names = lambda folder: {path.name for path in folder.rglob("*") if path.is_file()}
  assert names(bucket / "tfds") == names(pathlib.Path(data_dir)) - {".lock"}


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "flipped"])
def test_a_damaged_data_set_is_named(files, data_dir, damage):
  train = corpora.text_files(files, Format(), data_dir=data_dir)[TRAIN]
  (path,) = pathlib.Path(train.folder).glob("*.array_record*")
  data = path.read_bytes()
  flipped = data[:200] + bytes(byte ^ 255 for byte in data[200:600]) + data[600:]
  path.unlink()
  if damage != "missing":
    path.write_bytes({"empty": b"", "cut": data[: len(data) // 2], "flipped": flipped}[damage])
  with pytest.raises(ValueError, match=f"{train.folder}: the documents cannot be read, .*delete the folder and run"):
    read(train)


def test_a_split_may_be_missing_from_a_part(files, data_dir, monkeypatch):
  monkeypatch.setattr(corpora, "_PART_BYTES", 1)  # a document a part
  splits = corpora.text_files(files, Format(), heldout=0.2, data_dir=data_dir)
  assert sorted(read(splits[TRAIN]) + read(splits[HELDOUT])) == sorted(ALL)
  assert shards.num_records(next(pathlib.Path(splits[TRAIN].folder).glob("*train*00000-of*"))) == 1


# --- data sets by name ----------------------------------------------------------------------------------------------


class TinyText(tfds.core.GeneratorBasedBuilder):
  """Twenty texts and four to validate."""

  VERSION = tfds.core.Version("2.0.0")

  def _info(self):
    features = {"body": tfds.features.Text(), "label": tfds.features.Scalar(np.int32)}
    return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features), disable_shuffling=True)

  def _split_generators(self, dl_manager):
    return {"train": self._generate_examples("t", 20), "validation": self._generate_examples("v", 4)}

  def _generate_examples(self, name, count):
    for i in range(count):
      yield i, {"body": f"{name}{i} ü", "label": i}

  code_path = None


def test_a_data_set_by_name(data_dir):
  splits = corpora.tfds_corpus("tiny_text", "body", heldout_split="validation", data_dir=data_dir)
  assert read(splits[TRAIN]) == [f"t{i} ü" for i in range(20)]
  assert read(splits[HELDOUT]) == [f"v{i} ü" for i in range(4)]
  splits = corpora.tfds_corpus("tiny_text:2.0.0", "body", heldout=0.1, data_dir=data_dir)
  assert read(splits[TRAIN]) == [f"t{i} ü" for i in range(18)]
  assert list(splits[HELDOUT].read(1, 2)) == ["t19 ü"]
  splits = corpora.tfds_corpus("tiny_text", "body", train_split="train[5:15]", heldout=0.2, data_dir=data_dir)
  assert read(splits[TRAIN]) == [f"t{i} ü" for i in range(5, 13)]
  assert read(splits[HELDOUT]) == ["t13 ü", "t14 ü"]


@pytest.mark.parametrize(
  ("kwargs", "message"),
  [
    ({"name": "no_such_data_set"}, "TFDS has no data set 'no_such_data_set'"),
    ({"field": "text"}, "tiny_text has no text feature 'text'; its text features: body"),
    ({"field": "label"}, "no text feature 'label'"),
    ({"train_split": "trian"}, "tiny_text/2.0.0 has no split 'trian'"),
    ({"heldout_split": "test"}, "has no split 'test'"),
    ({"heldout_split": "validation", "heldout": 0.1}, "either a fraction to hold out or a split"),
    ({"heldout": 1.0}, "heldout=1.0 is no fraction"),
    ({"train_split": "train[:1]", "heldout": 0.5}, r"train\[:1\] is too small for --heldout=0.5"),
    ({"train_split": "train[:0]"}, r"split 'train\[:0\]' is empty"),
  ],
)
def test_what_a_named_data_set_does_not_have(data_dir, kwargs, message):
  with pytest.raises(ValueError, match=message) as caught:
    corpora.tfds_corpus(**{"name": "tiny_text", "field": "body", "data_dir": data_dir, **kwargs})
  assert "\n" not in str(caught.value)


def test_a_data_set_that_cannot_be_prepared(data_dir, monkeypatch):
  monkeypatch.setattr(TinyText, "_generate_examples", lambda *args: 1 / 0)
  with pytest.raises(ValueError, match="TFDS cannot prepare tiny_text: ZeroDivisionError: division by zero"):
    corpora.tfds_corpus("tiny_text", "body", data_dir=data_dir)


def test_tfrecord_files_need_tensorflow(data_dir, monkeypatch):
  folder = pathlib.Path(corpora.tfds_corpus("tiny_text", "body", data_dir=data_dir)[TRAIN].folder)
  info = json.loads((folder / "dataset_info.json").read_text())
  info["fileFormat"] = "tfrecord"
  (folder / "dataset_info.json").write_text(json.dumps(info))
  find = corpora.importlib.util.find_spec
  monkeypatch.setattr(corpora.importlib.util, "find_spec", lambda name: None if name == "tensorflow" else find(name))
  with pytest.raises(ValueError, match="holds TFRecord files: install tensorflow"):
    corpora.tfds_corpus("tiny_text", "body", data_dir=data_dir)


# --- the embedded articles ------------------------------------------------------------------------------------------


def test_the_wikipedia_sample_says_what_it_needs(data_dir, monkeypatch):
  find = corpora.importlib.util.find_spec
  monkeypatch.setattr(corpora.importlib.util, "find_spec", lambda name: None if name == "gensim" else find(name))
  with pytest.raises(ValueError, match=r"pip install -r requirements-quickstart\.txt"):
    corpora.wikipedia_sample(data_dir)


def test_the_wikipedia_sample(data_dir):
  pytest.importorskip("gensim")
  splits = corpora.wikipedia_sample(data_dir)
  train, heldout = read(splits[TRAIN]), read(splits[HELDOUT])
  assert (len(train), len(heldout)) == (87, 9)
  assert train[0].startswith("Anarchism is a political philosophy that advocates self-governed societies")
  assert 0.08 < sum(map(len, heldout)) / sum(map(len, train + heldout)) < 0.12
  assert not any(text.lower().startswith("#redirect") for text in train + heldout)
  assert not any(mark in text for text in train + heldout for mark in ("[[", "]]", "{{", "}}", "'''", "=="))


def test_prose_leaves_headings_and_lists_out():
  text = (
    "== Heading of quite a few words that go on ==\n'''Bold''' words, and ''more'' of them to make eight.\n* item\n"
  )
  assert corpora._prose(text) == "Bold words, and more of them to make eight."
