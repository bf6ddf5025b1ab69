"""Reading Hugging Face folders: recorded outputs of `transformers`, old names, and files that do not fit.

The fixtures are written by tests/parity/record.py. What is ALBERT's alone is in test_albert.py.
"""

import json
import pathlib
import shutil

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from models.pretraining import PretrainingModel
from pretrained import files, hf, names
from pretrained.load import load

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"
FIXTURE = FIXTURES / "bert"
WORDS = "bert.embeddings.word_embeddings.weight"
HEADS = ("pooler", "mlm_head", "pair_head")


@pytest.fixture
def folder(tmp_path):
  """A copy of the fixture, to be spoilt."""
  return pathlib.Path(shutil.copytree(FIXTURE, tmp_path / "bert"))


def edit_config(folder, **fields):
  path = folder / "config.json"
  path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def edit_tensors(folder, change):
  path = folder / "model.safetensors"
  tensors = load_file(path)
  save_file({name: np.ascontiguousarray(x) for name, x in change(tensors).items()}, path)


RECORDED = [("bert", "gelu"), ("bert", "gelu_new"), ("albert", "gelu_new"), ("albert", "relu")]


@pytest.mark.parametrize(("family", "activation"), RECORDED)
def test_recorded_outputs(family, activation, tmp_path):
  folder = pathlib.Path(shutil.copytree(FIXTURES / family, tmp_path / family))
  edit_config(folder, hidden_act=activation)
  config, params, missing = hf.read_folder(folder)
  assert (config.activation, missing) == (activation, ())
  recorded = np.load(FIXTURES / family / f"{activation}.npz")
  rows = [jnp.asarray(recorded[name]) for name in ("tokens", "segment_ids", "sequence_ids")]
  every = jnp.broadcast_to(jnp.arange(16)[None], (3, 16))
  model = PretrainingModel(config)
  hidden = model.apply({"params": params}, *rows, method="hidden")
  output = jax.jit(lambda params: model.apply({"params": params}, *rows, every))(params)
  real = recorded["sequence_ids"] > 0
  np.testing.assert_allclose(hidden[:, real], recorded["hidden"], atol=1e-5)
  np.testing.assert_allclose(model.apply({"params": params}, hidden[-1], method="pool"), recorded["pooled"], atol=1e-5)
  np.testing.assert_allclose(output.mlm_logits[real], recorded["mlm_logits"], atol=2e-5)
  np.testing.assert_allclose(output.pair_logits, recorded["pair_logits"], atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_the_two_activations_were_recorded_apart(family):
  """Otherwise the test above could not tell them apart."""
  one, other = (
    np.load(FIXTURES / family / f"{activation}.npz")["mlm_logits"] for of, activation in RECORDED if of == family
  )
  assert np.abs(one - other).max() > 1e-4


def old_names(tensors):
  change = lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
  return {change(name): x for name, x in tensors.items()}


def with_copies(tensors):
  copies = {
    "cls.predictions.decoder.weight": tensors[WORDS],
    "cls.predictions.decoder.bias": tensors["cls.predictions.bias"],
  }
  return tensors | copies | {"bert.embeddings.position_ids": np.arange(24)[None]}


@pytest.mark.parametrize("change", [old_names, with_copies])
def test_other_spellings_are_the_same_model(folder, change):
  edit_tensors(folder, change)
  _, params, missing = hf.read_folder(folder)
  assert missing == ()
  jax.tree.map(np.testing.assert_array_equal, params, hf.read_folder(FIXTURE)[1])


def test_a_bare_encoder(folder):
  bare = lambda tensors: {n[5:]: x for n, x in tensors.items() if n.startswith(("bert.embeddings", "bert.encoder"))}
  edit_tensors(folder, bare)
  _, params, missing = hf.read_folder(folder)
  assert missing == HEADS
  assert params.keys() == {"encoder"}
  jax.tree.map(np.testing.assert_array_equal, params["encoder"], hf.read_folder(FIXTURE)[1]["encoder"])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_files_become_float32(folder, dtype):
  edit_tensors(folder, lambda tensors: {name: x.astype(dtype) for name, x in tensors.items()})
  _, params, _ = hf.read_folder(folder)
  exact = hf.read_folder(FIXTURE)[1]
  jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b.astype(dtype).astype(np.float32)), params, exact)
  assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype("float32")}


@pytest.mark.parametrize("family", hf.FAMILIES)
def test_the_table_reads_and_writes(family):
  """Out and in again gives the same tensors, without the slots that vocab_multiple adds."""
  tensors = load_file(FIXTURES / family / "model.safetensors")
  entries = hf.FAMILIES[family].ENTRIES
  config, params, _ = hf.read_folder(FIXTURES / family)
  written = names.to_theirs(entries, params, config)
  assert written.keys() == tensors.keys()
  for name, x in tensors.items():
    np.testing.assert_array_equal(written[name], x)
  head = "lm_head" if family == "xlnet" else "mlm_head"
  params[head]["bias"] = np.pad(params[head]["bias"], (0, 32))
  [bias] = [entry.theirs for entry in entries if entry.ours == f"{head}/bias"]
  assert names.to_theirs(entries, params, config)[bias].shape == (96,)


@pytest.mark.parametrize("family", hf.FAMILIES)
def test_every_parameter_is_in_the_table_once(family):
  config, params, _ = hf.read_folder(FIXTURES / family)
  ours = [entry.ours for entry in hf.FAMILIES[family].ENTRIES]
  assert sorted(ours) == sorted(hf.parameter_shapes(config))
  shapes = {"/".join(k.key for k in path): x.shape for path, x in jax.tree_util.tree_leaves_with_path(params)}
  assert shapes == hf.parameter_shapes(config)


@pytest.mark.parametrize("family", hf.FAMILIES)
def test_config_json_reads_and_writes(family, tmp_path):
  """What is written is what transformers wrote, as far as the encoder has it, and reads as the same encoder."""
  recorded = json.loads((FIXTURES / family / "config.json").read_text())
  config = hf.read_folder(FIXTURES / family)[0]
  written = hf.FAMILIES[family].write_config(config)
  assert written.items() <= recorded.items()
  assert hf.FAMILIES[family].read_config(written) == config


def test_fields_of_the_releases_that_say_nothing_of_the_encoder(folder):
  """The multilingual and the Chinese release describe a pooler that no code builds; none names the family."""
  pooler = {"pooler_fc_size": 768, "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3, "pooler_type": "x"}
  edit_config(folder, **pooler, pooler_size_per_head=128, directionality="bidi", model_type=None, architectures=None)
  assert hf.read_folder(folder)[0] == hf.read_folder(FIXTURE)[0]


def test_load_brings_the_tokenizer():
  loaded = load(FIXTURE)
  assert loaded.tokenizer.decode(loaded.tokenizer.encode("Paris is a city.")) == "paris is a city ."
  assert loaded.config.vocab_size == loaded.tokenizer.vocab_size == 96
  assert loaded.missing == ()


def without(name):
  return lambda tensors: {n: x for n, x in tensors.items() if n != name}


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (lambda t: t | {"classifier.weight": np.ones((2, 32))}, r"model\.safetensors: unknown tensors: classifier\.weight"),
    (without(WORDS), f"missing tensors: {WORDS}"),
    (
      without("bert.encoder.layer.1.output.dense.bias"),
      r"missing tensors: bert\.encoder\.layer\.1\.output\.dense\.bias",
    ),
    (without("bert.pooler.dense.bias"), r"missing tensors: bert\.pooler\.dense\.bias"),
    (
      lambda t: t | {"bert.pooler.dense.weight": np.ones((32, 31), np.float32)},
      r"bert\.pooler\.dense\.weight has shape \(32, 31\); config\.json says \(32, 32\)",
    ),
    (
      lambda t: t | {"bert.encoder.layer.0.intermediate.dense.weight": np.ones((60, 32), np.float32)},
      r"intermediate\.dense\.weight has shape \(60, 32\); config\.json says \(64, 32\)",
    ),
    (lambda t: t | {"cls.predictions.decoder.weight": t[WORDS] + 1}, "an untied output matrix is not supported"),
  ],
)
def test_tensors_that_do_not_fit_are_named(folder, change, message):
  edit_tensors(folder, change)
  with pytest.raises(ValueError, match=message):
    hf.read_folder(folder)


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"model_type": "roberta"}, r"config\.json: model_type='roberta' is not supported, only bert, albert"),
    ({"hidden_act": "silu"}, "hidden_act='silu' is not supported, only gelu, gelu_new"),
    ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key' is not supported"),
    ({"is_decoder": True}, "is_decoder=True is not supported"),
    ({"num_attention_heads": 5}, "does not divide"),
    ({"num_hidden_layers": 3}, r"missing tensors: bert\.encoder\.layer\.2\.attention"),
    ({"num_hidden_layers": 1}, r"unknown tensors: bert\.encoder\.layer\.1\.attention"),
  ],
)
def test_settings_that_do_not_fit_are_named(folder, fields, message):
  edit_config(folder, **fields)
  with pytest.raises(ValueError, match=message):
    hf.read_folder(folder)


def test_files_that_are_missing_or_damaged(folder, monkeypatch):
  weights = folder / "model.safetensors"
  whole = weights.read_bytes()
  weights.write_bytes(whole[: len(whole) // 2])
  with pytest.raises(ValueError, match=r"model\.safetensors: not a whole safetensors file"):
    load(folder)
  weights.rename(folder / "pytorch_model.bin")
  monkeypatch.setattr(files, "_torch", lambda: None)
  with pytest.raises(ValueError, match=r"pytorch_model\.bin: pickled weights are read by PyTorch .* is not installed"):
    load(folder)
  (folder / "pytorch_model.bin").unlink()
  with pytest.raises(FileNotFoundError, match="no model here"):
    load(folder)
  with pytest.raises(FileNotFoundError, match="no such checkpoint"):
    load(folder / "absent")
  weights.write_bytes(whole)
  (folder / "config.json").write_text("{")
  with pytest.raises(ValueError, match=r"config\.json: "):
    load(folder)
  (folder / "config.json").unlink()
  with pytest.raises(FileNotFoundError, match=r"config\.json: no such file"):
    load(folder)


def test_a_tokenizer_of_another_model(folder):
  with (folder / "vocab.txt").open("a") as file:
    file.write("extra\n")
  with pytest.raises(ValueError, match="the tokenizer has 97 pieces and the model only 96"):
    load(folder)
