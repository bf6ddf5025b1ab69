"""Rows of whole sentences: against a plain loop and by hand, what an epoch covers, and that a row depends on its
number alone."""

import hashlib
import itertools

import numpy as np
import pytest

from data import chunks
from data.corpus import Corpus
from data.full_sentences import SentenceSource, row_starts
from data.pipeline import PairSource, batches, evaluation_batches
from tests.data.corpora import Tokenizer, numbered, write_corpus

CLS, SEP, PAD = Tokenizer.cls_id, Tokenizer.sep_id, Tokenizer.pad_id
RNG = np.random.default_rng(1)
LENGTHS = [RNG.integers(1, 30, RNG.integers(1, 25)).tolist() for _ in range(150)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
  folder = write_corpus(
    tmp_path_factory.mktemp("corpus"), {"train": numbered(*LENGTHS)}, shards=3, block=64, vocab_size=50_000
  )
  return Corpus.open(folder, "train")


def source(corpus, length=64, seed=3, **options):
  return SentenceSource(corpus, Tokenizer(), length, seed, **options)


def open_source(folder, *documents, vocab_size=1000, **options):
  splits = {"train": numbered(*documents)}
  return source(Corpus.open(write_corpus(folder, splits, vocab_size=vocab_size), "train"), **options)


def epoch(rows, number=0):
  """An epoch's rows in the order of the corpus."""
  batch = rows.rows(number * rows.num_rows + np.arange(rows.num_rows))
  order = np.argsort(batch["tokens"][:, 1])
  return {name: values[order] for name, values in batch.items()}


def plain_rows(documents, room, across):
  """Sentence by sentence: the number of tokens in each row."""
  rows, used, held = [], 0, 0  # places taken in the row, and tokens in it
  for document in documents:
    separator = int(held > 0)
    if held and not across:
      rows, used, held, separator = [*rows, held], 0, 0, 0
    for sentence in document:
      while sentence:
        piece = min(sentence, room)
        if used + separator + piece > room:
          rows, used, held, separator = [*rows, held], 0, 0, 0
        used, held, separator = used + separator + piece, held + piece, 0
        sentence -= piece
  return [*rows, held]


def test_worked_example(tmp_path):
  # Rows of 8 tokens and [CLS] and [SEP]. Behind 4 + 3 there is no room for a [SEP] and 2; the 9 are cut into 8 and 1.
  documents = [4, 3], [2], [5, 9], [1, 1]
  assert epoch(open_source(tmp_path, *documents, length=10))["tokens"].tolist() == [
    [CLS, 10, 11, 12, 13, 14, 15, 16, SEP, PAD],
    [CLS, 17, 18, SEP, 19, 20, 21, 22, 23, SEP],
    [CLS, 24, 25, 26, 27, 28, 29, 30, 31, SEP],
    [CLS, 32, SEP, 33, 34, SEP, PAD, PAD, PAD, PAD],
  ]
  assert epoch(open_source(tmp_path, *documents, length=10, across=False))["tokens"].tolist() == [
    [CLS, 10, 11, 12, 13, 14, 15, 16, SEP, PAD],
    [CLS, 17, 18, SEP, PAD, PAD, PAD, PAD, PAD, PAD],
    [CLS, 19, 20, 21, 22, 23, SEP, PAD, PAD, PAD],
    [CLS, 24, 25, 26, 27, 28, 29, 30, 31, SEP],
    [CLS, 32, SEP, PAD, PAD, PAD, PAD, PAD, PAD, PAD],
    [CLS, 33, 34, SEP, PAD, PAD, PAD, PAD, PAD, PAD],
  ]


@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize(("room", "piece"), [(1, 50), (2, 1), (13, 3), (62, 7), (62, 1 << 16), (10_000, 100)])
def test_equals_the_plain_loop(monkeypatch, room, piece, across):
  monkeypatch.setattr(chunks, "_PIECE", piece)
  rng = np.random.default_rng(room)
  documents = [rng.integers(1, 60, rng.integers(1, 8)).tolist() for _ in range(80)] + [[500], [1], [1]]
  starts = np.cumsum([0, *itertools.chain(*documents)])
  found = row_starts(starts, starts[np.cumsum([0, *map(len, documents)])], room, across)
  assert np.diff(found).tolist() == plain_rows(documents, room, across)


@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize("length", [3, 20, 64])
def test_an_epoch_takes_every_token_once_with_a_separator_behind_each_document(corpus, length, across):
  rows = source(corpus, length, across=across)
  assert set(rows.rows(np.arange(1))) == set(PairSource.blank(length))
  document = np.repeat(np.arange(len(LENGTHS)), [sum(lengths) for lengths in LENGTHS])
  for number in (0, 5):
    batch = epoch(rows, number)
    real = batch["sequence_ids"] == 1
    text = batch["tokens"][real & (batch["tokens"] >= 10)]
    np.testing.assert_array_equal(text, 10 + np.arange(corpus.num_tokens))
    for tokens in batch["tokens"]:
      held = np.trim_zeros(tokens, "b").tolist()
      assert (held[0], held[-1]) == (CLS, SEP)
      parts = [list(part) for is_text, part in itertools.groupby(held[1:], lambda token: token >= 10) if is_text]
      assert held == [CLS, *itertools.chain(*([*part, SEP] for part in parts))]
      assert [{*document[np.array(part) - 10]} for part in parts] == [
        {document[parts[0][0] - 10] + place} for place in range(len(parts))
      ]
      assert across or len(parts) == 1
    np.testing.assert_array_equal(real, batch["tokens"] != PAD)
    assert not batch["segment_ids"].any()
    assert not batch["pair_label"].any()
    assert {values.dtype.name for values in batch.values()} == {"int32"}


def test_rows_are_nearly_full(tmp_path):
  rng = np.random.default_rng(0)
  documents = [np.maximum(rng.lognormal(3, 0.6, rng.integers(5, 45)), 1).astype(int).tolist() for _ in range(60)]
  fill = lambda across: epoch(open_source(tmp_path, *documents, vocab_size=60_000, length=128, across=across))[
    "sequence_ids"
  ].mean()
  assert fill(True) > 0.85  # what a sentence that did not fit leaves free is half a sentence on average
  assert fill(False) < fill(True) - 0.04


def test_every_epoch_stage_and_seed_has_an_order_of_its_own(corpus):
  one = source(corpus)
  rows = np.arange(one.num_rows)
  orders = [one.rows(rows), one.rows(len(rows) + rows)]
  orders += [source(corpus, **change).rows(rows) for change in ({"seed": 4}, {"stage": 1})]
  firsts = [order["tokens"][:, 1] for order in orders]
  for first, second in itertools.combinations(firsts, 2):
    assert (first == second).mean() < 0.05
    assert sorted(first.tolist()) == sorted(second.tolist())


@pytest.mark.parametrize(("batch_size", "processes", "start"), [(6, 1, 4), (6, 3, 0), (24, 4, 1)])
def test_batch_size_processes_and_start_change_no_row(corpus, batch_size, processes, start):
  rows = source(corpus)
  first = rows.num_rows - 30  # into the second epoch
  first -= first % batch_size
  expected = rows.rows(first + np.arange(48))
  step = first // batch_size
  for process in range(processes):
    mine = np.arange(batch_size)[process::processes]
    read = batches(rows, batch_size, step + start, step + 48 // batch_size, mine)
    for number, batch in enumerate(read, start=start):
      for name, values in batch.items():
        np.testing.assert_array_equal(values, expected[name][number * batch_size + mine], err_msg=name)
    read.close()
  far = np.array([10**12, 3])
  np.testing.assert_array_equal(rows.rows(far)["tokens"][::-1], source(corpus).rows(far[::-1])["tokens"])


def test_evaluation_reads_an_epoch_once(corpus):
  rows = source(corpus)
  read = np.concatenate([batch["tokens"] for batch in evaluation_batches(rows, 32)])
  assert sorted(read[read >= 10].tolist()) == list(range(10, 10 + corpus.num_tokens))


@pytest.mark.parametrize(("across", "expected"), [(True, "29e0fb05ab40a59e"), (False, "cdb39d0b519bcee4")])
def test_rows_stay_what_they_were(corpus, across, expected):
  # A workdir may be continued under another version of anything below: these values must not move.
  rows = source(corpus, across=across).rows(np.arange(0, 5000, 7))
  digest = hashlib.sha256(b"".join(rows[name].astype("<i4").tobytes() for name in sorted(rows)))
  assert digest.hexdigest()[:16] == expected


def test_what_cannot_be_is_refused(corpus):
  with pytest.raises(ValueError, match="length=2 is too short for a sentence: 3 tokens is the least"):
    source(corpus, length=2)
  with pytest.raises(ValueError, match="seed=-1 must lie"):
    source(corpus, seed=-1)
  with pytest.raises(ValueError, match="another tokenizer"):
    SentenceSource(corpus, Tokenizer(fingerprint="another"), 64, 0)
