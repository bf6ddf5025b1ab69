"""Sentence-order pairs: consecutive segments, half of them in the wrong order, and what one sentence alone becomes."""

import numpy as np
import pytest
from scipy import stats

from data.corpus import Corpus
from data.pipeline import PairSource
from tests.data.corpora import Tokenizer, numbered, write_corpus
from tests.data.test_chunks import plain_chunks
from tests.data.test_pipeline import LENGTHS, documents_of, open_source, segments, source


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
  folder = tmp_path_factory.mktemp("corpus")
  return Corpus.open(write_corpus(folder, {"train": numbered(*LENGTHS)}, shards=3, vocab_size=50_000), "train")


def in_corpus_order(a, b, label):
  return (b, a) if label else (a, b)


@pytest.mark.parametrize("single_sentence", ["", "split", "skip"])
def test_a_pair_is_two_consecutive_segments_in_one_order_or_the_other(corpus, single_sentence):
  rows = source(corpus, pair="sop", single_sentence=single_sentence).rows(np.arange(4000))
  whole = {0: 0, 1: 0}
  for a, b, label in segments(rows):
    assert len(set(documents_of(corpus, a + b))) == 1
    before, after = in_corpus_order(a, b, label)
    assert after[0] > before[-1]
    if len(a) + len(b) < 61:  # nothing was cut: the pair is a run of the corpus's tokens, which count up
      assert before + after == list(range(before[0], after[-1] + 1))
      whole[label] += 1
  assert min(whole.values()) > 500
  assert stats.binomtest(int(rows["pair_label"].sum()), 4000, 0.5).pvalue > 0.01


def test_the_label_and_the_order_are_all_that_swapping_changes(corpus):
  """The same rows with pair="none" are the same segments, always in order."""
  swapped, ordered = (
    PairSource(corpus, Tokenizer(), 64, 3, short_rate=0.2, pair=pair).rows(np.arange(2000)) for pair in ("sop", "none")
  )
  assert (ordered["pair_label"] == 0).all()
  assert {0, 1} == set(swapped["pair_label"].tolist())
  for (a, b, label), (x, y, _) in zip(segments(swapped), segments(ordered), strict=True):
    if label == 0:
      assert (a, b) == (x, y)
    elif len(a) + len(b) < 61:
      assert (b, a) == (x, y)
    else:  # which token falls at the front and which at the back is drawn for the first and the second place
      assert sorted((len(a), len(b))) == sorted((len(x), len(y)))


def test_the_split_is_uniform_over_sentence_boundaries(tmp_path):
  rows = open_source(tmp_path, [7] * 8, pair="sop", short_rate=0.0).rows(np.arange(8000))  # 56 tokens fit whole
  before = [len(in_corpus_order(*row)[0]) for row in segments(rows)]
  counts = np.bincount(before, minlength=56)
  assert counts[7:50:7].sum() == 8000
  assert stats.chisquare(counts[7:50:7]).pvalue > 0.01


def test_swapped_pairs_are_truncated_like_any_other(tmp_path):
  # 50 and 30 tokens: 61 stay, and the 50 loses all 19, each from the front or the back by a coin's toss.
  rows = open_source(tmp_path, [50, 30], pair="sop", short_rate=0.0).rows(np.arange(2000))
  fronts = []
  for a, b, label in segments(rows):
    before, after = in_corpus_order(a, b, label)
    assert after == list(range(60, 90))
    assert before == list(range(before[0], before[0] + 31))
    fronts.append(before[0] - 10)
  assert abs(np.mean(fronts) - 9.5) < 3 * np.sqrt(19 / 4 / 2000)


def test_one_sentence_is_split_between_any_two_of_its_tokens(tmp_path):
  rows = open_source(tmp_path, [12], pair="sop").rows(np.arange(6000))
  cuts = []
  for a, b, label in segments(rows):
    before, after = in_corpus_order(a, b, label)
    assert before + after == list(range(10, 22))
    cuts.append(len(before))
  assert stats.chisquare(np.bincount(cuts, minlength=12)[1:]).pvalue > 0.01
  assert stats.binomtest(int(rows["pair_label"].sum()), 6000, 0.5).pvalue > 0.01


def test_short_rows_of_one_sentence_are_split_too(corpus):
  """A short target may hold one sentence of a longer chunk: no row takes a random segment for that."""
  for a, b, _ in segments(source(corpus, pair="sop", short_rate=1.0).rows(np.arange(2000))):
    assert len(set(documents_of(corpus, a + b))) == 1


def test_skipping_leaves_out_chunks_of_one_sentence_and_splits_none(tmp_path):
  # Of the last kind of document, 30 + 40 fill a row and the 7 that follows is alone.
  documents = [[40], [20, 20], [5], [100], [30, 40, 7]] * 30
  rows = open_source(tmp_path, *documents, pair="sop", single_sentence="skip", short_rate=1.0)
  assert len(rows) == 60
  starts, seen = rows.corpus.sentence_starts, set()
  for a, b, label in segments(rows.rows(np.arange(600))):
    before, after = in_corpus_order(a, b, label)
    left, right = (np.searchsorted(starts, np.array(part) - 10, side="right") - 1 for part in (before, after))
    assert len({*left.tolist()}) == len({*right.tolist()}) == 1  # two sentences, each on its side
    assert right[0] == left[0] + 1
    seen.add((int(np.diff(starts)[left[0]]), int(np.diff(starts)[right[0]])))
  assert seen == {(20, 20), (30, 40)}


def test_the_originals_random_segment_is_a_field(corpus):
  rows = source(corpus, pair="sop", single_sentence="random", short_rate=0.0)
  chunks = plain_chunks(LENGTHS, 61)
  document, first, last = np.array(chunks)[rows.chunks(np.arange(4000))].T
  alone = last - first == 1
  made = rows.rows(np.arange(4000))
  assert len(rows) == len(chunks)
  assert (made["pair_label"][alone] == 1).all()
  assert stats.binomtest(int(made["pair_label"][~alone].sum()), int((~alone).sum()), 0.5).pvalue > 0.01
  for (a, b, _), single, own in zip(segments(made), alone, document, strict=True):
    a_document, b_document = documents_of(rows.corpus, [a[0], b[0]])
    assert a_document == own  # the random segment is always the second
    assert (b_document != own) == single


def test_next_sentence_pairs_may_be_split_as_well(tmp_path):
  """Then the labels are half and half, as the paper says, whatever the text."""
  rows = open_source(tmp_path, *[[30], [40], [12]] * 100, single_sentence="split").rows(np.arange(3000))
  assert stats.binomtest(int(rows["pair_label"].sum()), 3000, 0.5).pvalue > 0.01
  for a, b, label in segments(rows):
    assert label or b[0] == a[-1] + 1


@pytest.mark.parametrize("pair", ["sop", "none"])
def test_documents_of_one_token_are_left_out(tmp_path, pair):
  rows = open_source(tmp_path, [1], [2], [1], [1, 1], [1], pair=pair)
  assert len(rows) == 2
  for a, b, _ in segments(rows.rows(np.arange(50))):
    assert len(a) == len(b) == 1


@pytest.mark.parametrize(("documents", "single_sentence"), [([[40], [9], [70]], "skip"), ([[1], [1], [1]], "split")])
def test_a_corpus_without_a_single_pair(tmp_path, documents, single_sentence):
  rows = open_source(tmp_path, *documents, pair="sop", single_sentence=single_sentence)
  with pytest.raises(
    ValueError, match=f"split 'train' gives no pair at length 64: with config.data.single_sentence='{single_sentence}'"
  ):
    len(rows)
