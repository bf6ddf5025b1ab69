"""WordPiece splits and encodes as the original's tokenization.py; vocabularies survive the disk; bad ones are named."""

import json
import random
import unicodedata

import numpy as np
import pytest

from data import wordpiece
from data.tokenizers import load_tokenizer
from data.wordpiece import SPECIAL, WordPiece

# The vocabulary of the original's tokenization_test.py, and the special pieces it does without.
ORIGINAL = ("[UNK]", "[CLS]", "[SEP]", "want", "##want", "##ed", "wa", "un", "runn", "##ing", ",", "[PAD]", "[MASK]")


# --- an independent reading of the original's rules, character by character --------------------------------------


def reference_words(text: str, lowercase: bool) -> list[str]:
  """Clean, space ideographs, split at white space, lowercase and strip accents, split at punctuation."""
  cleaned = []
  for character in text:
    code, category = ord(character), unicodedata.category(character)
    if character in "\t\n\r" or category == "Zs":
      cleaned.append(" ")
    elif code in (0, 0xFFFD) or category in ("Cc", "Cf"):
      continue
    elif is_ideograph(code):
      cleaned.extend((" ", character, " "))
    else:
      cleaned.append(character)
  words = []
  for token in "".join(cleaned).split():
    if lowercase:
      token = "".join(c for c in unicodedata.normalize("NFD", token.lower()) if unicodedata.category(c) != "Mn")
    word = ""
    for character in token:
      if is_punctuation(character):
        words += [word, character]
        word = ""
      else:
        word += character
    words.append(word)
  return [word for word in words if word.strip()]


def is_ideograph(code: int) -> bool:
  blocks = "4E00-9FFF 3400-4DBF 20000-2A6DF 2A700-2B73F 2B740-2B81F 2B820-2CEAF F900-FAFF 2F800-2FA1F"
  return any(int(a, 16) <= code <= int(b, 16) for a, b in (block.split("-") for block in blocks.split()))


def is_punctuation(character: str) -> bool:
  code = ord(character)
  ascii_ranges = ((33, 47), (58, 64), (91, 96), (123, 126))
  return any(a <= code <= b for a, b in ascii_ranges) or unicodedata.category(character).startswith("P")


def reference_pieces(text: str, vocabulary: set[str], lowercase: bool) -> list[str]:
  """Greedy longest match first; a word with a part that matches nothing, or of more than 200 characters, is [UNK]."""
  result = []
  for word in reference_words(text, lowercase):
    pieces, start = [], 0
    while start < len(word) <= 200:
      ends = (end for end in range(len(word), start, -1) if ("##" if start else "") + word[start:end] in vocabulary)
      end = next(ends, None)
      if end is None:
        break
      pieces.append(("##" if start else "") + word[start:end])
      start = end
    result += pieces if start == len(word) else ["[UNK]"]
  return result


def pieces_of(tokenizer: WordPiece, text: str) -> list[str]:
  return [tokenizer.pieces[i] for i in tokenizer.encode(text)]


# --- words and pieces -------------------------------------------------------------------------------------------


def test_the_originals_own_examples():
  tokenizer = WordPiece(ORIGINAL)
  assert tokenizer.encode("UNwant\u00e9d,running").tolist() == [7, 4, 5, 10, 8, 9]
  assert pieces_of(tokenizer, "unwanted running") == ["un", "##want", "##ed", "runn", "##ing"]
  assert pieces_of(tokenizer, "unwantedX running") == ["[UNK]", "runn", "##ing"]
  assert pieces_of(tokenizer, "") == []


@pytest.mark.parametrize(
  ("text", "lowercase", "words"),
  [
    (" \tHeLLo!how  \n Are yoU?  ", True, ["hello", "!", "how", "are", "you", "?"]),
    (" \tHeLLo!how  \n Are yoU?  ", False, ["HeLLo", "!", "how", "Are", "yoU", "?"]),
    ("H\u00e9llo", True, ["hello"]),
    ("H\u00e9llo", False, ["H\u00e9llo"]),  # accents go only where case goes
    ("He\u0301llo", False, ["He\u0301llo"]),
    ("ah\u535a\u63a8zz", True, ["ah", "\u535a", "\u63a8", "zz"]),
    ("a\U0002b820b", True, ["a", "\U0002b820", "b"]),  # CJK extension E
    ("\u3042\uac00", False, ["\u3042\uac00"]),  # kana and hangul are no ideographs
    ("a\u0000b\ufffdc\u200bd\u00ade\u0085f", True, ["abcdef"]),
    ("a\u00a0b\u3000c\u2028d", True, ["a", "b", "c", "d"]),
    ("a\ue000b", True, ["a\ue000b"]),  # private use stays
    ("$1^2~3", True, ["$", "1", "^", "2", "~", "3"]),
    ("\u0391\u03a3 \u03a3\u0391 \u0391\u03a3\u0391", True, ["\u03b1\u03c2", "\u03c3\u03b1", "\u03b1\u03c3\u03b1"]),
    ("\u0130I", True, ["ii"]),
    ("[MASK] [SEP]", True, ["[", "mask", "]", "[", "sep", "]"]),
  ],
)
def test_words(text, lowercase, words):
  assert reference_words(text, lowercase) == words
  assert wordpiece.word_splitter(lowercase)(text) == words
  assert wordpiece.split_words(text, lowercase) == words


def stable_characters() -> list[str]:
  """Characters whose category has not changed since Unicode 3.2: the library's tables are of an older Unicode."""
  old = unicodedata.ucd_3_2_0
  every = (chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
  return [c for c in every if old.category(c) == unicodedata.category(c) != "Cn"]


@pytest.mark.parametrize("lowercase", [True, False])
def test_random_text_is_encoded_by_the_originals_rules(lowercase):
  rng = random.Random(0)
  stable = stable_characters()
  common = "aAbBcC éÉñ.,;$[]'-  \t\nΣσςаБ\u0301\u200b世界\ue000"
  texts = [
    "".join(rng.choice(common if rng.random() < 0.7 else stable) for _ in range(rng.randrange(40))) for _ in range(3000)
  ]
  words = [word for text in texts for word in reference_words(text, lowercase)]
  parts = {word[:n] for word in words for n in (1, 2)} | {"##" + word[n : n + 2] for word in words for n in (1, 2)}
  parts |= {"##" + c for c in rng.sample(sorted(set("".join(words))), 500)}
  tokenizer = WordPiece((*SPECIAL, *sorted(parts - set(SPECIAL) - {"##"})), lowercase)
  vocabulary = set(tokenizer.pieces)
  encoded = tokenizer.encode_batch(texts)
  unknown = 0
  for text, ids in zip(texts, encoded, strict=True):
    expected = reference_pieces(text, vocabulary, lowercase)
    assert [tokenizer.pieces[i] for i in ids] == expected, ascii(text)
    unknown += expected.count("[UNK]")
  assert 0.01 < unknown / sum(map(len, encoded)) < 0.5  # neither branch is idle


def test_a_word_of_200_characters_is_the_longest():
  tokenizer = WordPiece((*SPECIAL, "a", "##a"))
  assert tokenizer.encode("a" * 200).tolist() == [5] + [6] * 199
  assert tokenizer.encode("a" * 201).tolist() == [tokenizer.unk_id]


def test_text_that_spells_a_special_piece_is_text():
  tokenizer = WordPiece((*SPECIAL, "[unused1]", "[", "]", "mask"))
  assert pieces_of(tokenizer, "[MASK]") == ["[", "mask", "]"]
  assert not np.isin(
    tokenizer.encode("[PAD][CLS] [SEP] [MASK] [unused1]"), np.flatnonzero(tokenizer.special)[[0, 2, 3]]
  ).any()


# --- what an objective is told --------------------------------------------------------------------------------------


def test_tables_of_the_vocabulary():
  tokenizer = WordPiece((*SPECIAL, "[unused7]", "", "été", "##té", "##", "#", "[x]"))
  assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id) == (0, 1, 2, 3, 4)
  assert tokenizer.special.tolist() == [True] * 7 + [False] * 5
  assert tokenizer.word_start.tolist() == [True] * 8 + [False] + [True] * 3
  assert tokenizer.num_bytes.tolist() == [1] * 7 + [5, 3, 2, 1, 3]
  assert tokenizer.decode([7, 8, 10]) == "été" + "té #"


def test_fingerprint_tells_vocabularies_and_casings_apart():
  prints = {
    WordPiece((*SPECIAL, "a", "b")).fingerprint,
    WordPiece((*SPECIAL, "b", "a")).fingerprint,
    WordPiece((*SPECIAL, "a", "b"), lowercase=False).fingerprint,
  }
  assert len(prints) == 3
  assert WordPiece((*SPECIAL, "a", "b")).fingerprint in prints


# --- on disk --------------------------------------------------------------------------------------------------------


def test_a_saved_vocabulary_loads_as_it_was(tmp_path):
  for lowercase in (True, False):
    tokenizer = WordPiece((*SPECIAL, "", "été", "##x", "A"), lowercase)
    tokenizer.save(tmp_path / str(lowercase))
    assert load_tokenizer(tmp_path / str(lowercase)) == tokenizer
    assert load_tokenizer(tmp_path / str(lowercase) / "vocab.txt") == tokenizer


def test_ids_are_line_numbers_and_lines_are_stripped(tmp_path):
  (tmp_path / "vocab.txt").write_bytes(b"[PAD]\r\n[UNK]\n\n[CLS]\n [SEP] \n[MASK]\na")
  tokenizer = load_tokenizer(tmp_path)
  assert tokenizer.pieces == ("[PAD]", "[UNK]", "", "[CLS]", "[SEP]", "[MASK]", "a")
  assert tokenizer.encode("a").tolist() == [6]


def test_a_folder_with_tokenizer_json_alone(tmp_path):
  vocabulary = {piece: i for i, piece in enumerate((*SPECIAL, "Ab", "##c"))}
  model = {"type": "WordPiece", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocabulary}
  normalizer = {"type": "BertNormalizer", "lowercase": False, "strip_accents": None, "handle_chinese_chars": True}
  (tmp_path / "tokenizer.json").write_text(json.dumps({"normalizer": normalizer, "model": model}))
  tokenizer = load_tokenizer(tmp_path)
  assert (tokenizer.pieces, tokenizer.lowercase) == ((*SPECIAL, "Ab", "##c"), False)


def test_casing_is_seen_in_a_vocabulary_that_comes_alone(tmp_path):
  for piece, lowercase in (("Paris", False), ("paris", True)):
    (tmp_path / "vocab.txt").write_text("\n".join((*SPECIAL, "[unused1]", piece)))
    assert load_tokenizer(tmp_path / "vocab.txt").lowercase is lowercase


@pytest.mark.parametrize(
  ("files", "message"),
  [
    ({}, "neither vocab.txt nor tokenizer.json"),
    ({"vocab.txt": "[PAD]\n[UNK]\n[CLS]\n[SEP]\na"}, r"vocab\.txt: the vocabulary has no \[MASK\] piece"),
    ({"vocab.txt": "\n".join((*SPECIAL, "a", "b", "a"))}, "'a' twice, in lines 6 and 8"),
    ({"vocab.txt": b"[PAD]\n\xff\xfe"}, "not UTF-8"),
    ({"tokenizer.json": "{"}, "tokenizer.json: not JSON"),
    ({"tokenizer.json": '{"model": {"type": "BPE"}}'}, "no WordPiece vocabulary with ## .its model is BPE"),
    (
      {
        "vocab.txt": "\n".join(SPECIAL),
        "tokenizer.json": '{"added_tokens": [{"content": "[PAD]"}, {"content": "<x>"}]}',
      },
      "pieces beside the vocabulary are not supported: <x>",
    ),
    (
      {"vocab.txt": "\n".join(SPECIAL), "tokenizer_config.json": '{"do_lower_case": true, "strip_accents": false}'},
      "strip_accents=False with do_lower_case=True is not supported",
    ),
    (
      {"vocab.txt": "\n".join(SPECIAL), "tokenizer_config.json": '{"tokenize_chinese_chars": false}'},
      "tokenize_chinese_chars=false is not supported",
    ),
  ],
)
def test_a_bad_vocabulary_is_named(tmp_path, files, message):
  for name, content in files.items():
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
  with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
    load_tokenizer(tmp_path)
  assert str(tmp_path) in str(caught.value)
  assert "\n" not in str(caught.value)


def test_nothing_at_the_path(tmp_path):
  with pytest.raises(FileNotFoundError, match="no such tokenizer"):
    load_tokenizer(tmp_path / "nowhere")
