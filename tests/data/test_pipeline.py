"""Batches: their layout, what an epoch covers, and that a row depends on nothing but its number."""

import hashlib
import itertools
import threading

import numpy as np
import pytest
from scipy import stats

from data.corpus import Corpus
from data.pipeline import PairSource, batches, evaluation_batches
from tests.data.corpora import Tokenizer, numbered, write_corpus
from tests.data.test_chunks import plain_chunks

RNG = np.random.default_rng(1)
LENGTHS = [RNG.integers(1, 30, RNG.integers(1, 25)).tolist() for _ in range(150)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
  folder = tmp_path_factory.mktemp("corpus")
  return Corpus.open(
    write_corpus(folder, {"train": numbered(*LENGTHS)}, shards=3, block=64, vocab_size=50_000), "train"
  )


def source(corpus, length=64, seed=3, **options):
  return PairSource(corpus, Tokenizer(), length, seed, **options)


def open_source(folder, *documents, length=64, **options):
  return source(Corpus.open(write_corpus(folder, {"train": numbered(*documents)}), "train"), length, **options)


def segments(batch):
  """Takes rows apart: [(A, B, label)] as lists of tokens, after checking every id of the layout."""
  result = []
  for tokens, segment_ids, sequence_ids, label in zip(*batch.values(), strict=True):
    first, second = np.flatnonzero(tokens == Tokenizer.sep_id).tolist()
    length = len(tokens)
    assert tokens[0] == Tokenizer.cls_id
    assert (tokens[second + 1 :] == Tokenizer.pad_id).all()
    assert segment_ids.tolist() == [0] * (first + 1) + [1] * (second - first) + [0] * (length - second - 1)
    assert sequence_ids.tolist() == [1] * (second + 1) + [0] * (length - second - 1)
    a, b = tokens[1:first].tolist(), tokens[first + 1 : second].tolist()
    assert a
    assert b
    result.append((a, b, int(label)))
  return result


def equal(a, b):
  assert a.keys() == b.keys()
  for name in a:
    np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def documents_of(corpus, tokens):
  """The document of each token of a `numbered` corpus."""
  sentences = np.searchsorted(corpus.sentence_starts, np.asarray(tokens) - 10, side="right") - 1
  return np.searchsorted(corpus.document_starts, sentences, side="right") - 1


def test_layout_and_types(corpus):
  rows = source(corpus).rows(np.arange(500))
  assert {name: (values.dtype.name, values.shape) for name, values in rows.items()} == {
    "tokens": ("int32", (500, 64)),
    "segment_ids": ("int32", (500, 64)),
    "sequence_ids": ("int32", (500, 64)),
    "pair_label": ("int32", (500,)),
  }
  for a, b, _ in segments(rows):
    assert a == list(range(a[0], a[-1] + 1))
    assert b == list(range(b[0], b[-1] + 1))


def test_next_continues_and_random_is_elsewhere(corpus):
  continued = 0
  for a, b, label in segments(source(corpus).rows(np.arange(3000))):
    (a_document,), (b_document,) = set(documents_of(corpus, a)), set(documents_of(corpus, b))
    if label:
      assert a_document != b_document
    else:
      assert a_document == b_document
      assert b[0] > a[-1]
      if len(a) + len(b) < 61:  # nothing was cut
        assert b[0] == a[-1] + 1
        continued += 1
  assert continued > 100


def test_rate_of_random_next(corpus):
  epochs = source(corpus, short_rate=0.0)
  chunks = plain_chunks(LENGTHS, 61)
  assert len(epochs) == len(chunks)
  single = np.array([last - first == 1 for _, first, last in chunks])
  rows = np.arange(10 * len(epochs))
  labels = epochs.rows(rows)["pair_label"]
  alone = single[epochs.chunks(rows)]
  assert alone.sum() == 10 * single.sum() > 0
  assert (labels[alone] == 1).all()
  assert stats.binomtest(int(labels[~alone].sum()), int((~alone).sum()), 0.5).pvalue > 0.01


def test_an_epoch_takes_every_token_once_except_what_random_segments_displace(tmp_path):
  # Three sentences of 5 tokens fill a row of 15 + 3: nothing is cut.
  fitting = open_source(tmp_path, *[[5] * 3 * n for n in range(1, 8)], length=18, short_rate=0.0)
  total = fitting.corpus.num_tokens
  for epoch in range(3):
    seen, excused = np.zeros(total, int), np.zeros(total, bool)
    for a, b, label in segments(fitting.rows(epoch * len(fitting) + np.arange(len(fitting)))):
      np.add.at(seen, np.array(a) - 10, 1)
      if label == 0:
        np.add.at(seen, np.array(b) - 10, 1)
      else:
        chunk = (a[0] - 10) // 15
        excused[15 * chunk : 15 * (chunk + 1)] = True
    assert seen.max() == 1
    assert excused[seen == 0].all()
    assert (seen == 0).any()


def test_every_epoch_takes_every_chunk_in_another_order(corpus):
  epochs = source(corpus)
  orders = [epochs.chunks(epoch * len(epochs) + np.arange(len(epochs))) for epoch in range(5)]
  for order in orders:
    assert sorted(order.tolist()) == list(range(len(epochs)))
  for one, other in itertools.combinations([*orders, np.arange(len(epochs))], 2):
    assert (one == other).mean() < 0.03


def test_every_epoch_makes_other_pairs_of_a_chunk(corpus):
  epochs = source(corpus)
  first, second = np.arange(len(epochs)), len(epochs) + np.arange(len(epochs))
  by_chunk = [epochs.rows(rows[np.argsort(epochs.chunks(rows))]) for rows in (first, second)]
  same = (by_chunk[0]["tokens"] == by_chunk[1]["tokens"]).all(axis=1)
  assert same.mean() < 0.25


@pytest.mark.parametrize("change", [{"seed": 4}, {"stage": 1}])
def test_seeds_and_stages_are_independent(corpus, change):
  rows = np.arange(200)
  one, other = source(corpus), source(corpus, **change)
  assert (one.chunks(rows) == other.chunks(rows)).mean() < 0.05
  assert 0.3 < (one.rows(rows)["pair_label"] == other.rows(rows)["pair_label"]).mean() < 0.7


def test_epochs_of_one_seed_are_not_those_of_the_next_seed(corpus):
  one, other = source(corpus, seed=3), source(corpus, seed=4)
  rows = np.arange(len(one))
  assert (one.chunks(rows + len(one)) != other.chunks(rows)).any()


def test_a_row_depends_on_its_number_alone(corpus):
  rows = source(corpus)
  numbers = np.array([0, 1, 5, len(rows) - 1, len(rows), 12_345, 10**12])
  together = rows.rows(numbers)
  again = source(corpus).rows(numbers[::-1])
  equal(together, {name: values[::-1] for name, values in again.items()})
  for place, number in enumerate(numbers.tolist()):
    equal(rows.example(number), {name: values[place] for name, values in together.items()})


@pytest.mark.parametrize(("batch_size", "processes"), [(1, 1), (6, 1), (6, 2), (6, 3), (24, 4)])
def test_batch_size_processes_and_start_change_no_row(corpus, batch_size, processes):
  rows = source(corpus)
  expected = rows.rows(np.arange(48))
  share = batch_size // processes
  start = 24 // batch_size
  for process in range(processes):
    mine = slice(process * share, (process + 1) * share)
    read = batches(rows, batch_size, start, 48 // batch_size, mine)
    for step, batch in zip(range(start, 48 // batch_size), read, strict=True):
      place = slice(step * batch_size + mine.start, step * batch_size + mine.stop)
      equal(batch, {name: values[place] for name, values in expected.items()})
    read.close()


def test_seeking_far_and_closing(corpus):
  before = set(threading.enumerate())
  read = batches(source(corpus), 4, 10**9, 2 * 10**9)
  equal(next(read), source(corpus).rows(4 * 10**9 + np.arange(4)))
  started = set(threading.enumerate()) - before
  assert len(started) == 1
  read.close()
  for thread in started:
    thread.join(timeout=60)
    assert not thread.is_alive()


@pytest.mark.parametrize(("pair", "expected"), [("nsp", "2f6f4af7d816974d"), ("sop", "c21bddcd48585ca7")])
def test_batches_stay_what_they_were(corpus, pair, expected):
  # A workdir may be continued under another version of anything below: these values must not move.
  rows = source(corpus, pair=pair).rows(np.arange(0, 5000, 7))
  digest = hashlib.sha256(b"".join(rows[name].astype("<i4").tobytes() for name in sorted(rows)))
  assert digest.hexdigest()[:16] == expected


def test_a_corpus_shorter_than_one_batch(tmp_path):
  short = open_source(tmp_path, [20, 20], [30, 30], [25, 5])
  assert len(short) == 3
  read = batches(short, 8, 0, 2)
  for step, batch in enumerate(read):
    assert len(segments(batch)) == 8
    numbers = step * 8 + np.arange(8)
    for epoch in np.unique(numbers // 3):
      whole = short.chunks(3 * epoch + np.arange(3))
      assert sorted(whole.tolist()) == [0, 1, 2]
  read.close()


def test_documents_of_one_sentence(tmp_path):
  rows = open_source(tmp_path, [40], [3], [200], [9]).rows(np.arange(40))
  assert (rows["pair_label"] == 1).all()
  assert len(segments(rows)) == 40


def test_evaluation_is_one_epoch_and_pads_the_last_batch(corpus):
  rows = source(corpus)
  count = len(rows)
  batch_size = next(size for size in range(32, 64) if count % size)
  read = list(evaluation_batches(rows, batch_size))
  assert len(read) == -(-count // batch_size)
  assert {batch["tokens"].shape for batch in read} == {(batch_size, 64)}
  joined = {name: np.concatenate([batch[name] for batch in read]) for name in read[0]}
  equal({name: values[:count] for name, values in joined.items()}, rows.rows(np.arange(count)))
  for values in joined.values():
    assert (values[count:] == 0).all()


def test_evaluation_is_the_same_each_time_and_on_any_number_of_processes(corpus):
  rows = source(corpus)
  count = len(rows)
  whole = list(evaluation_batches(rows, count + 5, 4))
  assert len(whole) == 1
  halves = [
    list(evaluation_batches(rows, count + 5, 4, part)) for part in (slice(0, count - 3), slice(count - 3, None))
  ]
  equal(whole[0], {name: np.concatenate([half[0][name] for half in halves]) for name in whole[0]})
  assert len(list(evaluation_batches(rows, 4, 3))) == 3


def test_a_single_document_has_no_random_next(tmp_path):
  for options in ({}, {"pair": "nsp", "single_sentence": "split"}, {"pair": "sop", "single_sentence": "random"}):
    with pytest.raises(ValueError, match="split 'train' has a single document"):
      open_source(tmp_path, [20, 20], **options)


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"length": 4}, "length=4 is too short"),
    ({"seed": -1}, "seed=-1 must lie"),
    ({"seed": 1 << 32}, "must lie"),
    ({"short_rate": 1.5}, "short_rate=1.5 must lie"),
    ({"pair": "nps"}, "pair='nps' is unknown; use one of nsp, sop, none"),
    ({"single_sentence": "merge"}, "single_sentence='merge' is unknown; use one of split, skip, random"),
  ],
)
def test_fields_out_of_range(corpus, options, message):
  with pytest.raises(ValueError, match=message):
    source(corpus, **options)


def test_the_shortest_row_holds_one_token_a_side(corpus):
  for a, b, _ in segments(source(corpus, length=5).rows(np.arange(100))):
    assert len(a) == len(b) == 1


def test_another_tokenizer_is_refused(corpus):
  with pytest.raises(ValueError, match="another tokenizer"):
    PairSource(corpus, Tokenizer(fingerprint="another"), 64, 0)
