"""Checkpoints of the original code: all names, both directions, what lies around them, and what does not fit."""

import json
import pathlib
import re
import shutil

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import models.tasks
from pretrained import export, hf, names, tf1, transfer
from pretrained.load import load
from pretrained.shapes import parameter_shapes
from tests.pretrained import bundles, releases

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"
FAMILIES = tuple(releases.SHAPES)
TASKS = {"classification": "mnli", "regression": "sts-b"}  # as XLNet's scopes are named in tests.pretrained.releases


def written(family, config, params, head=None):
  """The originals' tensors, from ours."""
  table = hf.FAMILIES[family]
  return names.to_theirs(names.of_tf1(table.ENTRIES + (table.HEADS[head.kind].entries if head else ())), params, config)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_release_loads_whole_and_comes_back_bit_for_bit(family, tmp_path):
  tensors = releases.values(releases.SHAPES[family])
  loaded = load(releases.write(family, tmp_path, tensors | releases.slots(tensors)))
  assert (loaded.missing, loaded.left_over) == ((), ())
  shapes = {"/".join(k.key for k in path): x.shape for path, x in jax.tree_util.tree_leaves_with_path(loaded.params)}
  assert shapes == parameter_shapes(loaded.config)
  back = written(family, loaded.config, loaded.params)
  assert back.keys() == tensors.keys()
  for name, x in tensors.items():
    np.testing.assert_array_equal(back[name], x, strict=True)


@pytest.mark.parametrize("family", hf.FAMILIES)
def test_the_model_is_the_same_from_either_source(family, tmp_path):
  """A model of transformers, under the originals' names: layouts, not only names, are those of the same parameters."""
  config, params, _ = hf.read_folder(FIXTURES / family)
  shutil.copytree(FIXTURES / family, tmp_path / "model")
  (tmp_path / "model" / "model.safetensors").unlink()
  prefix = bundles.write(tmp_path / "model" / "model.ckpt", written(family, config, params))
  read = tf1.read(prefix)
  assert (read.config, read.head) == (config, None)  # its config.json says model_type, so that gelu is gelu
  assert (read.missing, read.left_over) == ((), ())
  jax.tree.map(np.testing.assert_array_equal, params, read.params)


def test_matrices_are_turned_as_the_originals_have_them():
  """BERT's dense layers multiply from the right here, there and not in PyTorch; XLNet's output matrix has heads."""
  theirs = load_file(FIXTURES / "bert" / "model.safetensors")
  tensors = written("bert", *hf.read_folder(FIXTURES / "bert")[:2])
  name = "bert.encoder.layer.1.intermediate.dense.weight"
  np.testing.assert_array_equal(tensors["bert/encoder/layer_1/intermediate/dense/kernel"], theirs[name].T)
  weights = tensors["cls/seq_relationship/output_weights"]
  np.testing.assert_array_equal(weights, theirs["cls.seq_relationship.weight"])
  theirs = load_file(FIXTURES / "xlnet" / "model.safetensors")
  tensors = written("xlnet", *hf.read_folder(FIXTURES / "xlnet")[:2])
  for name in "qkvro":  # [width, heads, head width] in both
    ours = tensors[f"model/transformer/layer_1/rel_attn/{name}/kernel"]
    np.testing.assert_array_equal(ours, theirs[f"transformer.layer.1.rel_attn.{name}"])
  np.testing.assert_array_equal(
    tensors["model/transformer/r_w_bias"][1], theirs["transformer.layer.1.rel_attn.r_w_bias"]
  )


@pytest.mark.parametrize("family", FAMILIES)
def test_the_originals_gelu_is_the_tanh_form(family, tmp_path):
  assert load(releases.write(family, tmp_path)).config.activation == "gelu_new"
  name = "ff_activation" if family == "xlnet" else "hidden_act"
  assert load(releases.write(family, tmp_path, **{name: "relu"})).config.activation == "relu"
  file = tmp_path / f"{family}_config.json"
  fields = json.loads(file.read_text())
  fields.pop(name)
  file.write_text(json.dumps(fields))
  assert load(tmp_path).config.activation == "gelu_new"


def test_sizes_and_rates_of_the_configs(tmp_path):
  bert, albert, xlnet = (load(releases.write(family, tmp_path / family)).config for family in FAMILIES)
  assert (bert.type_vocab_size, bert.hidden_dropout, bert.max_length, bert.layer_norm_eps) == (2, 0.1, 16, 1e-12)
  assert (albert.num_groups, albert.inner_groups, albert.embedding_size, albert.hidden_dropout) == (2, 2, 8, 0)
  assert (xlnet.vocab_size, xlnet.head_width, xlnet.mem_len, xlnet.untie_biases) == (40, 4, 0, True)


def test_a_type_vocabulary_that_is_left_out_has_16_rows(tmp_path):
  """BertConfig's default, in the original; transformers' is 2."""
  tensors = releases.values(releases.SHAPES["bert"] | {"bert/embeddings/token_type_embeddings": (16, 12)})
  prefix = releases.write("bert", tmp_path, tensors)
  fields = {name: value for name, value in releases.CONFIGS["bert"].items() if name != "type_vocab_size"}
  (tmp_path / "bert_config.json").write_text(json.dumps(fields))
  assert load(prefix).config.type_vocab_size == 16


def test_biases_that_all_layers_share(tmp_path):
  shapes = releases.SHAPES["xlnet"] | {f"model/transformer/r_{x}_bias": (3, 4) for x in "wrs"}
  tensors = releases.values(shapes)
  loaded = load(releases.write("xlnet", tmp_path, tensors, untie_r=False))
  assert loaded.params["xlnet"]["layers"]["attention"]["content_bias"].shape == (1, 3, 4)
  back = written("xlnet", loaded.config, loaded.params)
  for name, x in tensors.items():
    np.testing.assert_array_equal(back[name], x, strict=True)


def test_an_albert_whose_embeddings_are_as_wide_as_its_layers(tmp_path):
  """There is no projection then, in the original as here."""
  narrow = {"bert/embeddings/", "cls/predictions/transform/"}
  wide = lambda name, shape: tuple(12 if n == 8 else n for n in shape) if name.startswith(tuple(narrow)) else shape
  shapes = {name: wide(name, shape) for name, shape in releases.SHAPES["albert"].items() if "mapping_in" not in name}
  loaded = load(releases.write("albert", tmp_path, releases.values(shapes), embedding_size=12))
  assert loaded.missing == ()
  assert written("albert", loaded.config, loaded.params).keys() == shapes.keys()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_way_to_name_a_release(family, tmp_path):
  prefix = releases.write(family, tmp_path)
  whole = load(prefix)
  assert whole.tokenizer.decode(whole.tokenizer.encode("paris is")) == "paris is"
  for path in (tmp_path, f"{prefix}.index", f"{prefix}.data-00000-of-00001", str(prefix)):
    jax.tree.map(np.testing.assert_array_equal, whole.params, load(path).params)


def test_a_module_of_tf_hub(tmp_path):
  tensors = releases.values(releases.SHAPES["albert"])
  bundles.write(tmp_path / "variables" / "variables", {f"module/{name}": x for name, x in tensors.items()})
  releases.write_vocabulary("albert", tmp_path / "assets")
  with pytest.raises(
    FileNotFoundError, match=r"variables: no albert_config\.json beside variables; copy the release's"
  ):
    load(tmp_path)
  (tmp_path / "albert_config.json").write_text(json.dumps(releases.CONFIGS["albert"]))
  loaded = load(tmp_path)
  assert (loaded.missing, loaded.left_over, loaded.tokenizer.name) == ((), (), "sentencepiece")


def test_a_chinese_albert_has_a_wordpiece_vocabulary(tmp_path):
  prefix = releases.write("albert", tmp_path, hidden_act="relu")
  (tmp_path / "30k-clean.model").unlink()
  releases.write_vocabulary("bert", tmp_path).rename(tmp_path / "vocab_chinese.txt")
  (tmp_path / "albert_config.json").rename(tmp_path / "albert_config_base.json")
  loaded = load(prefix)
  assert (loaded.tokenizer.name, loaded.config.activation) == ("wordpiece", "relu")


def test_of_several_checkpoints_the_newest_is_taken(tmp_path):
  releases.write("bert", tmp_path)
  for step in (10, 20):
    bundles.write(tmp_path / f"model.ckpt-{step}", releases.values(releases.SHAPES["bert"], seed=step))
  with pytest.raises(ValueError, match=r"several TF1 checkpoints; name one of bert_model\.ckpt, model\.ckpt-10, model"):
    load(tmp_path)
  # As written on another machine; a folder outside is never followed.
  (tmp_path / "checkpoint").write_text(
    'model_checkpoint_path: "/elsewhere/model.ckpt-20"\nall_model_checkpoint_paths: "/elsewhere/model.ckpt-10"\n'
  )
  jax.tree.map(np.testing.assert_array_equal, load(tmp_path).params, load(tmp_path / "model.ckpt-20").params)
  assert not np.array_equal(
    load(tmp_path / "model.ckpt-10").params["pooler"]["bias"], load(tmp_path).params["pooler"]["bias"]
  )


def without(start):
  return lambda tensors: {name: x for name, x in tensors.items() if not name.startswith(start)}


def test_heads_for_pretraining_may_be_missing(tmp_path):
  bare = without("cls/")(releases.values(releases.SHAPES["bert"]))
  assert load(releases.write("bert", tmp_path / "bert", bare)).missing == ("mlm_head", "pair_head")
  bare = without(("model/lm_loss", "model/transformer/mask_emb"))(releases.values(releases.SHAPES["xlnet"]))
  loaded = load(releases.write("xlnet", tmp_path / "xlnet", bare))
  assert loaded.missing == ("lm_head", "mask_embedding")
  np.testing.assert_array_equal(loaded.params["xlnet"]["mask_embedding"], np.zeros(12))


@pytest.mark.parametrize(("family", "kind"), releases.HEADS)
def test_fine_tuned_heads_come_back_bit_for_bit(family, kind, tmp_path):
  tensors = releases.values(releases.fine_tuned(family, kind))
  read = tf1.read(releases.write(family, tmp_path, tensors | releases.slots(tensors)))
  labels = ("LABEL_0", "LABEL_1", "LABEL_2") if kind == "classification" else ()
  assert (read.head.kind, read.head.labels, read.left_over) == (kind, labels, ())
  assert read.missing == (("lm_head", "mask_embedding") if family == "xlnet" else ("mlm_head", "pair_head"))
  shapes = {"/".join(k.key for k in path): x.shape for path, x in jax.tree_util.tree_leaves_with_path(read.params)}
  assert models.tasks.parameter_shapes(read.config, read.head).items() <= shapes.items()
  back = written(family, read.config, read.params, read.head)
  back = {re.sub(r"(classification|regression)/", rf"\1_{TASKS.get(kind)}/", name): x for name, x in back.items()}
  assert back.keys() - {"model/transformer/mask_emb/mask_emb"} == tensors.keys()
  for name, x in tensors.items():
    np.testing.assert_array_equal(back[name], x, strict=True)


@pytest.mark.parametrize(("family", "kind"), [("bert", "span"), ("xlnet", "classification")])
def test_heads_may_be_left_out(family, kind, tmp_path):
  prefix = releases.write(family, tmp_path, releases.values(releases.fine_tuned(family, kind)))
  read = tf1.read(prefix, heads=False)
  assert (read.head, read.left_over) == (None, tuple(sorted(releases.HEADS[family, kind])))
  assert read.params.keys() == ({"xlnet"} if family == "xlnet" else {"encoder", "pooler"})


def test_without_heads_the_body_is_still_known_whole(tmp_path):
  prefix = releases.write("bert", tmp_path, num_hidden_layers=1)
  with pytest.raises(ValueError, match="unknown tensors: bert/encoder/layer_1/attention"):
    tf1.read(prefix, heads=False)


def test_a_head_of_another_family_is_left_over(tmp_path):
  head = releases.conditional_span()
  shapes = releases.fine_tuned("bert", "classification") | head
  read = tf1.read(releases.write("bert", tmp_path, releases.values(shapes)))
  assert (read.head.kind, read.left_over) == ("classification", tuple(sorted(head)))


def test_a_summary_without_a_projection(tmp_path):
  shapes = {n: x for n, x in releases.fine_tuned("xlnet", "classification").items() if n not in releases.SUMMARY}
  read = tf1.read(releases.write("xlnet", tmp_path, releases.values(shapes)))
  assert (read.head.projection, read.params.keys()) == (False, {"xlnet", "classifier"})


@pytest.mark.parametrize(
  ("family", "kind", "change", "message"),
  [
    ("bert", "span", lambda t: {n: x for n, x in t.items() if n != "cls/squad/output_bias"}, "missing tensors: cls/sq"),
    ("bert", "classification", lambda t: t | {"output_bias": t["output_bias"][:2]}, r"output_bias has shape \(2,\)"),
    (
      "xlnet", "classification", lambda t: t | {"model/classification_qqp/logit/kernel": np.ones((12, 2))},
      "classification_mnli/logit/kernel and model/classification_qqp/logit/kernel are both model/classification/logit",
    ),
    (
      "xlnet", "classification", lambda t: t | {"model/sequnece_summary/summary_bias": np.ones(3)},
      "unknown tensors: model/sequnece_summary/summary_bias",  # of summary_type=attn
    ),
  ],
)  # fmt: skip
def test_heads_that_do_not_fit_are_named(family, kind, change, message, tmp_path):
  tensors = change(releases.values(releases.fine_tuned(family, kind)))
  with pytest.raises(ValueError, match=message):
    tf1.read(releases.write(family, tmp_path, tensors))


def test_a_head_of_another_program_is_named(tmp_path, capsys):
  tensors = releases.values(
    releases.SHAPES["bert"] | {"crf_loss/transitions": (3, 3), "crf_loss/transitions/adam_m": (3, 3)}
  )
  loaded = load(releases.write("bert", tmp_path, tensors))
  assert loaded.left_over == ("crf_loss/transitions",)
  assert capsys.readouterr().err == f"{tmp_path}/bert_model.ckpt: heads that are not read: crf_loss/transitions\n"


@pytest.mark.parametrize(
  ("family", "change", "fields", "message"),
  [
    ("bert", without("bert/pooler/dense/bias"), {}, r"model\.ckpt\.index: missing tensors: bert/pooler/dense/bias"),
    ("bert", without("bert/encoder/layer_1/output/dense"), {}, "missing tensors: bert/encoder/layer_1/output/"),
    ("bert", lambda t: t | {"bert/encoder/layer_0/new": np.ones(1)}, {}, "unknown tensors: bert/encoder/layer_0/n"),
    ("bert", dict, {"num_hidden_layers": 1}, "unknown tensors: bert/encoder/layer_1/attention"),
    ("bert", dict, {"num_hidden_layers": 3}, "missing tensors: bert/encoder/layer_2/attention"),
    ("bert", dict, {"vocab_size": 41}, r"word_embeddings has shape \(40, 12\); bert_config\.json says \(41, 12\)"),
    ("bert", dict, {"intermediate_size": None}, r"bert_config\.json: intermediate_size=None is no number"),
    ("bert", dict, {"hidden_act": "tanh"}, r"bert_config\.json: hidden_act='tanh' is not supported"),
    ("albert", dict, {"num_hidden_groups": 1}, "unknown tensors: bert/encoder/transformer/group_1/inner_group_0/"),
    ("albert", dict, {"embedding_size": 4}, r"has shape \(40, 8\); albert_config\.json says \(40, 4\)"),
    ("xlnet", dict, {"n_head": 2, "d_head": 6}, r"has shape \(12, 3, 4\); xlnet_config\.json says \(12, 2, 6\)"),
    ("xlnet", dict, {"untie_r": False}, r"r_w_bias has shape \(2, 3, 4\); xlnet_config\.json says \(3, 4\)"),
    ("xlnet", without("model/transformer/seg_embed"), {}, "missing tensors: model/transformer/seg_embed"),
  ],
)  # fmt: skip
def test_what_does_not_fit_is_named(family, change, fields, message, tmp_path):
  prefix = releases.write(family, tmp_path, change(releases.values(releases.SHAPES[family])), **fields)
  with pytest.raises(ValueError, match=message):
    load(prefix)


def test_files_that_are_missing_or_of_another_kind(tmp_path):
  prefix = releases.write("bert", tmp_path)
  (tmp_path / "vocab.txt").unlink()
  with pytest.raises(
    FileNotFoundError, match=r"no vocabulary beside bert_model\.ckpt; vocab\.txt, spiece\.model or 30k"
  ):
    load(prefix)
  releases.write_vocabulary("bert", tmp_path)
  (tmp_path / "bert_config.json").write_text("{")
  with pytest.raises(ValueError, match=r"bert_config\.json: "):
    load(prefix)
  (tmp_path / "bert_config.json").rename(tmp_path / "albert_config.json")
  with pytest.raises(FileNotFoundError, match=r"no bert_config\.json beside bert_model\.ckpt"):
    load(prefix)
  bundles.write(prefix, {"resnet/kernel": np.ones(3, np.float32)})
  with pytest.raises(ValueError, match="no variables of the original BERT, ALBERT or XLNet"):
    load(prefix)
  bundles.write(prefix, {"layer/.ATTRIBUTES/VARIABLE_VALUE": np.ones(3, "f4")}, {tf1._OBJECTS: bundles.field(1, 7)})
  with pytest.raises(ValueError, match="a checkpoint of TensorFlow 2, by objects"):
    load(prefix)
  with pytest.raises(FileNotFoundError, match="no such checkpoint"):
    load(tmp_path / "absent.ckpt")


@pytest.mark.parametrize("to", ["bidir", "hf"])
@pytest.mark.parametrize(
  ("family", "kind"),
  [("bert", ""), ("albert", ""), ("xlnet", ""), ("bert", "classification"), ("xlnet", "conditional_span")],
)
def test_by_way_of_another_layout_and_back(family, kind, to, tmp_path):
  """TF1 → a folder of ours, or of Hugging Face's → the originals' variables, bit for bit."""
  tensors = releases.values(releases.fine_tuned(family, kind) if kind else releases.SHAPES[family])
  loaded = load(releases.write(family, tmp_path / "tf1", tensors))
  export.write(loaded, tmp_path / "converted", to)
  again = load(tmp_path / "converted")
  assert (again.config, again.head) == (loaded.config, loaded.head)
  assert again.tokenizer.fingerprint == loaded.tokenizer.fingerprint
  back = written(family, again.config, again.params, again.head)
  for name, x in tensors.items():
    np.testing.assert_array_equal(back[name], x, strict=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_begins_with_a_release(family, tmp_path):
  loaded = load(releases.write(family, tmp_path))
  other = releases.values(releases.SHAPES[family], seed=5)
  params = jax.tree.map(jax.numpy.asarray, load(releases.write(family, tmp_path / "other", other)).params)
  jax.tree.map(np.testing.assert_array_equal, transfer.fill(params, loaded), loaded.params)
