"""What an example of each kind is. `label` is None where it is not known, as in the test sets of leaderboards.

`where` is the file and the line that the example comes from, for messages.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class TextExample:
  """One text or a pair, and its class or score."""

  id: str
  texts: tuple[str, ...]
  label: str | float | None = None
  where: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class ChoiceExample:
  """A context, and what might follow it or answer the question about it; an option holds its question.

  Attributes:
    label: the right option's number, from 0.
    group: what scores are also given for alone (RACE's "middle" and "high"), or "".
  """

  id: str
  context: str
  options: tuple[str, ...]
  label: int | None = None
  group: str = ""
  where: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class TagExample:
  """The words of a sentence, and the tag of each: O, or B- and I- with a type (IOB2), whatever the file has."""

  id: str
  words: tuple[str, ...]
  tags: tuple[str, ...] | None = None
  where: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class SpanExample:
  """A question about a context, and its answers: their text, and the character of the context at which each begins.

  Attributes:
    answers: none where the question has no answer (`impossible`), and where they are not known.
    impossible: None where it is not known.
  """

  id: str
  question: str
  context: str
  answers: tuple[tuple[str, int], ...] = ()
  impossible: bool | None = None
  title: str = ""
  where: str = dataclasses.field(default="", compare=False)


Example = TextExample | ChoiceExample | TagExample | SpanExample
