"""SentencePiece, as in ALBERT and XLNet: text is normalised, then cut into the likeliest pieces; "▁" is a blank.

The library does the cutting. What the originals do around it is here: `preprocess` (preprocess_text in ALBERT's
tokenization.py and XLNet's prepro_utils.py), and the pieces that end in a digit and a comma (encode_pieces there).
"""

import base64
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import sentencepiece

from data import offsets, sentencepiece_model, tokenizer_config

BLANK = "▁"
FILE = "spiece.model"

_DIGIT_COMMA = re.compile(r"\d,$")
_NOT_ASCII = re.compile("[^\0-\x7f]+")
# What is_start_piece of the originals knows.
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
_LATIN = frozenset("abcdefghijklmnopqrstuvwxyz")


@dataclasses.dataclass(frozen=True)
class Family:
  """What the vocabularies of one family of models have in common.

  Attributes:
    special: the special pieces, in order of their ids in the released vocabulary.
    symbols: characters that are always a piece of their own (`user_defined_symbols`).
    cls, sep, mask: which of `special` these are; padding is <pad> and what no piece covers is <unk> in both families.
    eod: the one that ends a document; "" for none.
    cls_last: rows end with `cls` and are padded at the left.
    lone_scripts: a piece with a character that is neither a Latin letter nor punctuation begins a word of its own.
    huggingface: the class that reads such a folder.
  """

  special: tuple[str, ...]
  symbols: str
  cls: str
  sep: str
  mask: str
  eod: str
  cls_last: bool
  lone_scripts: bool
  huggingface: str


PAD, UNK = "<pad>", "<unk>"
FAMILIES = {
  "albert": Family(
    special=(PAD, UNK, "[CLS]", "[SEP]", "[MASK]"),
    symbols='()"-.–£€',
    cls="[CLS]",
    sep="[SEP]",
    mask="[MASK]",
    eod="",
    cls_last=False,
    lone_scripts=True,
    huggingface="AlbertTokenizer",
  ),
  "xlnet": Family(
    special=(UNK, "<s>", "</s>", "<cls>", "<sep>", PAD, "<mask>", "<eod>", "<eop>"),
    symbols='.()"-–£€',
    cls="<cls>",
    sep="<sep>",
    mask="<mask>",
    eod="<eod>",
    cls_last=True,
    lone_scripts=False,
    huggingface="XLNetTokenizer",
  ),
}


def preprocess(text: str, lowercase: bool, keep_accents: bool = False) -> str:
  """White space becomes single blanks, `` and '' become "; compatibility forms (NFKD), accents and case go."""
  text = " ".join(text.split()).replace("``", '"').replace("''", '"')
  if not keep_accents and not text.isascii():
    text = _NOT_ASCII.sub(_without_accents, unicodedata.normalize("NFKD", text))
  return text.lower() if lowercase else text


def _without_accents(match: re.Match[str]) -> str:
  return "".join(c for c in match[0] if not unicodedata.combining(c))


def _preprocess_at(text: str, lowercase: bool, keep_accents: bool) -> tuple[str, list[int], list[int]]:
  """`preprocess`, and for each of its characters the first character of `text` that it stands for, and one past the
  last."""
  single = [(c, i) for i, c in enumerate(text) if not c.isspace() or (i and not text[i - 1].isspace())]
  if single and single[-1][0].isspace():
    single.pop()
  characters, places, ends, at = [], [], [], 0
  while at < len(single):
    c, place = single[at]
    pair = c + single[at + 1][0] if at + 1 < len(single) else ""
    if pair in ("``", "''"):
      found, end, at = '"', single[at + 1][1] + 1, at + 2
    else:
      found, end, at = " " if c.isspace() else c, place + 1, at + 1
      if not keep_accents and not c.isascii():
        found = "".join(d for d in unicodedata.normalize("NFKD", found) if not unicodedata.combining(d))
    characters += found
    places += [place] * len(found)
    ends += [end] * len(found)
  if not lowercase:
    return "".join(characters), places, ends
  lowered, numbers = offsets.lowered(characters, range(len(characters)))
  return "".join(lowered), [places[i] for i in numbers], [ends[i] for i in numbers]


@dataclasses.dataclass(frozen=True)
class SentencePiece:
  """A SentencePiece model and what is done to text before it; implements `data.tokenizers.Tokenizer`.

  Attributes:
    model: the bytes of a `.model` file.
    lowercase: capitals become small letters.
    keep_accents: accents and compatibility forms stay, as far as the model's own normalisation keeps them.
  Raises:
    ValueError: no SentencePiece model, or one without the special pieces of ALBERT or XLNet.
  """

  name: ClassVar[str] = "sentencepiece"
  model: bytes = dataclasses.field(repr=False)
  lowercase: bool = True
  keep_accents: bool = False

  def __post_init__(self):
    missing = [piece for piece in (PAD, UNK, *self.family.special) if piece not in self._ids]
    if missing:
      raise ValueError(f"the vocabulary has no {missing[0]} piece, which {self.family.huggingface} needs")

  @functools.cached_property
  def _processor(self) -> sentencepiece.SentencePieceProcessor:
    """The library's, in which every special piece is a control symbol: one that text never yields."""
    processor = _open(self.model)
    found = [processor.id_to_piece(i) for i in range(processor.vocab_size())]
    family = _family(found)
    exposed = {
      piece
      for i, piece in enumerate(found)
      if piece in family.special and not (processor.is_control(i) or processor.is_unknown(i))
    }
    return _open(sentencepiece_model.as_control(self.model, exposed)) if exposed else processor

  @functools.cached_property
  def pieces(self) -> tuple[str, ...]:
    return tuple(self._processor.id_to_piece(i) for i in range(self._processor.vocab_size()))

  @functools.cached_property
  def family(self) -> Family:
    return _family(self.pieces)

  @functools.cached_property
  def _ids(self) -> dict[str, int]:
    return {piece: i for i, piece in enumerate(self.pieces)}

  @property
  def vocab_size(self) -> int:
    return len(self.pieces)

  @property
  def pad_id(self) -> int:
    return self._ids[PAD]

  @property
  def unk_id(self) -> int:
    return self._processor.unk_id()

  @property
  def cls_id(self) -> int:
    return self._ids[self.family.cls]

  @property
  def sep_id(self) -> int:
    return self._ids[self.family.sep]

  @property
  def mask_id(self) -> int:
    return self._ids[self.family.mask]

  @property
  def eod_id(self) -> int | None:
    return self._ids[self.family.eod] if self.family.eod else None

  @property
  def cls_last(self) -> bool:
    return self.family.cls_last

  @functools.cached_property
  def special(self) -> np.ndarray:
    """bool [V]: control symbols, the unknown piece and unused slots."""
    p = self._processor
    return np.array([p.is_control(i) or p.is_unknown(i) or p.is_unused(i) for i in range(len(self.pieces))])

  @functools.cached_property
  def word_start(self) -> np.ndarray:
    """bool [V]: the originals' is_start_piece (ALBERT create_pretraining_data.py, XLNet data_utils.py).

    A piece with "▁" begins a word, and so does a punctuation character; in ALBERT a piece with a digit, an apostrophe
    or a letter that is not Latin does too. So what follows punctuation without a blank belongs to its word:
    "well-known" is the words ▁well and -known, "(see" is one word.
    """
    lone = self.family.lone_scripts
    return self.special | np.array([_begins_word(piece, lone) for piece in self.pieces])

  @functools.cached_property
  def num_bytes(self) -> np.ndarray:
    """int32 [V]: UTF-8 bytes, "▁" not counted unless it is all of the piece; 1 for special pieces."""
    # Never 0: with such targets alone there would be no byte to divide bits by.
    sizes = [len(piece.replace(BLANK, "").encode()) or 1 for piece in self.pieces]
    one = self.special | np.array([self._processor.is_byte(i) for i in range(len(self.pieces))])
    return np.where(one, 1, sizes).astype(np.int32)

  @functools.cached_property
  def fingerprint(self) -> str:
    settings = json.dumps([self.name, self.lowercase, self.keep_accents]).encode()
    return hashlib.sha256(settings + b"\0" + self.model).hexdigest()

  @functools.cached_property
  def _split_commas(self) -> dict[int, list[int]]:
    """For each piece that ends in a digit and a comma: the digits' pieces, then the comma.

    The digits are cut again as if they stood alone, then lose the blank they have not had; what is no piece then is
    unknown (encode_pieces).
    """
    result = {}
    for i, piece in enumerate(self.pieces):
      if len(piece) < 2 or piece[-1] != "," or not piece[-2].isdigit():
        continue
      parts = self._processor.encode(piece[:-1].replace(BLANK, ""), out_type=str)
      if not piece.startswith(BLANK) and parts[0].startswith(BLANK):
        parts[0] = parts[0].removeprefix(BLANK)
      result[i] = [self._ids.get(part, self.unk_id) for part in (*parts, ",") if part]
    return result

  @functools.cached_property
  def _has_comma(self) -> np.ndarray:
    """bool [V]: the keys of `_split_commas`."""
    return np.isin(np.arange(len(self.pieces)), list(self._split_commas))

  def encode(self, text: str) -> np.ndarray:
    """int32 [n]: the ids of `text`, no special tokens added. Text that spells "[MASK]" is text."""
    return self.encode_batch([text])[0]

  def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
    """`encode` of each text."""
    texts = [preprocess(text, self.lowercase, self.keep_accents) for text in texts]
    encoded = self._processor.encode(texts, out_type="numpy", num_threads=1)
    return [self._apart(ids) for ids in encoded]

  def encode_with_offsets(self, text: str) -> tuple[np.ndarray, np.ndarray]:
    """int32 [n] and [n, 2]: the ids of `text`, and the characters [start, end) of it that each stands for."""
    changed, places, ends = _preprocess_at(text, self.lowercase, self.keep_accents)
    encoded = self._processor.encode(changed, return_type="offset_mapping")
    ids, spans = [], []
    for piece, (start, end) in zip(encoded["ids"], encoded["offsets"], strict=True):
      parts = self._split_commas.get(piece, [piece])
      lengths = [len(self.pieces[part].replace(BLANK, "")) for part in parts]
      before = end - start - sum(lengths)  # the blank; another number where the model's own rules change the text
      if len(parts) == 1 or before not in (0, 1):
        bounds = [(start, end)] * len(parts)
      else:
        stops = np.cumsum(lengths) + start + before
        bounds = list(zip([start, *stops[:-1].tolist()], stops.tolist(), strict=True))
      ids += parts
      spans += bounds
    return np.array(ids, np.int32), offsets.trimmed(text, offsets.through(places, ends, spans))

  def _apart(self, ids: np.ndarray) -> np.ndarray:
    if not self._has_comma[ids].any():
      return ids.copy()  # the library's array is not writable
    apart = self._split_commas
    return np.array([part for i in ids.tolist() for part in apart.get(i, (i,))], np.int32)

  def decode(self, ids: Sequence[int]) -> str:
    """Pieces joined, "▁" a blank."""
    return "".join(self.pieces[i] for i in ids).replace(BLANK, " ").removeprefix(" ")

  def save(self, folder: str | os.PathLike) -> None:
    """Writes `spiece.model` and `tokenizer_config.json` in Hugging Face layout."""
    config = {
      "tokenizer_class": self.family.huggingface,
      "do_lower_case": self.lowercase,
      "remove_space": True,
      "keep_accents": self.keep_accents,
    }
    tokenizer_config.save(pathlib.Path(folder), config, FILE, self.model)


def _begins_word(piece: str, lone_scripts: bool) -> bool:
  if piece.startswith((BLANK, "<")) or piece in _PUNCTUATION:
    return True
  return lone_scripts and not all(c.lower() in _LATIN or c in _PUNCTUATION for c in piece)


def _open(model: bytes) -> sentencepiece.SentencePieceProcessor:
  try:
    if model:  # the library takes no bytes for no argument
      return sentencepiece.SentencePieceProcessor(model_proto=model)
  except RuntimeError:
    pass
  raise ValueError("no SentencePiece model")


def _family(pieces: Sequence[str]) -> Family:
  for family in FAMILIES.values():
    if family.mask in pieces:
      return family
  masks = " and no ".join(f"{family.mask} piece ({name})" for name, family in FAMILIES.items())
  raise ValueError(f"the vocabulary has no {masks}; it is of another kind of model")


def is_at(path: pathlib.Path) -> bool:
  """Whether `path` is a `.model` file, or a folder with `spiece.model` or else a `tokenizer.json` made from one."""
  if not path.is_dir():
    return path.suffix == ".model"
  return (path / FILE).exists() or _is_unigram(tokenizer_config.read(path / tokenizer_config.LIBRARY_FILE))


def _is_unigram(library: Mapping[str, Any]) -> bool:
  return isinstance(library.get("model", {}).get("vocab"), list)  # the type is missing in old files


def load(path: pathlib.Path) -> SentencePiece:
  """Reads a folder with `spiece.model` or else `tokenizer.json`, or a `.model` file.

  Case and accents are what `tokenizer_config.json` beside it says; where it says nothing, a vocabulary with a capital
  letter in a piece that is not special is cased, and accents are dropped.

  Raises:
    ValueError: no usable SentencePiece model, or a setting whose behaviour is not the originals'.
  """
  folder, file = (path, path / FILE) if path.is_dir() else (path.parent, path)
  config = tokenizer_config.read(folder / tokenizer_config.FILE)
  if not config.get("remove_space", True):
    raise ValueError(f"{folder}: remove_space=false is not supported")
  lowercase, keep_accents = config.get("do_lower_case"), config.get("keep_accents", False)
  try:
    if file.exists():
      model = file.read_bytes()
    else:
      file = folder / tokenizer_config.LIBRARY_FILE
      model = _from_library(tokenizer_config.read(file))
    tokenizer = SentencePiece(model, lowercase is not False, keep_accents)
  except ValueError as error:
    raise ValueError(f"{file}: {error}") from None
  if lowercase is None:
    words = (piece for piece, special in zip(tokenizer.pieces, tokenizer.special, strict=True) if not special)
    if any(re.search("[A-Z]", piece) for piece in words):
      return dataclasses.replace(tokenizer, lowercase=False)
  return tokenizer


def _from_library(library: Mapping[str, Any]) -> bytes:
  """The model in a `tokenizer.json`, which transformers 5 writes instead of `spiece.model`."""
  vocabulary = library["model"]["vocab"]
  pieces = [piece for piece, _ in vocabulary]
  family = _family(pieces)
  added = [token["content"] for token in library.get("added_tokens", [])]
  if beside := [piece for piece in added if piece not in pieces]:
    raise ValueError(f"pieces beside the vocabulary are not supported: {', '.join(beside)}")
  kinds = dict.fromkeys([*added, *family.symbols], sentencepiece_model.USER_DEFINED)
  kinds |= dict.fromkeys(family.special, sentencepiece_model.CONTROL) | {UNK: sentencepiece_model.UNKNOWN}
  # What stands in for the rule of `_split_commas` there: such pieces were made less likely.
  scores = (score + 100 if score < -100 and _DIGIT_COMMA.search(piece) else score for piece, score in vocabulary)
  rules = library.get("normalizer") or {}
  tables = (rule.get("precompiled_charsmap") for rule in rules.get("normalizers", [rules]))
  return sentencepiece_model.build(
    zip(pieces, scores, (kinds.get(piece, sentencepiece_model.NORMAL) for piece in pieces), strict=True),
    base64.b64decode(next(filter(None, tables), "")),
  )
