"""WordPiece, as in BERT: words by white space and punctuation, pieces by longest match first.

The behaviour is that of the original's tokenization.py (BasicTokenizer, then WordpieceTokenizer). The Rust library
`tokenizers` does the work where its rules are the original's; text that holds one of the few characters where they are
not goes through `split_words` first. What is left is that the library's tables are of an older Unicode: see
docs/differences.md.
"""

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from data import offsets, tokenizer_config

PAD, UNK, CLS, SEP, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PREFIX = "##"
FILE = "vocab.txt"
MAX_WORD_CHARS = 200  # a longer word is [UNK]

_UNUSED = re.compile(r"\[unused\d+\]")
# The original's _is_chinese_char.
_CJK = re.compile(
  "([\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f\U0002b820-\U0002ceaf"
  "\uf900-\ufaff\U0002f800-\U0002fa1f])"
)
# Where the Rust library departs from the original: it drops private-use characters, does not space the first 256
# ideographs of CJK extension E, and lowercases a final capital sigma to σ where Python's str.lower gives ς.
_DIFFERS = re.compile("[\ue000-\uf8ff\U000f0000-\U0010ffff\U0002b820-\U0002b91f]")
_DIFFERS_LOWERED = re.compile(_DIFFERS.pattern + "|Σ(?![A-Za-zΑ-Ωα-ωά-ώ])")


def normalizer(lowercase: bool) -> normalizers.Normalizer:
  """Cleaning, spaces around ideographs, and (only when lowercasing) accents stripped."""
  return normalizers.BertNormalizer(
    clean_text=True, handle_chinese_chars=True, strip_accents=lowercase, lowercase=lowercase
  )


def pre_tokenizer() -> pre_tokenizers.PreTokenizer:
  """Words: split at white space, each punctuation character alone."""
  return pre_tokenizers.BertPreTokenizer()


def word_splitter(lowercase: bool) -> Callable[[str], list[str]]:
  """Returns the function that splits a text into words, as `WordPiece` does before it looks for pieces."""
  clean, words = normalizer(lowercase), pre_tokenizer()

  def split(text: str) -> list[str]:
    if text.isascii() and text.isalnum():
      return [text.lower() if lowercase else text]
    if needs_split_words(text, lowercase):
      return split_words(text, lowercase)
    return [word for word, _ in words.pre_tokenize_str(clean.normalize_str(text))]

  return split


def needs_split_words(text: str, lowercase: bool) -> bool:
  """Whether the Rust library would split `text` otherwise than the original."""
  return bool((_DIFFERS_LOWERED if lowercase else _DIFFERS).search(text))


def split_words(text: str, lowercase: bool) -> list[str]:
  """The original's BasicTokenizer in Python: slow, and right for every character Python knows."""
  return [word for word, _ in split_words_at(text, lowercase)]


def split_words_at(text: str, lowercase: bool) -> list[tuple[str, list[int]]]:
  """`split_words`, and for each character of each word the character of `text` that it comes from."""
  words, word, places = [], [], []

  def finish():
    characters, origins = (word, places) if not lowercase else _lowered(word, places)
    start = 0
    for i, c in enumerate(characters):
      if _is_punctuation(c):
        words.append((characters[start:i], origins[start:i]))
        words.append(([c], [origins[i]]))
        start = i + 1
    words.append((characters[start:], origins[start:]))
    word.clear()
    places.clear()

  for i, c in enumerate(text):
    if _is_dropped(c):
      continue
    alone = _CJK.match(c)
    if alone or _is_space(c) or c.isspace():  # what else Python splits at
      finish()
    if alone or not (_is_space(c) or c.isspace()):
      word.append(c)
      places.append(i)
    if alone:
      finish()
  finish()
  return [("".join(characters), origins) for characters, origins in words if characters]


def _lowered(word: list[str], places: list[int]) -> tuple[list[str], list[int]]:
  characters, origins = offsets.lowered(word, places)
  parts = [(d, at) for c, at in zip(characters, origins, strict=True) for d in unicodedata.normalize("NFD", c)]
  kept = [(d, at) for d, at in parts if unicodedata.category(d) != "Mn"]
  return [d for d, _ in kept], [at for _, at in kept]


def _is_dropped(c: str) -> bool:
  return c in "\0\ufffd" or (c not in "\t\n\r" and unicodedata.category(c) in ("Cc", "Cf"))


def _is_space(c: str) -> bool:
  return c in " \t\n\r" or unicodedata.category(c) == "Zs"


def _is_punctuation(c: str) -> bool:
  """ASCII that is neither letter, digit nor space counts too: "$" is no punctuation to Unicode, "^" neither."""
  return "!" <= c <= "/" or ":" <= c <= "@" or "[" <= c <= "`" or "{" <= c <= "~" or unicodedata.category(c)[0] == "P"


@dataclasses.dataclass(frozen=True)
class WordPiece:
  """A WordPiece vocabulary and its casing; implements `data.tokenizers.Tokenizer`.

  Attributes:
    pieces: the vocabulary, an id is a position; "" is a slot that no text yields.
    lowercase: lowercases and strips accents (both or neither, as the original).
  Raises:
    ValueError: a special piece is missing, or a piece occurs twice.
  """

  name: ClassVar[str] = "wordpiece"
  eod_id: ClassVar[None] = None
  cls_last: ClassVar[bool] = False
  pieces: tuple[str, ...]
  lowercase: bool = True

  def __post_init__(self):
    for special in SPECIAL:
      if special not in self._ids:
        raise ValueError(f"the vocabulary has no {special} piece; add a line {special} or train a vocabulary with it")
    if len(self._ids) < sum(map(bool, self.pieces)):
      first, again = next(
        (self.pieces.index(p), i) for i, p in enumerate(self.pieces) if p and self.pieces.index(p) < i
      )
      raise ValueError(f"the vocabulary holds {self.pieces[again]!r} twice, in lines {first + 1} and {again + 1}")

  @functools.cached_property
  def _ids(self) -> dict[str, int]:
    return {piece: i for i, piece in enumerate(self.pieces) if piece}

  @property
  def vocab_size(self) -> int:
    return len(self.pieces)

  @property
  def pad_id(self) -> int:
    return self._ids[PAD]

  @property
  def unk_id(self) -> int:
    return self._ids[UNK]

  @property
  def cls_id(self) -> int:
    return self._ids[CLS]

  @property
  def sep_id(self) -> int:
    return self._ids[SEP]

  @property
  def mask_id(self) -> int:
    return self._ids[MASK]

  @functools.cached_property
  def special(self) -> np.ndarray:
    """bool [V]: the five special pieces, `[unusedN]` and empty slots."""
    return np.array([not p or p in SPECIAL or bool(_UNUSED.fullmatch(p)) for p in self.pieces])

  @functools.cached_property
  def word_start(self) -> np.ndarray:
    """bool [V]: pieces without "##"."""
    return np.array([not _continues(p) for p in self.pieces])

  @functools.cached_property
  def num_bytes(self) -> np.ndarray:
    """int32 [V]: UTF-8 bytes, "##" not counted; 1 for special pieces."""
    sizes = [len(p.encode()) - len(PREFIX) * _continues(p) for p in self.pieces]
    return np.where(self.special, 1, sizes).astype(np.int32)

  @functools.cached_property
  def fingerprint(self) -> str:
    return hashlib.sha256(json.dumps([self.name, self.lowercase, self.pieces]).encode()).hexdigest()

  @functools.cached_property
  def _encoder(self) -> tokenizers.Tokenizer:
    encoder = self._split_encoder_of(pre_tokenizer())
    encoder.normalizer = normalizer(self.lowercase)
    return encoder

  @functools.cached_property
  def _split_encoder(self) -> tokenizers.Tokenizer:
    return self._split_encoder_of(pre_tokenizers.WhitespaceSplit())

  def _split_encoder_of(self, words: pre_tokenizers.PreTokenizer) -> tokenizers.Tokenizer:
    # No special token is added to the library's tokenizer, so that "[MASK]" in a text is "[", "mask", "]".
    model = models.WordPiece(
      self._ids, unk_token=UNK, continuing_subword_prefix=PREFIX, max_input_chars_per_word=MAX_WORD_CHARS
    )
    encoder = tokenizers.Tokenizer(model)
    encoder.pre_tokenizer = words
    return encoder

  def encode(self, text: str) -> np.ndarray:
    """int32 [n]: the ids of `text`, no special tokens added. Text that spells "[MASK]" is text."""
    return self.encode_batch([text])[0]

  def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
    """`encode` of each text. The Rust library does it without Python's lock."""
    odd = {i for i, text in enumerate(texts) if needs_split_words(text, self.lowercase)}
    if odd:
      plain = iter(self._encoder.encode_batch_fast([t for i, t in enumerate(texts) if i not in odd]))
      encoded = [
        self._split_encoder.encode(" ".join(split_words(t, self.lowercase))) if i in odd else next(plain)
        for i, t in enumerate(texts)
      ]
    else:
      encoded = self._encoder.encode_batch_fast(list(texts))
    return [np.array(e.ids, np.int32) for e in encoded]

  def encode_with_offsets(self, text: str) -> tuple[np.ndarray, np.ndarray]:
    """int32 [n] and [n, 2]: the ids of `text`, and the characters [start, end) of it that each stands for."""
    if not needs_split_words(text, self.lowercase):
      encoded = self._encoder.encode(text)
      return np.array(encoded.ids, np.int32), offsets.trimmed(text, encoded.offsets)
    words = split_words_at(text, self.lowercase)
    encoded = self._split_encoder.encode(" ".join(word for word, _ in words))
    places = [at for i, (_, origins) in enumerate(words) for at in ([-1] if i else []) + origins]
    spans = offsets.through(places, [at + 1 for at in places], encoded.offsets)
    return np.array(encoded.ids, np.int32), offsets.trimmed(text, spans)

  def decode(self, ids: Sequence[int]) -> str:
    """Pieces joined by blanks, "##" joined to the piece before."""
    return " ".join(self.pieces[i] for i in ids).replace(f" {PREFIX}", "")

  def save(self, folder: str | os.PathLike) -> None:
    """Writes `vocab.txt` and `tokenizer_config.json` in Hugging Face layout."""
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": self.lowercase}
    vocabulary = "".join(f"{piece}\n" for piece in self.pieces)
    tokenizer_config.save(pathlib.Path(folder), config, FILE, vocabulary.encode())


def _continues(piece: str) -> bool:
  return piece.startswith(PREFIX) and len(piece) > len(PREFIX)


def load(path: pathlib.Path) -> WordPiece:
  """Reads a vocabulary: a folder with `vocab.txt` or else `tokenizer.json`, or a file like `vocab.txt`.

  Casing is what `tokenizer.json` or `tokenizer_config.json` beside it says; where neither does, a vocabulary with a
  capital letter in a piece that is not special is cased.

  Raises:
    FileNotFoundError: the folder holds neither file.
    ValueError: no usable vocabulary, or a setting whose behaviour is not the original's.
  """
  folder, file = (path, path / FILE) if path.is_dir() else (path.parent, path)
  library, config = (
    tokenizer_config.read(folder / name) for name in (tokenizer_config.LIBRARY_FILE, tokenizer_config.FILE)
  )
  if file.exists():
    pieces = _read_vocab(file)
  elif library:
    file = folder / tokenizer_config.LIBRARY_FILE
    pieces = _pieces_of(library, file)
  else:
    raise FileNotFoundError(f"{path}: neither vocab.txt nor tokenizer.json in this folder")
  if added := [t["content"] for t in library.get("added_tokens", []) if t["content"] not in pieces]:
    raise ValueError(f"{folder}/tokenizer.json: pieces beside the vocabulary are not supported: {', '.join(added)}")
  rules = library.get("normalizer") or {}
  lowercase = rules.get("lowercase", config.get("do_lower_case"))
  if lowercase is None:
    lowercase = not any(re.search("[A-Z]", piece) for piece in pieces if not re.fullmatch(r"\[\w+\]", piece))
  strip_accents = rules.get("strip_accents", config.get("strip_accents"))
  if strip_accents not in (None, lowercase):
    raise ValueError(f"{folder}: strip_accents={strip_accents} with do_lower_case={lowercase} is not supported")
  if not rules.get("handle_chinese_chars", config.get("tokenize_chinese_chars", True)):
    raise ValueError(f"{folder}: tokenize_chinese_chars=false is not supported")
  try:
    return WordPiece(pieces, lowercase)
  except ValueError as error:
    raise ValueError(f"{file}: {error}") from None


def _read_vocab(path: pathlib.Path) -> tuple[str, ...]:
  """A piece a line, stripped; ids by line number, so a blank line takes an id (as the original's load_vocab)."""
  try:
    lines = path.read_bytes().decode("utf-8-sig").split("\n")
  except UnicodeDecodeError as error:
    raise ValueError(f"{path}: not a vocabulary, the bytes at {error.start} are not UTF-8") from None
  if lines[-1] == "":
    lines.pop()
  return tuple(line.strip() for line in lines)


def _pieces_of(library: dict, path: pathlib.Path) -> tuple[str, ...]:
  """The vocabulary in `tokenizer.json`; an id that it leaves out is an empty slot."""
  model = library.get("model", {})
  if model.get("type") != "WordPiece" or model.get("continuing_subword_prefix", PREFIX) != PREFIX:
    raise ValueError(f"{path}: no WordPiece vocabulary with {PREFIX} (its model is {model.get('type')})")
  pieces = [""] * (max(model["vocab"].values()) + 1)
  for piece, i in model["vocab"].items():
    pieces[i] = piece
  return tuple(pieces)
