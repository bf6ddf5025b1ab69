"""What is ALBERT's alone in a Hugging Face folder: groups, the projection, fields of the releases, the tokenizer."""

import dataclasses
import io
import json
import pathlib
import shutil

import numpy as np
import pytest
import sentencepiece
from safetensors.numpy import load_file, save_file

from pretrained import albert, bert, hf
from pretrained.load import load

FIXTURE = pathlib.Path(__file__).parent.parent / "fixtures" / "albert"
BLOCK = "albert.encoder.albert_layer_groups.{}.albert_layers.{}"


@pytest.fixture
def folder(tmp_path):
  """A copy of the fixture, to be changed."""
  return pathlib.Path(shutil.copytree(FIXTURE, tmp_path / "albert"))


def edit_config(folder, remove=(), **fields):
  path = folder / "config.json"
  kept = {name: value for name, value in json.loads(path.read_text()).items() if name not in remove}
  path.write_text(json.dumps(kept | fields))


def test_the_config_says_what_is_shared():
  config = hf.read_folder(FIXTURE)[0]
  assert (config.sharing, config.num_layers, config.num_groups, config.inner_groups) == ("all", 4, 2, 2)
  assert (config.embedding_size, config.hidden_size, config.activation) == (16, 24, "gelu_new")


def test_blocks_of_a_group_lie_one_after_another():
  """Copy g · inner + k is block k of group g; matrices are turned to [in, out]."""
  tensors, layers = load_file(FIXTURE / "model.safetensors"), hf.read_folder(FIXTURE)[1]["encoder"]["layers"]
  for copy, (group, block) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
    name = BLOCK.format(group, block)
    np.testing.assert_array_equal(layers["ffn"]["intermediate"]["kernel"][copy], tensors[f"{name}.ffn.weight"].T)
    np.testing.assert_array_equal(layers["ffn_norm"]["scale"][copy], tensors[f"{name}.full_layer_layer_norm.weight"])
  assert layers["attention"]["query"]["kernel"].shape == (4, 24, 24)


def test_fields_of_the_releases_that_no_code_reads(folder):
  releases = {"net_structure_type": 0, "gap_size": 0, "num_memory_blocks": 0, "down_scale_factor": 1}
  edit_config(folder, **releases, layers_to_keep=[], classifier_dropout_prob=0.5)
  assert hf.read_folder(folder)[0] == hf.read_folder(FIXTURE)[0]


def test_fields_that_are_left_out(folder):
  """The original's defaults: no dropout, one block a layer; and a file without model_type is told by its groups."""
  edit_config(folder, remove=("model_type", "hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob"))
  config = hf.read_folder(folder)[0]
  assert (config.activation, config.hidden_dropout, config.attention_dropout) == ("gelu_new", 0, 0)
  edit_config(folder, remove=("inner_group_num",))
  with pytest.raises(ValueError, match=r"unknown tensors: albert\.encoder\.albert_layer_groups\.0\.albert_layers\.1\."):
    hf.read_folder(folder)


def test_a_bare_encoder(folder):
  tensors = load_file(folder / "model.safetensors")
  bare = {n.removeprefix("albert."): x for n, x in tensors.items() if n.startswith("albert.")}
  save_file(bare, folder / "model.safetensors")
  _, params, missing = hf.read_folder(folder)
  assert missing == ("mlm_head", "pair_head")
  np.testing.assert_array_equal(params["pooler"]["bias"], tensors["albert.pooler.bias"])


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"num_hidden_groups": 3}, r"config\.json: model\.num_groups=3 does not divide model\.num_layers=4"),
    ({"num_hidden_groups": 4}, r"missing tensors: albert\.encoder\.albert_layer_groups\.2\.albert_layers\.0\.att"),
    ({"num_hidden_groups": 1}, r"unknown tensors: albert\.encoder\.albert_layer_groups\.1\.albert_layers\.0\.att"),
    ({"inner_group_num": 3}, r"missing tensors: albert\.encoder\.albert_layer_groups\.0\.albert_layers\.2\.att"),
    ({"embedding_size": 32}, r"model\.embedding_size=32 is larger than model\.hidden_size=24"),
    ({"embedding_size": 24}, r"an ALBERT whose embeddings are as wide as its layers \(embedding_size=24\) is not supp"),
    ({"embedding_size": 8}, r"albert\.embeddings\.word_embeddings\.weight has shape \(96, 16\); .* says \(96, 8\)"),
    ({"embedding_size": None}, r"config\.json: embedding_size=None is no number"),
    ({"tie_word_embeddings": False}, "tie_word_embeddings=False is not supported"),
  ],
)
def test_settings_that_do_not_fit_are_named(folder, fields, message):
  edit_config(folder, **fields)
  with pytest.raises(ValueError, match=message):
    hf.read_folder(folder)


def test_a_missing_size_is_named(folder):
  edit_config(folder, remove=("embedding_size",))
  with pytest.raises(ValueError, match=r"config\.json: missing embedding_size"):
    hf.read_folder(folder)


def test_an_encoder_of_another_kind_is_not_written():
  config = hf.read_folder(FIXTURE)[0]
  apart = dataclasses.replace(config, sharing="none", num_groups=1)
  assert albert.write_config(apart)["num_hidden_groups"] == 4
  for one, message in [
    (dataclasses.replace(config, sharing="ffn"), "shares whole layers, not model.sharing='ffn'"),
    (dataclasses.replace(config, embedding_size=0), "as wide as its layers"),
  ]:
    with pytest.raises(ValueError, match=message):
      albert.write_config(one)
  with pytest.raises(ValueError, match="a BERT shares no layers"):
    bert.write_config(config)


def test_a_chinese_folder_holds_a_wordpiece_vocabulary():
  loaded = load(FIXTURE)
  assert (loaded.tokenizer.name, loaded.missing) == ("wordpiece", ())


def test_a_folder_holds_a_sentencepiece_model(folder):
  model = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(["a cat sat", "paris is the capital of france", "the city is a capital"] * 9),
    model_writer=model, vocab_size=40, pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, normalization_rule_name="identity",
    control_symbols=["[CLS]", "[SEP]", "[MASK]"], hard_vocab_limit=False,
    minloglevel=2,
  )  # fmt: skip
  (folder / "vocab.txt").unlink()
  (folder / "spiece.model").write_bytes(model.getvalue())
  loaded = load(folder)
  assert (loaded.tokenizer.name, loaded.tokenizer.mask_id) == ("sentencepiece", 4)
  assert loaded.tokenizer.decode(loaded.tokenizer.encode("Paris is a  city")) == "paris is a city"
