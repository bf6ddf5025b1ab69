"""Windows over a context, each with the question, and where the answer stands in them.

BERT's run_squad.py: convert_examples_to_features; XLNet's of that name, whose rows have the context first. Answers are
found by the characters that tokens stand for, so the last of them needs no guess about white space.
"""

import functools
from collections.abc import Sequence

import numpy as np

from data.tasks.examples import SpanExample
from data.tasks.flat import Features, flat
from data.tokenizers import Tokenizer

NOWHERE = -1


def build(
  examples: Sequence[SpanExample],
  tokenizer: Tokenizer,
  length: int,
  last: bool,
  doc_stride: int,
  max_query_length: int,
) -> Features:
  """Lays out questions; see `features.build`. The first of several answers is the target."""
  if doc_stride < 1:
    raise ValueError(f"doc_stride={doc_stride} must be at least 1")
  encode = functools.lru_cache(maxsize=16)(tokenizer.encode_with_offsets)  # a context comes with its questions
  layouts, counts, answers, spans, best, allowed, cut = [], [], [], [], [], [], 0
  for e in examples:
    query, context, of_context = tokenizer.encode(e.question), *encode(e.context)
    for what, ids in (("question", query), ("context", context)):
      if not len(ids):
        raise ValueError(f"{e.where}: the {what} of {e.id} is a text that no token stands for")
    cut += len(query) > max_query_length
    query = query[:max_query_length]
    room = length - 3 - len(query)
    if room < 1:
      said = f"length={length} leaves no token of the context beside the question of {e.id}, of {len(query)} (and 3)"
      shorter = f", or max_query_length={(length - 3) // 2}" if length > 4 else ""
      raise ValueError(f"{e.where}: {said}; use a greater length{shorter}")
    bounds = window_bounds(len(context), room, doc_stride)
    most = max_context(bounds, len(context))
    answer = token_span(of_context, *e.answers[0]) if e.answers else None
    counts.append(len(bounds))
    for window, (start, stop) in enumerate(bounds):
      at = 0 if last else 2 + len(query)
      whole = stop - start + len(query) + 3
      cls = whole - 1 if last else 0
      inside = slice(at, at + stop - start)
      layouts.append((context[start:stop], query) if last else (query, context[start:stop]))
      spans.append(_within(whole, inside, of_context[start:stop], NOWHERE))
      best.append(_within(whole, inside, most[start:stop] == window, False))
      allowed.append(_within(whole, inside, True, False))
      allowed[-1][cls] = True
      if answer and start <= answer[0] and answer[1] < stop:
        answers.append((answer[0] - start + at, answer[1] - start + at))
      else:
        answers.append((NOWHERE, NOWHERE) if e.impossible is None else (cls, cls))
  return flat(
    "span",
    layouts,
    counts,
    tokenizer,
    last,
    spans=np.concatenate(spans),
    max_context=np.concatenate(best),
    allowed=np.concatenate(allowed),
    answers=np.array(answers, np.int32),
    truncated=cut,
  )


def window_bounds(tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
  """(start, stop) of windows of at most `room` tokens that begin `stride` apart, or follow one another if that is less,
  until one ends with the context."""
  bounds = [(0, min(room, tokens))]
  while bounds[-1][1] < tokens:
    start = bounds[-1][0] + min(stride, room)
    bounds.append((start, min(start + room, tokens)))
  return bounds


def max_context(bounds: Sequence[tuple[int, int]], tokens: int) -> np.ndarray:
  """int64 [tokens]: for each token of the context the window that shows most around it: min(tokens at its left, at its
  right) + 0.01 × the window's tokens, the first of equals (_check_is_max_context)."""
  at = np.arange(tokens)
  start, stop = (np.array(x)[:, None] for x in zip(*bounds, strict=True))
  score = 100 * np.minimum(at - start, stop - 1 - at) + stop - start  # in hundredths, so that equals are equal
  return np.where((at >= start) & (at < stop), score, -1).argmax(axis=0)


def token_span(spans: np.ndarray, text: str, start: int) -> tuple[int, int] | None:
  """First and last token of the fewest that hold an answer's characters; None where no token stands for any of them.

  Args:
    spans: int [tokens, 2], each token's characters.
    text: the answer.
    start: its first character in the context.
  """
  found = np.flatnonzero((spans[:, 1] > start) & (spans[:, 0] < start + len(text)) & (spans[:, 1] > spans[:, 0]))
  return (int(found[0]), int(found[-1])) if len(found) else None


def _within(whole: int, inside: slice, values, outside) -> np.ndarray:
  values = np.asarray(values)
  result = np.full((whole, *values.shape[1:]), outside, values.dtype)
  result[inside] = values
  return result
