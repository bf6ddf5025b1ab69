"""Small vocabularies and questions for the tests of tasks."""

import random

from data import sentencepiece_model
from data.sentencepiece import FAMILIES, SentencePiece
from data.sentencepiece_model import CONTROL, NORMAL, UNKNOWN
from data.tasks.examples import SpanExample
from data.wordpiece import SPECIAL, WordPiece

WORDS = ("the", "cat", "dog", "sat", "on", "a", "mat", "red", "ran", "##s", "##ing", "##th", "e", "who", ",", ".", "'")


def word_pieces() -> WordPiece:
  return WordPiece((*SPECIAL, *WORDS), lowercase=True)


def sentence_pieces() -> SentencePiece:
  """Rows are XLNet's."""
  family = FAMILIES["xlnet"]
  kinds = dict.fromkeys(family.special, CONTROL) | {"<unk>": UNKNOWN}
  entries = [(piece, 0.0, kinds[piece]) for piece in family.special]
  pieces = ("▁", *(("" if word.startswith("##") else "▁") + word.removeprefix("##") for word in WORDS))
  entries += [(piece, len(piece) ** 2 / 100 - 10, NORMAL) for piece in dict.fromkeys((*pieces, *"thecadogsnmri,.'"))]
  return SentencePiece(sentencepiece_model.build(entries, b""), lowercase=True)


TOKENIZERS = {"bert": word_pieces, "xlnet": sentence_pieces}


def questions(count: int, seed: int = 0, words: int = 40) -> list[SpanExample]:
  """Questions whose answers are one to six words of a context with accents, double blanks and punctuation."""
  rng, found = random.Random(seed), []
  for number in range(count):
    some = [rng.choice(("the", "Cat", "dog", "sät", "on", "cats", "ran", "réd", "mat.", "a")) for _ in range(words)]
    context, places = "", []
    for word in some:
      context += rng.choice((" ", " ", "  ", ", "))
      places.append(len(context))
      context += word
    first = rng.randrange(words)
    last = min(first + rng.randrange(6), words - 1)
    answer = context[places[first] : places[last] + len(some[last])]
    answers = () if number % 5 == 4 else ((answer, places[first]),)
    found.append(SpanExample(str(number), "who sat?"[: -(number % 2) or None], context, answers, not answers))
  return found
