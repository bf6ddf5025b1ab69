"""Text made up for tests: documents of sentences over a small lexicon, the same from the same seed."""

import pathlib

import numpy as np

SUBJECTS = ("the cat", "a dog", "the old king", "my sister", "the river", "a small town", "the engine", "paris")
VERBS = ("sees", "follows", "crosses", "remembers", "builds", "sings to", "waits for", "forgets")
OBJECTS = (
  "the bridge",
  "a letter",
  "the moon",
  "an unhappily lost coin",
  "the forest",
  "a song",
  "the harbour",
  "winter",
)


def sentence(rng: np.random.Generator) -> str:
  parts = (rng.choice(words) for words in (SUBJECTS, VERBS, OBJECTS))
  return " ".join(parts).capitalize() + "."


def write(path: pathlib.Path, documents: int, seed: int = 0) -> pathlib.Path:
  """Writes documents of 3 to 12 sentences, one a line, with a blank line between documents."""
  rng = np.random.default_rng(seed)
  texts = ["\n".join(sentence(rng) for _ in range(rng.integers(3, 13))) for _ in range(documents)]
  path.write_text("\n\n".join(texts) + "\n")
  return path
