"""Rows as the models read them: [CLS] A [SEP] for a text, [CLS] A [SEP] B [SEP] for two (BERT section 3)."""

from collections.abc import Sequence

import numpy as np

from data.tokenizers import Tokenizer


def layout(tokenizer: Tokenizer, first: Sequence[int], second: Sequence[int] | None = None) -> np.ndarray:
  """int32 [length]: a row of one or two texts, given as ids. The second segment begins behind the first [SEP]."""
  ids = [[tokenizer.cls_id], first, [tokenizer.sep_id]]
  if second is not None:
    ids += [second, [tokenizer.sep_id]]
  return np.concatenate(ids).astype(np.int32)


def pad(rows: Sequence[np.ndarray], value: int, length: int = 0) -> np.ndarray:
  """int32 [rows, length]: the rows, filled up with `value`; 0 = as long as the longest."""
  length = length or max(map(len, rows))
  return np.stack([np.pad(row.astype(np.int32), (0, length - len(row)), constant_values=value) for row in rows])
