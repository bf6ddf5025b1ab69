"""Corpora are TFDS data sets: documents in order, splits without overlap, interrupted builds continued."""

import json
import pathlib
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds

from data import corpora, documents, shards
from data.corpora import HELDOUT, TRAIN
from data.documents import Format


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
  with pytest.raises(ValueError, match="no documents in the train split"):
    corpora.text_files([str(tmp_path / "empty.txt")], Format(), data_dir=data_dir, **kwargs)
  (tmp_path / "one.txt").write_text("Only one.")
  if kwargs:
    with pytest.raises(ValueError, match=r"no documents in the (train|heldout) split"):
      corpora.text_files([str(tmp_path / "one.txt")], Format(), data_dir=data_dir, **kwargs)


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
  assert {path.name for path in (tmp_path / "tfds" / "text_files" / config).iterdir()} == {"unfinished"}
  # A killed process leaves TFDS's folder for what is incomplete, and half a file.
  (tmp_path / "tfds" / "text_files" / config / "incomplete.ABC_1.0.0").mkdir()
  (tmp_path / "tfds" / "text_files" / config / "unfinished" / "train-00002.array_record.partial").write_text("half")
  rest = corpora.text_files(files, Format(), heldout=0.2, data_dir=data_dir)
  parts = len(documents.cut(documents.find_files(files), Format(), 400))
  assert parts > 3
  assert len(reads) == parts + 1  # only the part it was at is read twice
  assert folder_bytes(rest[TRAIN].folder) == folder_bytes(whole[TRAIN].folder)
  assert {path.name for path in (tmp_path / "tfds" / "text_files" / config).iterdir()} == {"1.0.0"}


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
    ({"train_split": "train[:1]", "heldout": 0.5}, r"train\[:1\] is too small to hold out 0.5"),
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
