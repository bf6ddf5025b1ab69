"""Puts the words of a domain into a WordPiece vocabulary, and rows for them into the model.

A word takes the place of an [unusedN] piece, which no model was ever trained on; when none is left, the vocabulary
grows. Its row is the mean of the rows of the pieces that the word was cut into before: the model reads the new word as
it read the pieces, and learns from there (the original's README only says that the slots may be replaced).
"""

import dataclasses
import re
from collections.abc import Iterable, Sequence

import flax.traverse_util
import numpy as np

from data.wordpiece import PREFIX, WordPiece, word_splitter
from pretrained import names
from pretrained.load import Pretrained

_UNUSED = re.compile(r"\[unused\d+\]")


def add_words(pretrained: Pretrained, words: Iterable[str]) -> tuple[Pretrained, list[str]]:
  """Returns the model with the words in its vocabulary, and the words that are new in it.

  Args:
    pretrained: a model with a WordPiece vocabulary.
    words: each a word as the tokenizer splits text, or the end of words after "##"; known ones are passed over.

  Raises:
    ValueError: a vocabulary of another kind, or something that is not one word; names its line.
  """
  tokenizer = pretrained.tokenizer
  if not isinstance(tokenizer, WordPiece):
    raise ValueError("words can be put into a WordPiece vocabulary only; this model's is of SentencePiece")
  new = _new_words(tokenizer, words)
  pieces = list(tokenizer.pieces)
  slots = [i for i, piece in enumerate(pieces) if _UNUSED.fullmatch(piece)][: len(new)]
  slots += range(len(pieces), len(pieces) + len(new) - len(slots))
  parts = [_parts(tokenizer, word) for word in new]
  pieces += [""] * (len(new) + len(tokenizer.pieces) - len(pieces))
  pieces = pieces[: max([len(tokenizer.pieces), *(slot + 1 for slot in slots)])]
  for slot, word in zip(slots, new, strict=True):
    pieces[slot] = word

  config = dataclasses.replace(pretrained.config, vocab_size=max(pretrained.config.vocab_size, len(pieces)))
  params = dict(flax.traverse_util.flatten_dict(pretrained.params, sep="/"))
  for name, table in params.items():
    if names.VOCABULARY.search(name):
      params[name] = _with_rows(table, slots, parts, config.vocab_slots)
  params = flax.traverse_util.unflatten_dict(params, sep="/")
  changed = dataclasses.replace(tokenizer, pieces=tuple(pieces))
  return dataclasses.replace(pretrained, config=config, params=params, tokenizer=changed), new


def _new_words(tokenizer: WordPiece, words: Iterable[str]) -> list[str]:
  split, known, new = word_splitter(tokenizer.lowercase), set(tokenizer.pieces), []
  for number, line in enumerate(words, 1):
    if not (text := line.strip()):
      continue
    prefix = PREFIX if text.startswith(PREFIX) and len(text) > len(PREFIX) else ""
    found = split(text.removeprefix(prefix))
    if len(found) != 1:
      raise ValueError(f"line {number}: {text!r} is {len(found)} words to this tokenizer ({' '.join(found)})")
    word = prefix + found[0]
    if word not in known:
      known.add(word)
      new.append(word)
  return new


def _parts(tokenizer: WordPiece, word: str) -> np.ndarray:
  """The pieces of a word; of the end of a word, those that would continue one."""
  if not word.startswith(PREFIX):
    return tokenizer.encode(word)
  bare = tokenizer.encode(word.removeprefix(PREFIX))
  ids = {piece: i for i, piece in enumerate(tokenizer.pieces)}
  return np.array([ids.get(PREFIX + tokenizer.pieces[bare[0]], bare[0]), *bare[1:]])


def _with_rows(table: np.ndarray, slots: Sequence[int], parts: Sequence[np.ndarray], rows: int) -> np.ndarray:
  """A table with `rows` rows, in which row slots[i] is the mean of the old rows parts[i]."""
  result = np.zeros((max(rows, len(table)), *table.shape[1:]), table.dtype)
  result[: len(table)] = table
  for slot, ids in zip(slots, parts, strict=True):
    result[slot] = table[ids].mean(axis=0)
  return result
