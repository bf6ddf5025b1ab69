"""Which gold answers a tokenizer's windows can give back, and why not the others."""

import collections
import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from data.tasks.examples import SpanExample
from data.tasks.flat import Features
from data.tasks.windows import token_span

EXACT = "exact"
BEGINS, ENDS = "begins inside a piece", "ends inside a piece"
NO_WINDOW, NO_TOKEN, BLANK = "in no window", "no token", "white space at an end"


def one_each(examples: Iterable[SpanExample]) -> list[SpanExample]:
  """Each distinct answer of each question as a question of its own, so that it is the target."""
  return [
    dataclasses.replace(e, id=f"{e.id}-{i}", answers=(answer,))
    for e in examples
    for i, answer in enumerate(dict.fromkeys(e.answers))
  ]


def given_back(examples: Sequence[SpanExample], features: Features) -> list[str | None]:
  """The characters that the target's tokens of each question stand for; None where no window has a target."""
  result = []
  for i, example in enumerate(examples):
    texts = set()
    for s in range(features.first[i], features.first[i + 1]):
      first, last = features.answers[s]
      if first not in (-1, features.cls[s]):
        spans = features.spans[features.slice(s)]
        texts.add(example.context[spans[first, 0] : spans[last, 1]])
    assert len(texts) < 2, f"{example.where}: windows with different answers {texts}"
    result.append(next(iter(texts), None))
  return result


def report(examples: Iterable[SpanExample], features: Features) -> dict[str, int]:
  """Counts the distinct answers of each question by what becomes of them, see `fates`."""
  return dict(collections.Counter(fates(examples, features)))


def fates(examples: Iterable[SpanExample], features: Features) -> list[str]:
  """What becomes of the distinct answers of each question, in order.

  EXACT: some window has tokens that stand for these very characters. Otherwise the answer BEGINS or ENDS inside a piece
  (the fewest whole pieces around it are more), it has white space at an end, all its tokens are in NO_WINDOW at once,
  or no token stands for any of its characters.
  """
  result = []
  for i, example in enumerate(examples):
    windows = [features.spans[features.slice(s)] for s in range(features.first[i], features.first[i + 1])]
    context = np.unique(np.concatenate(windows), axis=0)
    result += [_fate(text, start, context, windows) for text, start in dict.fromkeys(example.answers)]
  return result


def _fate(text: str, start: int, context: np.ndarray, windows: list[np.ndarray]) -> str:
  held = _held(context, text, start)
  wanted = (start, start + len(text))
  if held is None:
    return NO_TOKEN
  if held == wanted:
    return EXACT if any(_held(spans, text, start) == wanted for spans in windows) else NO_WINDOW
  if held == (start + len(text) - len(text.lstrip()), start + len(text.rstrip())):
    return BLANK
  return BEGINS if held[0] < start else ENDS


def _held(spans: np.ndarray, text: str, start: int) -> tuple[int, int] | None:
  """The characters of the fewest whole tokens that hold an answer."""
  found = token_span(spans, text, start)
  return None if found is None else (int(spans[found[0], 0]), int(spans[found[1], 1]))
