"""The chunk table: every document cut into runs of whole sentences that fill a row."""

from collections.abc import Callable

import numpy as np

_PIECE = 1 << 16  # sentences looked at together: their index stays in the processor's cache


def chunk_starts(sentence_starts: np.ndarray, document_starts: np.ndarray, target: int) -> np.ndarray:
  """Cuts documents into chunks as create_instances_from_document does (BERT, create_pretraining_data.py).

  Sentences are taken one after another until they hold `target` tokens or the document ends; the sentence that reaches
  the target is still part of the chunk, so nothing falls between two chunks.

  Args:
    sentence_starts: int64 [sentences + 1], where each sentence begins in the tokens, then their end.
    document_starts: int64 [documents + 1], the first sentence of each document, then their end.
    target: tokens that fill a row.

  Returns:
    int64 [chunks + 1]: the first sentence of each chunk, then the number of sentences; chunk i ends where i + 1 begins.
  """

  def ends(begins: np.ndarray) -> np.ndarray:
    low = begins[0]
    last = np.searchsorted(sentence_starts, sentence_starts[begins[-1]] + target)
    full = low + np.searchsorted(sentence_starts[low : last + 1], sentence_starts[begins] + target)
    return np.minimum(full, document_starts[np.searchsorted(document_starts, begins, side="right")])

  return chain(len(sentence_starts) - 1, ends)


def chain(count: int, ends: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
  """Follows runs from the first sentence to the last, each beginning where the one before it ends.

  Args:
    count: sentences.
    ends: (int64 [some], neighbouring sentences) → where a run would end that began with each of them, behind it.

  Returns:
    int64 [runs + 1]: the first sentence of each run, then `count`.
  """
  pieces, sentence = [], 0
  for low in range(0, count, _PIECE):
    # Where would a run end that began with this sentence? For all of the piece at once; then follow the chain.
    jumps = memoryview(ends(np.arange(low, min(low + _PIECE, count))))
    starts = []
    while sentence < low + len(jumps):
      starts.append(sentence)
      sentence = jumps[sentence - low]
    pieces.append(np.array(starts, np.int64))
  return np.concatenate([*pieces, [count]])
