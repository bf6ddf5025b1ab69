"""What the tools make of an XLNet folder, beside `transformers` and its tokenizer: states of every layer, blanks."""

import pathlib

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
# ruff: noqa: E402

from pretrained.load import load
from tools import features, fill_mask

pytestmark = pytest.mark.parity

FOLDER = pathlib.Path(__file__).parent.parent / "fixtures" / "xlnet"
TEXTS = [
  ["Paris is the capital of France."],
  ["the"],
  ["A cat sat", "the city is a capital of zebra"],
  ["a city is " * 11],
]


def theirs(kind: str):
  """Their model, in which every row is read forwards, and their tokenizer."""
  model = getattr(transformers, kind).from_pretrained(FOLDER, bi_data=False, use_mems_eval=False).eval()
  return model, transformers.AutoTokenizer.from_pretrained(FOLDER)


@pytest.mark.parametrize("pooling", features.POOLING)
def test_features(pooling):
  """Of each text alone there, and of all in padded batches here."""
  model, tokenizer = theirs("XLNetModel")
  loaded = load(FOLDER)
  rows = features.make_rows(loaded.tokenizer, TEXTS, 64)
  found = features.vectors(loaded, rows, [0, 1, 2], pooling=pooling, batch_tokens=80)
  for text, row, one in zip(TEXTS, rows, found, strict=True):
    inputs = tokenizer(*text, return_tensors="pt", return_token_type_ids=True)
    assert row.tokens.tolist() == inputs["input_ids"][0].tolist()
    assert row.segment_ids.tolist() == inputs["token_type_ids"][0].tolist()
    with torch.no_grad():
      states = torch.cat(
        model(**inputs, output_hidden_states=True).hidden_states
      ).numpy()  # [layers + 1, length, width]
    if pooling == "none":
      np.testing.assert_allclose(one["hidden_rep"], states.swapaxes(0, 1), atol=1e-4)
      continue
    pooled = {"cls": states[:, -1], "mean": states.mean(axis=1), "max": states.max(axis=1)}[pooling]
    np.testing.assert_allclose(one["embeddings"], pooled.ravel(), atol=1e-4)


def test_blanks():
  """perm_mask hides every blank from everybody; target_mapping asks for one blank after another."""
  model, tokenizer = theirs("XLNetLMHeadModel")
  texts = ["Paris is the [MASK] of [MASK] [MASK]", "A [MASK]", "[MASK] is a city " + "a cat " * 9]
  results = fill_mask.fill_mask(load(FOLDER), texts, top_k=96)
  for text, blanks in zip(texts, results, strict=True):
    inputs = tokenizer(text.replace("[MASK]", tokenizer.mask_token), return_tensors="pt", return_token_type_ids=True)
    is_blank = inputs["input_ids"][0] == tokenizer.mask_token_id
    places = torch.nonzero(is_blank)[:, 0]
    assert len(blanks) == len(places) == text.count("[MASK]")
    hidden = is_blank.float()[None, None].repeat(1, len(is_blank), 1)
    mapping = torch.nn.functional.one_hot(places, len(is_blank)).float()[None]
    with torch.no_grad():
      expected = model(**inputs, perm_mask=hidden, target_mapping=mapping).logits.softmax(dim=-1)[0]
    for blank, probabilities in zip(blanks, expected.numpy(), strict=True):
      ours = dict(blank)
      np.testing.assert_allclose(
        [ours[tokenizer.convert_ids_to_tokens(i)] for i in range(96)], probabilities, atol=1e-4
      )
