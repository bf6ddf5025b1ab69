"""What is XLNet's alone in a Hugging Face folder: recorded outputs of both streams, tied biases, fields."""

import json
import pathlib
import shutil

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pretrained import hf, names, xlnet
from tests.parity.xlnet_compare import ours

FIXTURE = pathlib.Path(__file__).parent.parent / "fixtures" / "xlnet"


@pytest.fixture
def folder(tmp_path):
  """A copy of the fixture, to be changed."""
  return pathlib.Path(shutil.copytree(FIXTURE, tmp_path / "xlnet"))


def edit_config(folder, remove=(), **fields):
  path = folder / "config.json"
  kept = {name: value for name, value in json.loads(path.read_text()).items() if name not in remove}
  path.write_text(json.dumps(kept | fields))


def test_recorded_outputs():
  """Both streams, new memory and logits: with memory, padding and rows read backwards (tests/parity/record.py)."""
  config, params, missing = hf.read_folder(FIXTURE)
  recorded = dict(np.load(FIXTURE / "gelu.npz"))
  backward = np.array([False, False, True, True])
  output, logits = ours(config, params, recorded, recorded["memory"], backward, True, 6)
  assert not missing
  real = recorded["real"]
  np.testing.assert_allclose(output.content[:, real], recorded["content"][:-1, real], atol=1e-4)
  np.testing.assert_allclose(output.query, recorded["query"], atol=1e-4)
  np.testing.assert_allclose(logits, recorded["logits"], atol=1e-4)
  np.testing.assert_allclose(output.memory[:, :, :3], recorded["kept"][:, :, :3], atol=0)  # of the old memory
  np.testing.assert_allclose(output.memory[::2], recorded["kept"][::2], atol=1e-4)  # rows without padding


def test_heads_are_joined_and_the_output_matrix_is_turned():
  tensors, (config, params, _) = load_file(FIXTURE / "model.safetensors"), hf.read_folder(FIXTURE)
  attention = params["xlnet"]["layers"]["attention"]
  assert (config.num_heads, config.head_width) == (4, 6)
  head, i = 2, 3
  theirs = tensors["transformer.layer.1.rel_attn.q"][:, head, i]
  np.testing.assert_array_equal(attention["query"]["kernel"][1, :, head * 6 + i], theirs)
  theirs = tensors["transformer.layer.1.rel_attn.o"][:, head, i]
  np.testing.assert_array_equal(attention["output"]["kernel"][1, head * 6 + i], theirs)


def test_tied_biases_are_one_here_and_copies_there(folder):
  edit_config(folder, untie_r=False)
  with pytest.raises(ValueError, match=r"layer\.0\.rel_attn\.r_w_bias and those of the other layers differ"):
    hf.read_folder(folder)
  tensors = load_file(folder / "model.safetensors")
  for name in ("r_w_bias", "r_r_bias", "r_s_bias"):
    tensors[f"transformer.layer.1.rel_attn.{name}"] = tensors[f"transformer.layer.0.rel_attn.{name}"]
  save_file(tensors, folder / "model.safetensors")
  config, params, _ = hf.read_folder(folder)
  assert not config.untie_biases
  assert params["xlnet"]["layers"]["attention"]["content_bias"].shape == (1, 4, 6)
  jax.tree.map(np.testing.assert_array_equal, names.to_theirs(xlnet.ENTRIES, params, config), tensors)


def test_a_bare_model(folder):
  """Saved as XLNetModel: no prefix, no head."""
  tensors = load_file(folder / "model.safetensors")
  bare = {n.removeprefix("transformer."): x for n, x in tensors.items() if n.startswith("transformer.")}
  save_file(bare, folder / "model.safetensors")
  _, params, missing = hf.read_folder(folder)
  assert missing == ("lm_head",)
  np.testing.assert_array_equal(params["xlnet"]["mask_embedding"], tensors["transformer.mask_emb"][0, 0])


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"attn_type": "uni"}, r"config\.json: attn_type='uni' is not supported, only 'bi'"),
    ({"n_layer": 3}, r"missing tensors: transformer\.layer\.2\.rel_attn\.q"),
    ({"n_head": 2}, r"rel_attn\.q has shape \(24, 4, 6\); config\.json says \(24, 2, 6\)"),
    ({"ff_activation": "silu"}, "ff_activation='silu' is not supported"),
    ({"d_model": None}, "missing d_model"),
    ({"dropout": "much"}, "dropout='much' is no number"),
    ({"tie_word_embeddings": False}, "tie_word_embeddings=False is not supported"),
  ],
)
def test_settings_that_do_not_fit_are_named(folder, fields, message):
  edit_config(folder, **fields)
  with pytest.raises(ValueError, match=message):
    hf.read_folder(folder)


def test_fields_of_the_original(folder):
  """xlnet_config.json: n_token for the vocabulary, and neither dropout nor memory."""
  edit_config(folder, remove=("vocab_size", "dropout", "mem_len", "clamp_len"), n_token=96, untie_r=True)
  config = hf.read_folder(folder)[0]
  assert (config.vocab_size, config.mem_len, config.clamp_length, config.ffn_dropout) == (96, 0, 0, 0.1)
