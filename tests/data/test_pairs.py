"""Segment pairs: the original's truncation, and the distributions that its rules imply."""

import numpy as np
import pytest
from scipy import stats

from data import pairs, philox
from data.pairs import segment_pairs
from tests.data.test_chunks import starts

NEXT, RANDOM = 0, 1
KEY = philox.Key(7, 0, 1)


def plain_truncation(a, b, room):
  """truncate_seq_pair of the original, lengths alone."""
  while a + b > room:
    if a > b:
      a -= 1
    else:
      b -= 1
  return [a, b]


@pytest.mark.parametrize("room", [2, 3, 13, 14])
def test_truncation_takes_from_the_longer_segment(room):
  lengths = np.array([(a, b) for a in range(1, 40) for b in range(1, 40)])
  expected = [plain_truncation(a, b, room) for a, b in lengths.tolist()]
  assert pairs.truncated(lengths, room).tolist() == expected


def draw(documents, chunk, rows, **options):
  sentence_starts = starts([length for document in documents for length in document])
  document_starts = starts([len(document) for document in documents])
  first, last = (np.full(rows, sentence) for sentence in chunk)
  options = {"room": 125, "short_rate": 0.0, **options}
  drawn = segment_pairs(sentence_starts, document_starts, first, last, KEY, np.arange(rows), **options)
  return drawn, sentence_starts, document_starts


def test_half_are_random_and_the_split_is_uniform():
  drawn, sentence_starts, _ = draw([[9] * 8, [7] * 20, [11]], (0, 8), rows=8000)
  assert stats.binomtest(int(drawn.labels.sum()), 8000, 0.5).pvalue > 0.01
  splits = np.searchsorted(sentence_starts, drawn.lengths[:, 0])  # nothing is cut: 72 tokens and less fit
  assert stats.chisquare(np.bincount(splits, minlength=8)[1:]).pvalue > 0.01
  following = drawn.labels == NEXT
  assert (drawn.starts[following, 1] == drawn.lengths[following, 0]).all()
  assert (drawn.lengths[following].sum(axis=1) == 72).all()


def test_random_segments_come_from_every_other_document_alike():
  documents = [[10] * 3, [10] * 6, [10] * 9, [10] * 2]
  drawn, sentence_starts, document_starts = draw(documents, (3, 9), rows=12_000, room=130)  # tens: nothing is cut
  b = drawn.starts[drawn.labels == RANDOM, 1]
  sentence = np.searchsorted(sentence_starts, b)
  assert (sentence_starts[sentence] == b).all()  # B begins with a sentence
  document = np.searchsorted(document_starts, sentence, side="right") - 1
  counts = np.bincount(document, minlength=4)
  assert counts[1] == 0
  assert stats.chisquare(counts[[0, 2, 3]]).pvalue > 0.01
  within = np.bincount(sentence[document == 2] - document_starts[2], minlength=9)
  assert stats.chisquare(within).pvalue > 0.01


def test_random_segments_fill_the_target():
  drawn, sentence_starts, document_starts = draw([[20, 20, 20], [5] * 30], (0, 3), rows=2000, room=60)
  random = drawn.labels == RANDOM
  left = sentence_starts[document_starts[2]] - drawn.starts[random, 1]  # a document's end is an end
  assert np.unique(drawn.lengths[random, 0]).tolist() == [20, 40]
  assert (drawn.lengths[random, 1] == np.minimum(60 - drawn.lengths[random, 0], left)).all()
  assert (left < 20).any()


def test_random_segments_take_whole_sentences_before_they_are_cut():
  drawn, *_ = draw([[20, 20, 20], [7] * 300], (0, 3), rows=500, room=60)
  # 40 tokens are wanted beside 20, or 20 beside 40. Six sentences are 42, and lose two; three are 21, and A loses one.
  found = np.unique(drawn.lengths[drawn.labels == RANDOM], axis=0).tolist()
  assert [pair for pair in found if sum(pair) == 60] == [[20, 40], [39, 21]]


def test_one_sentence_chunks_always_take_a_random_segment():
  drawn, *_ = draw([[30], [10] * 5], (0, 1), rows=500)
  assert (drawn.labels == RANDOM).all()
  assert (drawn.starts[:, 0] == 0).all()
  assert (drawn.lengths[:, 0] == 30).all()
  assert (drawn.starts[:, 1] >= 30).all()


def test_cut_tokens_fall_from_front_and_back_alike():
  # One sentence of 300 tokens beside another: 62 and 63 stay of them, so 237 or 238 tokens each fall by a coin's toss.
  drawn, *_ = draw([[300], [300]], (0, 1), rows=4000)
  assert (drawn.lengths == [63, 62]).all()
  for side, cut in enumerate((237, 238)):
    front = drawn.starts[:, side] - 300 * side
    assert abs(front.mean() - cut / 2) < 3 * np.sqrt(cut / 4 / 4000)
    assert abs(front.var() / (cut / 4) - 1) < 3 * np.sqrt(2 / 4000)
  fronts = drawn.starts - [0, 300]
  assert abs(np.corrcoef(fronts.T)[0, 1]) < 3 / np.sqrt(4000)


def test_short_targets_are_drawn_at_their_rate_and_uniformly():
  # With sentences of one token a pair is as long as its target, if B follows.
  drawn, *_ = draw([[1] * 30, [1] * 40], (0, 30), rows=20_000, room=30, short_rate=0.1)
  lengths = drawn.lengths[drawn.labels == NEXT].sum(axis=1)
  counts = np.bincount(lengths, minlength=31)
  assert counts[:2].sum() == 0
  share = 0.1 * 28 / 29  # 2 … 30 are equally likely, and 30 is no shorter
  assert stats.binomtest(int(counts[:30].sum()), len(lengths), share).pvalue > 0.01
  assert stats.chisquare(counts[2:30]).pvalue > 0.01


def test_short_targets_take_the_chunks_first_sentences():
  drawn, *_ = draw([[10] * 12, [5] * 40], (0, 12), rows=3000, short_rate=1.0)
  following = drawn.labels == NEXT
  totals = drawn.lengths[following].sum(axis=1)
  assert (drawn.starts[:, 0] == 0).all()
  assert np.unique(totals).tolist() == list(range(20, 121, 10))  # whole sentences, at least two


@pytest.mark.parametrize("length", [1, 64, 65, 100_000])
def test_any_sentence_length(length):
  drawn, *_ = draw([[length] * 3, [length], [1] * 5], (0, 3), rows=200)
  assert (drawn.lengths >= 1).all()
  assert (drawn.lengths.sum(axis=1) <= 125).all()
  assert (drawn.starts >= 0).all()
  ends = drawn.starts + drawn.lengths
  assert (ends[:, 0] <= 3 * length).all()
  assert (ends[:, 1] <= 4 * length + 5).all()
