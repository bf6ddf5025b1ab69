"""Sentences of a document: one a line, or found by a splitter."""

from collections.abc import Callable

SENTENCES = ("line", "split")


def splitter(sentences: str, language: str = "en") -> Callable[[str], list[str]]:
  """Returns the function that takes a document's text to its sentences, none blank.

  Args:
    sentences: `line` says that each line is a sentence already; `split` finds sentences within each line with
      sentencex, so a line's end always ends a sentence too.
    language: the splitter's rules, an ISO 639-1 code.
  """
  if sentences == "line":
    return _lines
  if sentences != "split":
    raise ValueError(f"sentences={sentences!r} is neither line nor split")
  import sentencex  # only where it is used: it costs 20 MB

  return lambda text: [s for line in _lines(text) for s in map(str.strip, sentencex.segment(language, line)) if s]


def _lines(text: str) -> list[str]:
  return [line for line in map(str.strip, text.split("\n")) if line]
