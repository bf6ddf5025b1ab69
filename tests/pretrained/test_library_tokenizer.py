"""The exported tokenizer.json gives our ids, and rows as the family has them."""

import numpy as np
import pytest
import tokenizers

from data import rows
from pretrained import library_tokenizer
from pretrained.load import load
from tests.pretrained.heads import FIXTURES

TEXTS = [
  "Paris is the capital of France.", "", "   a  cat \t sat\x0b. ", "zebras (1,000 of them) re-enter``here''",
  "naïve ﬁ Ω ½ ΑΣ Σ",  "a.cat. sat", "x" * 50, "A\x85b\x1cc",
]  # fmt: skip


@pytest.mark.parametrize(("folder", "cls_last"), [("xlnet", True), ("bert", False), ("bert", True)])
def test_the_same_ids(folder, cls_last, tmp_path):
  tokenizer = load(FIXTURES / folder).tokenizer
  library = library_tokenizer.build(tokenizer, cls_last)
  library.save(str(tmp_path / "tokenizer.json"))
  library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
  texts = TEXTS if folder == "xlnet" else [text for text in TEXTS if "\x1c" not in text]
  for text in texts:
    assert library.encode(text, add_special_tokens=False).ids == tokenizer.encode(text).tolist(), text
  a, b = tokenizer.encode("a cat"), tokenizer.encode("sat")
  pair, one = library.encode("a cat", "sat"), library.encode("a cat")
  assert pair.ids == rows.layout(tokenizer, a, b, cls_last=cls_last).tolist()
  assert pair.type_ids == rows.segment_ids(tokenizer, len(a), len(b), cls_last=cls_last).tolist()
  assert one.ids == rows.layout(tokenizer, a, cls_last=cls_last).tolist()
  assert library.decode(np.asarray(one.ids)) == "a cat"
  assert library.encode(tokenizer.pieces[tokenizer.mask_id], add_special_tokens=False).ids == [tokenizer.mask_id]
