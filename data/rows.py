"""Rows of one or two texts as the models read them. Which layout is the model's matter; every function takes it from
the tokenizer's family unless told by `cls_last` (an XLNet may have been trained with a vocabulary of another kind).

                   one text         two texts                segment ids                  padding
  BERT, ALBERT     [CLS] A [SEP]    [CLS] A [SEP] B [SEP]    0 up to the first [SEP], 1   right, segment 0
  XLNet            A <sep> <cls>    A <sep> B <sep> <cls>    0 and 1 alike, 2 on <cls>    left, segment 4

BERT section 3; convert_single_example in XLNet's classifier_utils.py.
"""

from collections.abc import Sequence

import numpy as np

from data.tokenizers import Tokenizer

CLS_SEGMENT, PADDING_SEGMENT = 2, 4  # XLNet's; its segment ids are only compared, so no table must hold them


def layout(
  tokenizer: Tokenizer, first: Sequence[int], second: Sequence[int] | None = None, *, cls_last: bool | None = None
) -> np.ndarray:
  """int32 [length]: a row of one or two texts, given as ids. The second segment begins behind the first separator."""
  cls, sep = [tokenizer.cls_id], [tokenizer.sep_id]
  ids = [first, sep] if second is None else [first, sep, second, sep]
  return np.concatenate([*ids, cls] if _last(tokenizer, cls_last) else [cls, *ids]).astype(np.int32)


def segment_ids(
  tokenizer: Tokenizer, first: int, second: int | None = None, *, cls_last: bool | None = None
) -> np.ndarray:
  """int32 [length]: the segment ids of the layout of texts of so many ids; a separator is of the text before it."""
  counts = [first + 1, 0 if second is None else second + 1]
  if _last(tokenizer, cls_last):
    return np.repeat([0, 1, CLS_SEGMENT], [*counts, 1]).astype(np.int32)
  return np.repeat([0, 1], [1 + counts[0], counts[1]]).astype(np.int32)


def _last(tokenizer: Tokenizer, cls_last: bool | None) -> bool:
  return tokenizer.cls_last if cls_last is None else cls_last


def pad(rows: Sequence[np.ndarray], value: int, length: int = 0, left: bool = False) -> np.ndarray:
  """int32 [rows, length]: the rows, filled up with `value` behind them, or before; 0 = as long as the longest."""
  length = length or max(map(len, rows))
  sides = ((length - len(row), 0) if left else (0, length - len(row)) for row in rows)
  return np.stack(
    [np.pad(row.astype(np.int32), side, constant_values=value) for row, side in zip(rows, sides, strict=True)]
  )


def padded(
  tokenizer: Tokenizer,
  rows: Sequence[np.ndarray],
  segments: Sequence[np.ndarray],
  length: int = 0,
  *,
  cls_last: bool | None = None,
) -> dict[str, np.ndarray]:
  """Makes a batch of rows, each padded on its family's side.

  Args:
    tokenizer: its family decides the side, unless `cls_last` does.
    rows: int [length of the row] each, see `layout`.
    segments: the same, see `segment_ids`.
    length: of all rows; 0 = that of the longest.
    cls_last: rows end with the cls piece, and are padded at the left.

  Returns:
    tokens, segment_ids, sequence_ids (1, and 0 on padding): int32 [rows, length] each.
  """
  left = _last(tokenizer, cls_last)
  return {
    "tokens": pad(rows, tokenizer.pad_id, length, left),
    "segment_ids": pad(segments, PADDING_SEGMENT if left else 0, length, left),
    "sequence_ids": pad([np.ones(len(row), np.int32) for row in rows], 0, length, left),
  }
