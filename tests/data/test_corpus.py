"""A prepared corpus is read back token for token, and every way it can be broken ends in one clear line."""

import dataclasses
import itertools
import json
from concurrent import futures

import numpy as np
import pytest

from data import corpus
from data.corpus import Corpus, CorpusIndex
from tests.data.corpora import Tokenizer, numbered, write_corpus

DOCUMENTS = numbered([5, 30, 1], [3], [16, 16], [40], [2, 2, 2, 2])


@pytest.fixture
def folder(tmp_path):
  return write_corpus(tmp_path / "corpus", {"train": DOCUMENTS, "heldout": DOCUMENTS[:1]}, shards=2)


def flatten(documents):
  return [token for document in documents for sentence in document for token in sentence]


def test_index_marks_sentences_and_documents(folder):
  opened = Corpus.open(folder, "train")
  assert opened.sentence_starts.tolist() == [0, 5, 35, 36, 39, 55, 71, 111, 113, 115, 117, 119]
  assert opened.document_starts.tolist() == [0, 3, 4, 6, 7, 11]
  assert opened.num_tokens == 119
  assert opened.counts()[10 : 10 + 119].tolist() == [1] * 119


@pytest.mark.parametrize("shards", [1, 2, 5, 7])
@pytest.mark.parametrize("vocab_size", [1000, 70_000])
@pytest.mark.parametrize("remote", [False, True])
def test_every_span_of_every_shard_reads_back(tmp_path, monkeypatch, shards, vocab_size, remote):
  folder = write_corpus(tmp_path, {"train": DOCUMENTS}, shards=shards, vocab_size=vocab_size, block=7)
  if remote:  # as far as it differs: threads, and index arrays that are not mapped
    monkeypatch.setattr(Corpus, "_pool", futures.ThreadPoolExecutor(4))
  opened = Corpus.open(folder, "train")
  expected = flatten(DOCUMENTS)
  assert np.diff(opened.sentence_starts).tolist() == [len(s) for document in DOCUMENTS for s in document]
  ends = np.cumsum([shard.tokens for shard in opened.index.splits["train"].shards]).tolist()
  spans = [(a, b) for lo, hi in itertools.pairwise([0, *ends]) for a in range(lo, hi, 3) for b in range(a + 1, hi + 1)]
  for start, stop in spans[::17]:
    assert opened.tokens(start, stop).tolist() == expected[start:stop]
  np.random.default_rng(0).shuffle(spans)
  starts, stops = np.array(spans).T
  together = opened.spans(starts, stops - starts)
  assert together.dtype == np.int32
  assert together.tolist() == [token for start, stop in spans for token in expected[start:stop]]
  assert opened.spans(starts[:0], starts[:0]).shape == (0,)


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (-1, 2), (70, 72), (118, 120), (119, 120)])
def test_a_span_must_lie_in_one_shard(folder, start, stop):
  opened = Corpus.open(folder, "train")
  assert [shard.tokens for shard in opened.index.splits["train"].shards] == [71, 48]
  with pytest.raises(ValueError, match="leaves its shard"):
    opened.tokens(start, stop)


def test_index_survives_writing(folder):
  index = CorpusIndex.read(folder)
  again = dataclasses.replace(index, report={"documents": 5})
  again.write(folder)
  assert CorpusIndex.read(folder) == again
  assert json.loads((folder / "corpus.json").read_text())["splits"]["train"]["tokens"] == 119
  assert not list(folder.glob("*.partial"))


def test_no_such_folder(tmp_path):
  with pytest.raises(FileNotFoundError, match="nowhere: no such corpus"):
    Corpus.open(tmp_path / "nowhere", "train")


def test_unfinished(folder):
  (folder / "corpus.json").unlink()
  with pytest.raises(FileNotFoundError, match="has not finished"):
    Corpus.open(folder, "train")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 1, "splits": {}, "colour": 3}'])
def test_damaged_index(folder, text):
  (folder / "corpus.json").write_text(text)
  with pytest.raises(ValueError, match=r"corpus.json is damaged"):
    Corpus.open(folder, "train")


def test_other_format(folder):
  (folder / "corpus.json").write_text('{"format": 2}')
  with pytest.raises(ValueError, match="format 2, this code reads format 1"):
    Corpus.open(folder, "train")


def test_unknown_split(folder):
  with pytest.raises(ValueError, match=r"no split 'test'; it has heldout, train"):
    Corpus.open(folder, "test")


def test_nothing_held_out(tmp_path):
  write_corpus(tmp_path, {"train": DOCUMENTS})
  with pytest.raises(ValueError, match=r"no split 'heldout'; it has train; prepare it again with --heldout=0\.05"):
    Corpus.open(tmp_path, "heldout")


def test_empty_split(tmp_path):
  write_corpus(tmp_path, {"train": DOCUMENTS, "heldout": []})
  with pytest.raises(ValueError, match="'heldout' is empty"):
    Corpus.open(tmp_path, "heldout")


def test_other_tokenizer(folder):
  opened = Corpus.open(folder, "train")
  opened.require_tokenizer(Tokenizer())
  with pytest.raises(ValueError, match="another tokenizer"):
    opened.require_tokenizer(Tokenizer(fingerprint="fedcba9876543210"))


def test_missing_shard(folder):
  (folder / corpus.shard_file("train", 1, 2)).unlink()
  with pytest.raises(FileNotFoundError, match=r"train-00001-of-00002.array_record is missing"):
    Corpus.open(folder, "train")


def test_shards_swapped_or_cut(folder):
  first, second = (folder / corpus.shard_file("train", shard, 2) for shard in range(2))
  data = first.read_bytes()
  first.write_bytes(data[: len(data) // 2])
  with pytest.raises(ValueError, match=r"holds 0 records, corpus.json says 5"):
    Corpus.open(folder, "train")
  first.write_bytes(second.read_bytes())
  with pytest.raises(ValueError, match=r"holds 3 records, corpus.json says 5"):
    Corpus.open(folder, "train")


def test_a_flipped_byte_is_noticed(folder):
  path = folder / corpus.shard_file("train", 0, 2)
  data = bytearray(path.read_bytes())
  record = np.arange(10, 26, dtype=np.uint16).tobytes()
  data[data.index(record) + 3] ^= 255
  path.write_bytes(data)
  opened = Corpus.open(folder, "train")
  with pytest.raises(ValueError, match=r"train-00000-of-00002.array_record cannot be read"):
    opened.tokens(0, 16)


@pytest.mark.parametrize(
  "said",
  [
    "Retry policy exhausted in Read(): Service Unavailable",
    "Permanent error in Read(): EasyPerform() - CURL error [6]=Couldn't resolve host name",
    "Input/output error; reading train-00000-of-00002.array_record",
  ],
)
def test_a_file_that_cannot_be_reached_is_not_called_damaged(folder, monkeypatch, said):
  class Reader:
    def num_records(self):
      return 0

    def fail(self, *positions):
      raise RuntimeError(said)

    read = close = fail

  opened = Corpus.open(folder, "train")
  opened.__dict__["_readers"] = [Reader()]
  with pytest.raises(ConnectionError, match=r"train-00000-of-00002.array_record cannot be read just now"):
    opened.tokens(0, 16)
  monkeypatch.setattr(corpus.array_record_module, "ArrayRecordReader", lambda *args, **options: Reader())
  with pytest.raises(ConnectionError, match=r"train-00000-of-00002.array_record cannot be read just now"):
    Corpus.open(folder, "train")


def test_index_arrays_must_agree(folder):
  np.save(folder / "train.sentences.npy", np.full(11, 2, np.uint32))
  np.save(folder / "train.documents.npy", np.array([3, 1, 2, 1, 3], np.uint32))
  opened = Corpus.open(folder, "train")
  with pytest.raises(ValueError, match=r"train.sentences.npy counts 22 tokens, corpus.json says 119"):
    _ = opened.sentence_starts
  with pytest.raises(ValueError, match=r"train.documents.npy counts 10 sentences, corpus.json says 11"):
    _ = opened.document_starts


def test_index_array_missing_or_cut(folder):
  opened = Corpus.open(folder, "train")
  (folder / "train.documents.npy").unlink()
  with pytest.raises(FileNotFoundError, match=r"train.documents.npy is missing"):
    _ = opened.document_starts
  path = folder / "train.sentences.npy"
  path.write_bytes(path.read_bytes()[:-8])
  with pytest.raises(ValueError, match=r"train.sentences.npy is damaged"):
    _ = opened.sentence_starts
