"""Training gives the originals' special pieces and ids, what their preprocessing leaves, and always the same bytes."""

import dataclasses
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from data.sentencepiece import FAMILIES, SentencePiece
from data.sentencepiece_training import train
from tests import text

ALBERT, XLNET = FAMILIES["albert"], FAMILIES["xlnet"]


@dataclasses.dataclass(frozen=True)
class Documents:
  """As much of `data.corpora.Documents` as training needs."""

  texts: tuple[str, ...]

  def parts(self, part_bytes: int, sample_bytes: int = 0) -> list[tuple[int, int]]:
    return [(i, i + 1) for i in range(len(self.texts))]

  def read(self, start: int, stop: int) -> Iterator[str]:
    yield from self.texts[start:stop]


def sentences(count: int = 400) -> Documents:
  rng = np.random.default_rng(0)
  return Documents(tuple(f"{text.sentence(rng)} In {rng.integers(1900, 2000)}, (not all)." for _ in range(count)))


def test_special_pieces_have_the_released_ids():
  albert = SentencePiece(train(sentences(), ALBERT, 80, lowercase=True))
  assert albert.pieces[:13] == ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "(", ")", '"', "-", ".", "–", "£", "€")
  xlnet = SentencePiece(train(sentences(), XLNET, 80, lowercase=False), lowercase=False)
  assert xlnet.pieces[:9] == ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>")
  assert xlnet.pieces[9:17] == (".", "(", ")", '"', "-", "–", "£", "€")
  for tokenizer, special in ((albert, 5), (xlnet, 9)):
    assert tokenizer.vocab_size == 80
    assert np.flatnonzero(tokenizer.special).tolist() == list(range(special))
  assert not any(piece.lower() != piece for piece in albert.pieces[5:])
  assert "I" in xlnet.pieces


def test_a_text_may_hold_fewer_pieces():
  assert 80 < SentencePiece(train(sentences(), ALBERT, 1000, lowercase=True)).vocab_size < 200


def test_encoding_gives_back_the_text():
  documents = sentences()
  tokenizer = SentencePiece(train(documents, ALBERT, 80, lowercase=True))
  for line in documents.texts[:50]:
    assert tokenizer.decode(tokenizer.encode(line)) == line.lower()


def test_accents_and_case():
  documents = Documents(("Déjà vu, déjà VU",) * 20)
  plain = SentencePiece(train(documents, ALBERT, 60, lowercase=True))
  kept = SentencePiece(train(documents, ALBERT, 60, lowercase=False, keep_accents=True), False, keep_accents=True)
  assert plain.decode(plain.encode("DÉJÀ")) == "deja"
  assert kept.decode(kept.encode("Déjà VU")) == "Déjà VU"


def test_rare_characters_are_unknown():
  documents = Documents((*("abcd efgh " * 10,) * 20, "ж"))  # one of about 2000 characters
  assert "ж" not in SentencePiece(train(documents, ALBERT, 40, True, character_coverage=0.999)).pieces
  assert "ж" in SentencePiece(train(documents, ALBERT, 40, True, character_coverage=1.0)).pieces


def test_long_lines_teach_too():
  """The library drops a sentence of more than 4192 bytes; here no line is too long, only words are cut."""
  documents = Documents((" ".join(["zebra"] * 2000), "ж" * 3000, "\n".join(["horse"] * 50)))
  pieces = SentencePiece(train(documents, ALBERT, 60, True)).pieces
  assert {"▁zebra", "▁horse"} <= {*pieces}
  assert any("ж" in piece for piece in pieces)


def test_every_process_trains_the_same_bytes():
  code = (
    "import hashlib; from tests.data.test_sentencepiece_training import *\n"
    "print(hashlib.sha256(train(sentences(), ALBERT, 80, lowercase=True)).hexdigest())"
  )
  printed = [
    subprocess.run(
      [sys.executable, "-c", code],
      env={**os.environ, "PYTHONHASHSEED": seed},
      cwd=pathlib.Path(__file__).parents[2],
      capture_output=True,
      text=True,
      check=True,
    ).stdout
    for seed in ("1", "2")
  ]
  assert printed[0] == printed[1] != ""


@pytest.mark.parametrize(
  ("texts", "kwargs", "message"),
  [
    ((), {}, "the text has no words"),
    (("\u0301",), {}, "the text has no words"),
    (
      ("abcdefgh",),
      {"vocab_size": 14},
      r"sentencepiece cannot train on this text: Vocabulary size is smaller than required_chars\. 14 vs 22\. Increase",
    ),
    (("abc",), {"character_coverage": 1.5}, "character_coverage=1.5 is no share of the characters"),
  ],
)
def test_what_cannot_be_trained_is_said(texts, kwargs, message):
  with pytest.raises(ValueError, match=message) as caught:
    train(Documents(texts), ALBERT, **{"vocab_size": 100, "lowercase": True, **kwargs})
  assert "\n" not in str(caught.value)
