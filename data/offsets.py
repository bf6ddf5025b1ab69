"""Where pieces stand in the text: spans of characters, and how they survive what a tokenizer does to text first.

A span is [start, end) in characters of the text as it was given. A piece that stands for no character of its own (a
blank alone) has an empty span.
"""

import unicodedata
from collections.abc import Sequence

import numpy as np

_NOTHING = np.zeros((0, 2), np.int32)


def lowered(characters: Sequence[str], origins: Sequence[int]) -> tuple[list[str], list[int]]:
  """Lowercases characters that stand together, and says where each of the results comes from.

  The text is lowered as a whole, because a final sigma is another letter than one inside a word.
  """
  whole = "".join(characters).lower()
  places = [origin for c, origin in zip(characters, origins, strict=True) for _ in c.lower()]
  return list(whole), places


def through(origins: Sequence[int], ends: Sequence[int], spans: Sequence[tuple[int, int]]) -> np.ndarray:
  """int32 [pieces, 2]: spans of a changed text, in characters of the text before the change.

  Args:
    origins: for each character of the changed text, the first character that it stands for.
    ends: one past the last of these.
    spans: in characters of the changed text.
  """
  if not len(spans):
    return _NOTHING
  last = max(len(origins) - 1, 0)
  bounds = [(origins[min(a, last)], ends[b - 1] if b > a else origins[min(a, last)]) for a, b in spans]
  return np.array(bounds, np.int32)


def trimmed(text: str, spans: np.ndarray) -> np.ndarray:
  """int32 [pieces, 2]: the spans without white space at their ends, and with the marks that follow.

  Accents and invisible characters that a tokenizer drops belong to the character before them, so that a piece's span
  is all that its letters look like in the text.
  """
  spans = np.asarray(spans, np.int32).reshape(-1, 2).copy()
  for i, (start, end) in enumerate(spans.tolist()):
    while start < end and text[start].isspace():
      start += 1
    while end > start and text[end - 1].isspace():
      end -= 1
    spans[i] = start, end
  if len(spans) and not text.isascii():
    bounds = [*spans[1:, 0].tolist(), len(text)]
    for i, bound in enumerate(bounds):
      start, end = spans[i].tolist()
      while start < end < bound and _is_mark(text[end]):
        end += 1
      spans[i, 1] = end
  return spans


def _is_mark(c: str) -> bool:
  return unicodedata.category(c) in ("Mn", "Me", "Cf") or unicodedata.combining(c) > 0
