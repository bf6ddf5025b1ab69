"""Layouts of one text and of two, for both kinds of models."""

import numpy as np
import pytest

from data import sentencepiece, wordpiece
from data.rows import layout, pad, padded, segment_ids
from tests.data.test_sentencepiece import model


def tokenizer(family):
  if family == "bert":
    return wordpiece.WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])
  return sentencepiece.SentencePiece(model("▁a", family=sentencepiece.FAMILIES[family]))


# Ids of [CLS], [SEP] and padding, from the releases.
IDS = {"bert": (2, 3, 0), "albert": (2, 3, 0), "xlnet": (3, 4, 5)}


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_cls_comes_first_in_bert_and_albert(family):
  own = tokenizer(family)
  cls, sep, filler = IDS[family]
  rows = [layout(own, [11, 12]), layout(own, [11, 12], [13])]
  assert [row.tolist() for row in rows] == [[cls, 11, 12, sep], [cls, 11, 12, sep, 13, sep]]
  batch = padded(own, rows, [segment_ids(own, 2), segment_ids(own, 2, 1)], length=7)
  assert batch["tokens"].tolist() == [
    [cls, 11, 12, sep, filler, filler, filler],
    [cls, 11, 12, sep, 13, sep, filler],
  ]
  assert batch["segment_ids"].tolist() == [[0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 0]]
  assert batch["sequence_ids"].tolist() == [[1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1, 0]]


def test_cls_comes_last_in_xlnet_and_padding_first():
  own = tokenizer("xlnet")
  cls, sep, filler = IDS["xlnet"]
  rows = [layout(own, [11, 12]), layout(own, [11, 12], [13])]
  assert [row.tolist() for row in rows] == [[11, 12, sep, cls], [11, 12, sep, 13, sep, cls]]
  batch = padded(own, rows, [segment_ids(own, 2), segment_ids(own, 2, 1)], length=7)
  assert batch["tokens"].tolist() == [
    [filler, filler, filler, 11, 12, sep, cls],
    [filler, 11, 12, sep, 13, sep, cls],
  ]
  assert batch["segment_ids"].tolist() == [[4, 4, 4, 0, 0, 0, 2], [4, 0, 0, 0, 1, 1, 2]]
  assert batch["sequence_ids"].tolist() == [[0, 0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1]]


@pytest.mark.parametrize("family", IDS)
@pytest.mark.parametrize("second", [None, 0, 3])
def test_segment_ids_fit_the_layout(family, second):
  own = tokenizer(family)
  row = layout(own, range(20, 25), None if second is None else range(30, 30 + second))
  assert len(segment_ids(own, 5, second)) == len(row)
  batch = padded(own, [row, row[:1]], [segment_ids(own, 5, second), np.zeros(1)])
  assert {values.dtype.name for values in batch.values()} == {"int32"}
  assert batch["tokens"].shape == (2, len(row))


def test_padding_either_side():
  rows = [np.array([1, 2, 3]), np.array([4])]
  assert pad(rows, 9).tolist() == [[1, 2, 3], [4, 9, 9]]
  assert pad(rows, 9, 4, left=True).tolist() == [[9, 1, 2, 3], [9, 9, 9, 4]]


@pytest.mark.parametrize(("family", "eod"), [("bert", None), ("albert", None), ("xlnet", 7)])
def test_only_xlnet_ends_documents_with_a_piece(family, eod):
  assert tokenizer(family).eod_id == eod
