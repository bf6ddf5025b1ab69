"""A tokenizer of ours as one of the library `tokenizers`, in a folder that `transformers.AutoTokenizer` reads.

A SentencePiece model alone would be read by classes that cut text at symbols and before special characters where the
originals do not; so its normalisation is written out here, with the rows of the family.
"""

import json
import os
import pathlib
import re

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from data import sentencepiece_model, tokenizer_config, wordpiece
from data.rows import CLS_SEGMENT
from data.tokenizers import Tokenizer

_DIGIT_COMMA = re.compile(r"\d,$")
_FINAL_SIGMA = tokenizers.Regex(r"(?<=\p{L})Σ(?!\p{L})")  # which str.lower() makes ς, and the library σ
_BLANK = tokenizers.Regex(r"[\s\x1c-\x1f]+")  # what str.split() takes for white space


def save(tokenizer: Tokenizer, folder: pathlib.Path, cls_last: bool, max_length: int | None) -> None:
  """Writes the tokenizer's own files, `tokenizer.json` where they do not say all, and the settings.

  Args:
    tokenizer: ours.
    folder: where.
    cls_last: the model's rows end with the cls piece and are padded at the left.
    max_length: tokens of a row at most, where the model has a limit.
  """
  tokenizer.save(folder)
  settings = tokenizer_config.read(folder / tokenizer_config.FILE)
  name = lambda i: tokenizer.pieces[i]
  settings |= {
    "unk_token": name(tokenizer.unk_id),
    "pad_token": name(tokenizer.pad_id),
    "cls_token": name(tokenizer.cls_id),
    "sep_token": name(tokenizer.sep_id),
    "mask_token": name(tokenizer.mask_id),
    "padding_side": "left" if cls_last else "right",
    "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
  }
  if max_length:
    settings["model_max_length"] = max_length
  if tokenizer.name != "wordpiece" or cls_last:
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"  # tokenizer.json as it stands
    build(tokenizer, cls_last).save(os.fspath(folder / tokenizer_config.LIBRARY_FILE))
  (folder / tokenizer_config.FILE).write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", "utf-8")


def build(tokenizer: Tokenizer, cls_last: bool) -> tokenizers.Tokenizer:
  """Returns the library's tokenizer: the same ids as ours but for two things, see docs/differences.md."""
  library = _wordpiece(tokenizer) if tokenizer.name == "wordpiece" else _sentencepiece(tokenizer)
  cls, sep = tokenizer.pieces[tokenizer.cls_id], tokenizer.pieces[tokenizer.sep_id]
  if cls_last:
    one, two = f"$A:0 {sep}:0 {cls}:{CLS_SEGMENT}", f"$A:0 {sep}:0 $B:1 {sep}:1 {cls}:{CLS_SEGMENT}"
  else:
    one, two = f"{cls}:0 $A:0 {sep}:0", f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1"
  ids = [(cls, tokenizer.cls_id), (sep, tokenizer.sep_id)]
  library.post_processor = processors.TemplateProcessing(single=one, pair=two, special_tokens=ids)
  special = tokenizer.family.special if tokenizer.name == "sentencepiece" else wordpiece.SPECIAL
  library.add_special_tokens([tokenizers.AddedToken(piece, special=True, normalized=False) for piece in special])
  return library


def _wordpiece(tokenizer) -> tokenizers.Tokenizer:
  ids = {piece: i for i, piece in enumerate(tokenizer.pieces) if piece}
  library = tokenizers.Tokenizer(
    models.WordPiece(ids, unk_token=wordpiece.UNK, max_input_chars_per_word=wordpiece.MAX_WORD_CHARS)
  )
  library.normalizer = wordpiece.normalizer(tokenizer.lowercase)
  library.pre_tokenizer = wordpiece.pre_tokenizer()
  library.decoder = decoders.WordPiece(prefix=wordpiece.PREFIX)
  return library


def _sentencepiece(tokenizer) -> tokenizers.Tokenizer:
  scores = sentencepiece_model.scores(tokenizer.model)
  # Stands in for the originals' rule that a digit and a comma behind it are never one piece.
  vocabulary = [
    (piece, score - 100 if _DIGIT_COMMA.search(piece) else score)
    for piece, score in zip(tokenizer.pieces, scores, strict=True)
  ]
  library = tokenizers.Tokenizer(models.Unigram(vocabulary, unk_id=tokenizer.unk_id, byte_fallback=False))
  replace = normalizers.Replace
  rules = [replace(_BLANK, " "), normalizers.Strip(), replace("``", '"'), replace("''", '"')]
  if not tokenizer.keep_accents:
    rules += [normalizers.NFKD(), normalizers.StripAccents()]
  if tokenizer.lowercase:
    rules += [replace(_FINAL_SIGMA, "ς"), normalizers.Lowercase()]
  if replacements := sentencepiece_model.replacements(tokenizer.model):
    rules.append(normalizers.Precompiled(replacements))
  rules += [replace(tokenizers.Regex(" {2,}"), " "), normalizers.Strip()]
  library.normalizer = normalizers.Sequence(rules)
  library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
  library.decoder = decoders.Metaspace(prepend_scheme="always")
  return library
