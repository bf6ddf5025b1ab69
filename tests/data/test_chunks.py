"""The chunk table against the plain loop of the original."""

import numpy as np
import pytest

from data import chunks
from data.chunks import chunk_starts


def plain_chunks(documents, target):
  """The loop of create_instances_from_document: [(document, first sentence, one past its last)], by global sentence."""
  result, base = [], 0
  for document, lengths in enumerate(documents):
    current, length = [], 0
    for sentence, tokens in enumerate(lengths):
      current.append(base + sentence)
      length += tokens
      if sentence == len(lengths) - 1 or length >= target:
        result.append((document, current[0], current[-1] + 1))
        current, length = [], 0
    base += len(lengths)
  return result


def starts(lengths):
  return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def table(documents, target):
  sentence_starts = starts([length for document in documents for length in document])
  return chunk_starts(sentence_starts, starts([len(document) for document in documents]), target)


def test_worked_example():
  #          chunks of at least 10 tokens: 4+7 | 3     10 | 9+30 | 1     25
  assert table([[4, 7, 3], [10, 9, 30, 1], [25]], 10).tolist() == [0, 2, 3, 4, 6, 7, 8]


@pytest.mark.parametrize("target", [1, 2, 13, 125, 10_000])
@pytest.mark.parametrize("piece", [1, 3, 50, 1 << 16])
def test_equals_the_plain_loop(monkeypatch, target, piece):
  monkeypatch.setattr(chunks, "_PIECE", piece)
  rng = np.random.default_rng(target)
  documents = [rng.integers(1, 60, rng.integers(1, 40)).tolist() for _ in range(60)]
  expected = plain_chunks(documents, target)
  found = table(documents, target)
  assert found[:-1].tolist() == [first for _, first, _ in expected]
  assert found[1:].tolist() == [last for _, _, last in expected]


def test_one_sentence_may_be_longer_than_many_chunks():
  assert table([[1_000_000], [1, 1_000_000, 1]], 125).tolist() == [0, 1, 3, 4]


def test_count_depends_on_the_text_and_length_alone():
  rng = np.random.default_rng(0)
  documents = [rng.integers(5, 40, 30).tolist() for _ in range(50)]
  assert [len(table(documents, length - 3)) - 1 for length in (64, 128, 512)] == [
    len(plain_chunks(documents, length - 3)) for length in (64, 128, 512)
  ]
