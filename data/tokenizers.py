"""What every tokenizer offers, and how one is read from disk.

A tokenizer turns text into piece ids and says what an objective must know of its vocabulary: which pieces are special,
which begin a word, how many bytes of text a piece stands for. It adds no special tokens; whoever lays out a row does.
This module is light to import: no JAX, no TFDS, no Grain.
"""

import os
import pathlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from data import sentencepiece, wordpiece


class Tokenizer(Protocol):
  """Text to piece ids and back. `V` is the size of the vocabulary; an id is a position in `pieces`."""

  name: str
  pieces: Sequence[str]

  @property
  def vocab_size(self) -> int: ...

  @property
  def pad_id(self) -> int: ...

  @property
  def unk_id(self) -> int: ...

  @property
  def cls_id(self) -> int: ...

  @property
  def sep_id(self) -> int: ...

  @property
  def mask_id(self) -> int: ...

  @property
  def eod_id(self) -> int | None:
    """The piece that ends a document; None where the vocabulary has none."""

  @property
  def cls_last(self) -> bool:
    """Whether rows end with the cls piece and are padded at the left, as XLNet's, rather than begin with it."""

  @property
  def special(self) -> np.ndarray:
    """bool [V]: pieces that text never yields as content; never a target and never a replacement."""

  @property
  def word_start(self) -> np.ndarray:
    """bool [V]: pieces that begin a word."""

  @property
  def num_bytes(self) -> np.ndarray:
    """int32 [V]: UTF-8 bytes of text a piece stands for, at least 1; 1 for special pieces."""

  @property
  def fingerprint(self) -> str:
    """SHA-256 over everything that decides what `encode` returns."""

  def encode(self, text: str) -> np.ndarray:
    """int32 [n]: the ids of `text`. Text that spells a special piece is text."""

  def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
    """`encode` of each text, faster."""

  def encode_with_offsets(self, text: str) -> tuple[np.ndarray, np.ndarray]:
    """int32 [n] and [n, 2]: `encode(text)`, and the characters [start, end) of `text` that each piece stands for.

    White space is in no span; an accent that is dropped is in that of its letter. A piece that is a blank alone has an
    empty span, and pieces of one character that was decomposed share its span.
    """

  def decode(self, ids: Sequence[int]) -> str:
    """The text of `ids`, as far as the tokenizer keeps it."""

  def save(self, folder: str | os.PathLike) -> None:
    """Writes the files that `load_tokenizer(folder)` reads."""


def load_tokenizer(path: str | os.PathLike) -> Tokenizer:
  """Reads the tokenizer at `path`: a folder in Hugging Face layout (`vocab.txt` or `spiece.model`), or such a file.

  Raises:
    FileNotFoundError: nothing at `path`, or no tokenizer's files in it.
    ValueError: files that are no usable vocabulary, or the files of two.
  """
  path = pathlib.Path(path)
  if not path.exists():
    raise FileNotFoundError(
      f"{path}: no such tokenizer; give a folder with {wordpiece.FILE} or {sentencepiece.FILE} "
      "(tools.train_tokenizer makes one)"
    )
  if not sentencepiece.is_at(path):
    return wordpiece.load(path)
  if (path / wordpiece.FILE).exists():
    raise ValueError(
      f"{path} holds {wordpiece.FILE} and a SentencePiece vocabulary; give the file instead of the folder"
    )
  return sentencepiece.load(path)
