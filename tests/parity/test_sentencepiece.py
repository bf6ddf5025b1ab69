"""SentencePiece beside `transformers`, on the articles of `wikipedia_sample`: equal ids, or a reason.

transformers 5 differs from the originals (and from its own slow tokenizers before it) in four ways, which `their_ids`
does to a text on purpose: it takes the symbols of a vocabulary for special tokens, and begins a new text after each; it
has no rule for digits before a comma; it drops the control characters U+001C to U+001F where Python sees white space;
and it takes "[MASK]" in a text for the mask.
"""

import re
from collections.abc import Callable

import numpy as np
import pytest
import sentencepiece as library

transformers = pytest.importorskip("transformers")
# ruff: noqa: E402

from data import corpora, sentencepiece_training
from data.sentencepiece import FAMILIES, SentencePiece, preprocess
from data.tokenizers import load_tokenizer

pytestmark = pytest.mark.parity


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> corpora.Documents:
  pytest.importorskip("gensim")
  return corpora.wikipedia_sample(str(tmp_path_factory.mktemp("tfds")))[corpora.TRAIN]


@pytest.fixture(scope="module")
def lines(documents) -> list[str]:
  return [line for text in documents.read(0, len(documents)) for line in text.split("\n") if line]


@pytest.fixture(scope="module", params=[("albert", True), ("albert", False), ("xlnet", False)], ids=str)
def tokenizer(request, documents) -> SentencePiece:
  family, lowercase = request.param
  model = sentencepiece_training.train(documents, FAMILIES[family], 4000, lowercase, sample_bytes=1_000_000)
  return SentencePiece(model, lowercase)


def read(tokenizer: SentencePiece, folder):
  tokenizer.save(folder)
  return getattr(transformers, tokenizer.family.huggingface).from_pretrained(folder)


@pytest.fixture
def their_encode(tokenizer, tmp_path) -> Callable[[list[str]], list[list[int]]]:
  theirs = read(tokenizer, tmp_path / "read")
  return lambda texts: theirs(texts, add_special_tokens=False)["input_ids"]


@pytest.fixture(scope="module")
def processor(tokenizer) -> library.SentencePieceProcessor:
  return library.SentencePieceProcessor(model_proto=tokenizer.model)


def assert_equal(processor, texts, ours, theirs) -> None:
  """Equal, or in a few texts a word that can be cut in two ways of the same likelihood."""
  differing = [row for row in zip(texts, ours, theirs, strict=True) if row[1] != row[2]]
  for text, *both in differing:
    ours, theirs = (sum(map(processor.get_score, ids)) for ids in both)
    assert ours == pytest.approx(theirs, abs=1e-3), text
  assert len(differing) < len(texts) / 200


def test_text_without_symbols_and_digits_before_a_comma(tokenizer, processor, their_encode, lines):
  apart = re.compile(f"[{re.escape(tokenizer.family.symbols)}]|(?<=\\d),")
  texts = [text for line in lines for text in apart.split(line) if text.strip()]
  assert len(texts) > 20_000
  assert_equal(processor, texts, [ids.tolist() for ids in tokenizer.encode_batch(texts)], their_encode(texts))


def test_every_difference_has_its_reason(tokenizer, processor, their_encode, lines):
  texts = [*lines, "A\x85b\x1cc, 1,000,000 in 2010, (see [MASK]) and <mask>… ½ Ǆ"]
  assert len(texts) > 2000
  assert_equal(processor, texts, [their_ids(tokenizer, processor, text) for text in texts], their_encode(texts))
  unequal = [a.tolist() != b for a, b in zip(tokenizer.encode_batch(texts), their_encode(texts), strict=True)]
  assert sum(unequal) > len(texts) / 2  # the reasons are no small print


def their_ids(tokenizer: SentencePiece, processor: library.SentencePieceProcessor, text: str) -> list[int]:
  """The ids of `text` as transformers gives them, by means of the library and of `preprocess`."""
  apart = "|".join(map(re.escape, (*tokenizer.family.symbols, *tokenizer.family.special)))
  ids = []
  for part in re.split(f"({apart})", re.sub("[\x1c-\x1f]", "", text)):
    if re.fullmatch(apart, part):
      ids.append(processor.piece_to_id(part))
    else:
      ids += processor.encode(preprocess(part, tokenizer.lowercase, tokenizer.keep_accents))
  return ids


def test_a_folder_that_they_saved_is_the_same_vocabulary(tokenizer, lines, tmp_path):
  read(tokenizer, tmp_path / "ours").save_pretrained(tmp_path / "theirs")
  assert not (tmp_path / "theirs" / "spiece.model").exists()
  saved = load_tokenizer(tmp_path / "theirs")
  assert (saved.pieces, saved.lowercase) == (tokenizer.pieces, tokenizer.lowercase)
  assert np.array_equal(saved.special, tokenizer.special)
  for ids, expected in zip(saved.encode_batch(lines), tokenizer.encode_batch(lines), strict=True):
    assert ids.tolist() == expected.tolist()
