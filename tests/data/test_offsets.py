"""Pieces know which characters of the text they stand for, whatever was done to the text first."""

import random

import numpy as np
import pytest

from data import sentencepiece_model
from data.sentencepiece import FAMILIES, SentencePiece
from data.sentencepiece_model import CONTROL, NORMAL, UNKNOWN
from data.wordpiece import SPECIAL, WordPiece

WORDS = ("cafe", "na", "##ive", "e", "x", "1", ",", "'", "ᄒ", "##ᅡ", "##ᆫ", "ς", "σ", "##ς", "日", "½", "the", "##y")
ODD = "aAéÉ1,2'` Σςe\u0301\u0323\u00a0\u2028\x85\t\n\u200b\ufeff\ue000½ﬁ한İß日\U0002b820\U0001d538\x1f\u3000#-(¨"


def sentence_pieces(*pieces: str, lowercase: bool = True, keep_accents: bool = False) -> SentencePiece:
  family = FAMILIES["albert"]
  kinds = dict.fromkeys(family.special, CONTROL) | {"<unk>": UNKNOWN}
  entries = [(piece, 0.0, kinds[piece]) for piece in family.special]
  entries += [(piece, len(piece) ** 2 / 100 - 10, NORMAL) for piece in pieces]
  return SentencePiece(sentencepiece_model.build(entries, b""), lowercase, keep_accents)


def seen(tokenizer, text: str) -> list[tuple[str, str]]:
  """Each piece beside the text that it stands for."""
  ids, spans = tokenizer.encode_with_offsets(text)
  assert ids.dtype == spans.dtype == np.int32
  np.testing.assert_array_equal(ids, tokenizer.encode(text))
  return [(tokenizer.pieces[i], text[a:b]) for i, (a, b) in zip(ids, spans, strict=True)]


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ("Café  naïve", [("cafe", "Café"), ("na", "na"), ("##ive", "ïve")]),
    ("Cafe\u0301, X", [("cafe", "Cafe\u0301"), (",", ","), ("x", "X")]),  # the accent belongs to its letter
    ("한", [("ᄒ", "한"), ("##ᅡ", "한"), ("##ᆫ", "한")]),  # one character, three pieces
    ("they\u200b 日x", [("the", "the"), ("##y", "y\u200b"), ("日", "日"), ("x", "x")]),
    ("\ufeffthe qq", [("the", "the"), ("[UNK]", "qq")]),
    ("ΣΣ x", [("σ", "Σ"), ("##ς", "Σ"), ("x", "x")]),  # split by the slow rules: a final sigma
    (" \ue000 Caf\u00e9\U0002b820x", [("[UNK]", "\ue000"), ("cafe", "Café"), ("[UNK]", "\U0002b820"), ("x", "x")]),
    (" \t", []),
  ],
)
def test_a_word_piece_stands_for_characters_of_the_original_text(text, expected):
  assert seen(WordPiece((*SPECIAL, *WORDS), lowercase=True), text) == expected


def test_in_a_cased_vocabulary_an_accent_is_a_character():
  tokenizer = WordPiece((*SPECIAL, "e", "##\u0301", "é"), lowercase=False)
  assert seen(tokenizer, "e\u0301 é") == [("e", "e"), ("##\u0301", "\u0301"), ("é", "é")]


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    (" Café  naïve", [("▁cafe", "Café"), ("▁na", "na"), ("ive", "ïve")]),
    ("cafe\u0301 ``x''", [("▁cafe", "cafe\u0301"), ("▁", ""), ('"', "``"), ("x", "x"), ('"', "''")]),
    ("ﬁ 한", [("▁", ""), ("f", "ﬁ"), ("i", "ﬁ"), ("▁", ""), ("<unk>", "한")]),
    # "▁2," ends in a digit and a comma, so it is cut again.
    ("x 2, x", [("▁", ""), ("x", "x"), ("▁2", "2"), (",", ","), ("▁", ""), ("x", "x")]),
    ("x12,", [("▁", ""), ("x", "x"), ("12", "12"), (",", ",")]),
    ("\u2028", []),
  ],
)
def test_a_sentence_piece_stands_for_characters_of_the_original_text(text, expected):
  pieces = ("▁", "▁cafe", "▁na", "ive", '"', "x", "f", "i", "▁2,", "▁2", "2", "12,", "▁12", "12", ",")
  assert seen(sentence_pieces(*pieces), text) == expected


TOKENIZERS = {
  "wordpiece": WordPiece((*SPECIAL, *WORDS), lowercase=True),
  "wordpiece, cased": WordPiece((*SPECIAL, *WORDS), lowercase=False),
  "sentencepiece": sentence_pieces("▁", "▁cafe", "a", "e", "▁1,", "1", "2,", "2", ",", '"', "i", "σ", "ς"),
  "sentencepiece, accents": sentence_pieces("▁", "a", "e", "é", ",", "1,", '"', lowercase=False, keep_accents=True),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_spans_follow_one_another_and_leave_no_letter_out(name):
  tokenizer, rng = TOKENIZERS[name], random.Random(name)
  for _ in range(400):
    text = "".join(rng.choice(ODD) for _ in range(rng.randint(1, 20)))
    ids, spans = tokenizer.encode_with_offsets(text)
    np.testing.assert_array_equal(ids, tokenizer.encode(text), err_msg=repr(text))
    assert (spans[:, 0] <= spans[:, 1]).all(), repr(text)
    assert (spans[1:, 0] >= spans[:-1, 0]).all(), repr(text)
    covered = {i for a, b in spans.tolist() for i in range(a, b)}
    assert all(i in covered for i, c in enumerate(text) if c.isascii() and c.isalnum()), repr(text)
    assert not any(text[a].isspace() or text[b - 1].isspace() for a, b in spans.tolist() if b > a), repr(text)
