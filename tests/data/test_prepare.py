"""A prepared corpus holds what the tokenizer says of each document, whatever happened on the way to it."""

import functools
import hashlib
import itertools
import os
import pathlib
import pickle
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import psutil
import pytest

from data import corpora, corpus, prepare, shards, wordpiece
from data.corpora import HELDOUT, TRAIN
from data.corpus import Corpus
from data.documents import Format
from data.tokenizers import load_tokenizer
from tests import buckets

ROOT = pathlib.Path(__file__).parents[2]
WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "dog", "ran", "far"]
TOKENIZER = wordpiece.WordPiece((*wordpiece.SPECIAL, *WORDS, *"cdfmrst", *("##" + c for c in "aegnot"), "."))
SMALL = 8000  # bytes a shard


def sentence(rng):
  return " ".join(rng.choices([*WORDS, "taco", "fort", "zebra"], k=rng.randrange(1, 12))) + "."


@pytest.fixture(scope="module")
def texts():
  """Documents of 1 to 9 sentences; every fifth is a copy of an earlier one, some have no token."""
  rng, result = random.Random(0), []
  for number in range(300):
    if number % 5 == 4:
      result.append(rng.choice(result))
    elif number % 50 == 3:
      result.append("\u200b\n\ufeff")
    else:
      result.append("\n".join(sentence(rng) for _ in range(rng.randrange(1, 10))))
  return result


@pytest.fixture(scope="module")
def splits(texts, tmp_path_factory):
  """The last forty documents are held out: some are copies of documents in train."""
  folder = tmp_path_factory.mktemp("texts")
  for name, part in (("train", texts[:260]), ("heldout", texts[260:])):
    (folder / f"{name}.txt").write_text("\n\n".join(part), encoding="utf-8")
  return corpora.text_files(
    [str(folder / "train.txt")], Format(), heldout_files=[str(folder / "heldout.txt")], data_dir=str(folder / "tfds")
  )


def prepared(splits, folder, **kwargs):
  return prepare.prepare(folder, splits, TOKENIZER, **{"shard_bytes": SMALL, **kwargs})


def contents(folder):
  return {
    str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
    for path in sorted(folder.rglob("*"))
    if path.is_file()
  }


@pytest.fixture(scope="module")
def undisturbed(splits, tmp_path_factory):
  folder = tmp_path_factory.mktemp("undisturbed")
  prepared(splits, folder)
  return folder


def expected(texts):
  """Per split: documents of sentences of tokens, first of their kind, held-out ones before those of train."""
  seen, result = set(), {}
  for split, part in ((HELDOUT, texts[260:]), (TRAIN, texts[:260])):
    result[split] = []
    for text in part:
      sentences = [ids.tolist() for ids in TOKENIZER.encode_batch(text.split("\n")) if len(ids)]
      if text not in seen and sentences:
        result[split].append(sentences)
      seen.add(text)
  return result


def test_what_is_read_back_is_what_the_tokenizer_says(texts, undisturbed):
  for split, documents in expected(texts).items():
    opened = Corpus.open(undisturbed, split)
    assert len(opened.index.splits[split].shards) == (7 if split == TRAIN else 1)
    tokens = [
      [
        opened.tokens(start, stop).tolist()
        for start, stop in zip(opened.sentence_starts[a:b], opened.sentence_starts[a + 1 : b + 1], strict=True)
      ]
      for a, b in zip(opened.document_starts[:-1], opened.document_starts[1:], strict=True)
    ]
    assert tokens == documents
    flat = [token for document in documents for sent in document for token in sent]
    assert opened.counts().tolist() == np.bincount(flat, minlength=TOKENIZER.vocab_size).tolist()
  assert load_tokenizer(undisturbed / "tokenizer") == TOKENIZER
  assert not (undisturbed / "unfinished").exists()


def test_report(texts, undisturbed):
  report = corpus.CorpusIndex.read(undisturbed).report
  for split, part in ((TRAIN, texts[:260]), (HELDOUT, texts[260:])):
    documents = expected(texts)[split]
    tokens = [token for document in documents for sent in document for token in sent]
    alone = [document for document in documents if len(document) == 1]
    numbers = report[split]
    assert numbers["documents"] == len(documents)
    assert numbers["documents"] + numbers["duplicates"] + numbers["empty"] == len(part)
    assert numbers["sentences"] == sum(map(len, documents))
    assert numbers["tokens"] == len(tokens)
    assert numbers["one_sentence_documents"] == len(alone)
    assert numbers["one_sentence_tokens"] == sum(len(document[0]) for document in alone)
    assert numbers["unknown_rate"] == pytest.approx(tokens.count(TOKENIZER.unk_id) / len(tokens), abs=1e-6)
  assert report[TRAIN]["duplicates"] > 30
  assert report[TRAIN]["empty"] == 1
  assert 0.1 < report[TRAIN]["unknown_rate"] < 0.3
  assert report[HELDOUT]["bytes"] == sum(len(text.encode()) for text in dict.fromkeys(texts[260:]))
  assert report[HELDOUT]["bytes_per_token"] == round(report[HELDOUT]["bytes"] / report[HELDOUT]["tokens"], 4)


def test_records_are_full_blocks(splits, tmp_path, monkeypatch):
  monkeypatch.setattr(corpus, "BLOCK", 64)
  index = prepared(splits, tmp_path)
  assert index.splits[TRAIN].total("records") > len(index.splits[TRAIN].shards) * 3
  assert index.block == 64
  Corpus.open(tmp_path, TRAIN).tokens(0, 100)


def test_neither_ranges_of_hashes_nor_batches_show(splits, tmp_path, undisturbed, monkeypatch):
  monkeypatch.setattr(prepare, "_RANGE_DOCUMENTS", 11)
  monkeypatch.setattr(prepare, "_BATCH_CHARS", 1)
  prepared(splits, tmp_path)
  assert contents(tmp_path) == contents(undisturbed)


def test_the_number_of_processes_does_not_show(splits, tmp_path, undisturbed):
  prepared(splits, tmp_path, run=functools.partial(shards.run, processes=2))
  assert contents(tmp_path) == contents(undisturbed)


# Preparation in a process of its own that kills itself just before or after its n-th file gets its name.
KILLED = """
import os, pathlib, pickle, signal, sys
from data import prepare
from tests.data.test_prepare import TOKENIZER, SMALL
splits, folder, count, after = pickle.load(sys.stdin.buffer)
replace = os.replace
def replace_or_die(path, target):
  global count
  count -= 1
  if not count and not after:
    os.kill(os.getpid(), signal.SIGKILL)
  replace(path, target)
  if not count:
    os.kill(os.getpid(), signal.SIGKILL)
os.replace = replace_or_die
prepare.prepare(folder, splits, TOKENIZER, shard_bytes=SMALL)
"""


def test_killed_at_any_moment_it_ends_with_the_same_bytes(splits, tmp_path, undisturbed):
  rng, kills = random.Random(3), 0
  for attempt in range(6):
    job = pickle.dumps((splits, tmp_path, rng.randrange(1, 20), bool(attempt % 2)))
    done = subprocess.run([sys.executable, "-c", KILLED], input=job, cwd=ROOT, capture_output=True, check=False)
    assert done.returncode in (0, -9), done.stderr.decode()
    kills += done.returncode == -9
    if done.returncode == 0:
      break
    with pytest.raises(FileNotFoundError, match="not finished"):
      Corpus.open(tmp_path, TRAIN)
  assert kills >= 3
  prepared(splits, tmp_path)
  assert contents(tmp_path) == contents(undisturbed)


def test_a_finished_corpus_is_not_made_again(splits, tmp_path, monkeypatch):
  index = prepared(splits, tmp_path)
  before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.array_record")}
  monkeypatch.setattr(shards, "stream", None)
  assert prepared(splits, tmp_path) == index
  assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.array_record")} == before


def test_a_folder_of_something_else_is_left_alone(splits, tmp_path, undisturbed):
  before = contents(undisturbed)
  with pytest.raises(ValueError, match="with other documents, sentences; delete it or choose another --output"):
    prepared({TRAIN: splits[TRAIN]}, undisturbed, sentence_rule="split")
  other = wordpiece.WordPiece((*TOKENIZER.pieces, "more"))
  with pytest.raises(ValueError, match="with other tokenizer"):
    prepare.prepare(undisturbed, splits, other, shard_bytes=SMALL)
  assert contents(undisturbed) == before
  (tmp_path / "corpus.json").write_text("{}")
  with pytest.raises(ValueError, match=r"holds a corpus but no preparation\.json"):
    prepared(splits, tmp_path)


def test_two_preparations_do_not_meet(splits, tmp_path):
  with shards.locked(tmp_path, "mine"), pytest.raises(OSError, match="another preparation is at work"):
    prepared(splits, tmp_path)


def test_a_split_without_tokens(tmp_path):
  (tmp_path / "a.txt").write_text("\u200b\n\n\u200c", encoding="utf-8")
  splits = corpora.text_files([str(tmp_path / "a.txt")], Format(), data_dir=str(tmp_path / "tfds"))
  with pytest.raises(ValueError, match="no document of the train split has a token"):
    prepared(splits, tmp_path / "out")
  assert not (tmp_path / "out" / "corpus.json").exists()


def test_in_a_bucket_lies_the_same(splits, tmp_path, undisturbed, monkeypatch):
  bucket = buckets.stand_in(tmp_path, monkeypatch)
  (bucket / "corpus").mkdir()
  (bucket / "corpus" / "train-00000.lost.partial").write_text("a killed worker's")
  prepared(splits, "gs://bucket/corpus")
  here = contents(undisturbed)
  del here[".lock"]
  assert contents(bucket / "corpus") == here
  again = corpus.CorpusIndex.read("gs://bucket/corpus")
  assert prepared(splits, "gs://bucket/corpus") == again == corpus.CorpusIndex.read(undisturbed)


def test_a_large_vocabulary_takes_four_bytes(splits, tmp_path):
  tokenizer = wordpiece.WordPiece((*TOKENIZER.pieces, *(f"[unused{i}]" for i in range(70_000)), "zebra"))
  index = prepare.prepare(tmp_path, splits, tokenizer, shard_bytes=SMALL)
  assert index.dtype == "uint32"
  opened = Corpus.open(tmp_path, TRAIN)
  assert opened.counts()[-1] > 0
  tokens = [opened.tokens(a, b) for a, b in itertools.pairwise(opened.sentence_starts)]
  assert (np.bincount(np.concatenate(tokens), minlength=tokenizer.vocab_size) == opened.counts()).all()


# --- files that are whole or not there ------------------------------------------------------------------------------


FULL = """
import pickle, resource, signal, sys
from data import prepare
from tests.data.test_prepare import TOKENIZER
from tools import cli
splits, folder, limit = pickle.load(sys.stdin.buffer)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
cli.run(lambda: prepare.prepare(folder, splits, TOKENIZER))
"""


@pytest.mark.parametrize("limit", [1000, 6000, 66_000])
def test_no_room_for_a_file_is_one_line_and_leaves_no_half(splits, tmp_path, limit):
  job = pickle.dumps((splits, tmp_path, limit))
  done = subprocess.run([sys.executable, "-c", FULL], input=job, cwd=ROOT, capture_output=True, check=False)
  assert done.returncode == 1
  assert done.stderr.decode().count("\n") == 1
  assert done.stderr.decode().startswith("error: ")
  assert "File too large" in done.stderr.decode()
  assert not (tmp_path / "corpus.json").exists()
  assert not list(tmp_path.rglob("*.partial"))
  prepare.prepare(tmp_path, splits, TOKENIZER)
  Corpus.open(tmp_path, TRAIN)


def test_a_file_is_not_there_until_it_is_whole(tmp_path):
  def chunks():
    yield b"half"
    assert {path.suffix for path in tmp_path.iterdir()} == {".partial"}
    raise ZeroDivisionError

  with pytest.raises(ZeroDivisionError):
    shards.write_bytes(tmp_path / "a", chunks())
  with pytest.raises(ZeroDivisionError), shards.record_writer(tmp_path / "b") as write:
    [write(record) for record in chunks()]
  assert not list(tmp_path.iterdir())
  with shards.record_writer(tmp_path / "b") as write:
    write(b"record")
  assert shards.num_records(tmp_path / "b") == 1
  assert [path.name for path in tmp_path.iterdir()] == ["b"]


@pytest.mark.parametrize("remote", [False, True])
def test_two_at_one_shard_do_not_meet(tmp_path, monkeypatch, remote):
  """The slow one begins, the other writes all of it, the slow one goes on."""
  folder = buckets.stand_in(tmp_path, monkeypatch)
  path, begun, go_on = ("gs://bucket/a" if remote else folder / "a"), threading.Event(), threading.Event()

  def slow():
    with shards.attempt(), shards.record_writer(path) as write:
      write(b"one")
      begun.set()
      go_on.wait()
      write(b"two")

  thread = threading.Thread(target=slow)
  thread.start()
  begun.wait()
  with shards.attempt(), shards.record_writer(path) as write:
    write(b"one")
    write(b"two")
  whole = (folder / "a").read_bytes()
  go_on.set()
  thread.join()
  assert (folder / "a").read_bytes() == whole
  assert shards.num_records(folder / "a") == 2
  assert [path.name for path in folder.iterdir()] == ["a"]


ORPHANS = """
import os, signal, sys, time
from data import shards
from tests.data.test_prepare import report_and_sleep
shards.run([shards.Pass("test", report_and_sleep, range(2))], 2)
"""


def report_and_sleep(job):
  os.write(1, f"{os.getpid()}\n".encode())  # at once: two write to one pipe
  time.sleep(60)


def test_workers_end_with_a_killed_parent():
  command = [sys.executable, "-c", ORPHANS]
  parent = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
  workers = [psutil.Process(int(parent.stdout.readline())) for _ in range(2)]
  parent.kill()
  parent.wait()
  assert not psutil.wait_procs(workers, timeout=45)[1]
  assert parent.stderr.read() == ""  # read to its end: all that the parent started is gone


INTERRUPTED = """
from data import shards
from tests.data.test_prepare import report_and_sleep
from tools import cli
print("ready", flush=True)
cli.run(lambda: shards.run([shards.Pass("test", report_and_sleep, range(2))], 2))
"""


@pytest.mark.parametrize("workers", ["starting", "working"])
def test_an_interrupt_is_quiet(workers):
  command = [sys.executable, "-c", INTERRUPTED]
  pipe = subprocess.PIPE
  parent = subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
  assert parent.stdout.readline() == "ready\n"
  if workers == "working":
    assert all(parent.stdout.readline() for _ in range(2))
  else:
    while len(psutil.Process(parent.pid).children()) < 2:  # the tracker and a worker
      time.sleep(0.01)
  os.killpg(parent.pid, signal.SIGINT)  # as a terminal does
  assert (parent.communicate()[1], parent.returncode) == ("", 130)


def write_until_stopped(path):
  """Two write at once; the first fails when both have begun, the other would write for a minute."""
  with shards.record_writer(path) as write:
    while len(list(path.parent.glob("*.partial"))) < 2:
      time.sleep(0.01)
    if path.name == "0":
      raise ValueError("full")
    for _ in range(6000):
      write(b"record")
      time.sleep(0.01)


def test_terminated_workers_leave_no_half(tmp_path):
  with pytest.raises(ValueError, match="full"):
    shards.run([shards.Pass("test", write_until_stopped, [tmp_path / "0", tmp_path / "1"])], 2)
  assert not list(tmp_path.iterdir())


def die(job):
  os._exit(9) if job == 3 else None


def fail(job):
  raise ValueError(f"job {job} is bad")


def test_a_worker_that_dies_or_fails_is_reported():
  with pytest.raises(OSError, match="a worker process was killed"):
    shards.run([shards.Pass("test", die, range(6))], 2)
  with pytest.raises(ValueError, match="job 0 is bad"):
    shards.run([shards.Pass("test", fail, range(6))], 2)
