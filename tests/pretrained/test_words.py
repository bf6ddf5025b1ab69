"""Words of a domain take [unusedN] slots, then rows of their own; each begins as the mean of its pieces."""

import flax.traverse_util
import numpy as np
import pytest

from pretrained.load import load
from pretrained.words import add_words
from tests.pretrained.heads import FIXTURES, model

WORDS = "encoder/embeddings/word/embedding"


def flat(one) -> dict:
  return {name: np.asarray(x) for name, x in flax.traverse_util.flatten_dict(one.params, sep="/").items()}


def test_a_word_takes_a_slot():
  bert = load(FIXTURES / "bert")
  parts = bert.tokenizer.encode("cats")
  assert [bert.tokenizer.pieces[i] for i in parts] == ["cat", "##s"]
  changed, new = add_words(bert, ["cats\n", "\n", "Paris\n", "cats\n", "##at"])
  assert new == ["cats", "##at"]
  slot, second = bert.tokenizer.pieces.index("[unused0]"), bert.tokenizer.pieces.index("[unused1]")
  assert changed.tokenizer.encode("cats").tolist() == [slot]
  assert changed.tokenizer.encode("bat").tolist() == [bert.tokenizer.pieces.index("b"), second]
  assert changed.tokenizer.encode("a cat sat").tolist() == bert.tokenizer.encode("a cat sat").tolist()
  assert not changed.tokenizer.special[slot]
  assert changed.config == bert.config
  before, after = flat(bert), flat(changed)
  for name in (WORDS, "mlm_head/bias"):
    np.testing.assert_allclose(after[name][slot], before[name][parts].mean(axis=0), rtol=1e-6)
    ends = [bert.tokenizer.pieces.index(piece) for piece in ("##a", "##t")]
    np.testing.assert_allclose(after[name][second], before[name][ends].mean(axis=0), rtol=1e-6)
    others = [i for i in range(96) if i not in (slot, second)]
    np.testing.assert_array_equal(after[name][others], before[name][others])
  assert all(np.array_equal(after[name], x) for name, x in before.items() if name not in (WORDS, "mlm_head/bias"))


def test_the_vocabulary_grows_when_no_slot_is_left():
  bert = load(FIXTURES / "bert")
  words = [a + b + c for a in "bcd" for b in "efghi" for c in "jkl"]
  slots = sum(piece.startswith("[unused") for piece in bert.tokenizer.pieces)
  changed, new = add_words(bert, words)
  assert len(new) == 45 > slots
  size = 96 + 45 - slots
  assert (changed.tokenizer.vocab_size, changed.config.vocab_size) == (size, size)
  assert flat(changed)[WORDS].shape == (size, 32)
  assert flat(changed)["mlm_head/bias"].shape == (size,)
  last = bert.tokenizer.encode(words[-1])
  np.testing.assert_allclose(flat(changed)[WORDS][-1], flat(bert)[WORDS][last].mean(axis=0), rtol=1e-6)


@pytest.mark.parametrize("text", ["new york", "e-mail", "[unused1]"])
def test_what_is_not_one_word(text):
  with pytest.raises(ValueError, match=r"line 2: .* is \d words to this tokenizer"):
    add_words(load(FIXTURES / "bert"), ["fine", text])


def test_a_sentencepiece_vocabulary_is_refused():
  with pytest.raises(ValueError, match="words can be put into a WordPiece vocabulary only"):
    add_words(model("xlnet", "span"), ["word"])
