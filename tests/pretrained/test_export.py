"""What is written is read again bit by bit: every family, every head, both layouts; and what has no place is said."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from models.head_config import HEAD_KINDS
from pretrained import export, hf, names
from pretrained.load import load
from pretrained.shapes import parameter_shapes
from tests.pretrained.heads import EXPORTED, FIXTURES, model

FAMILIES = ("bert", "albert", "xlnet")


def assert_same(found, expected):
  assert found.config == expected.config
  assert found.head == expected.head
  assert found.missing == expected.missing
  assert found.tokenizer.fingerprint == expected.tokenizer.fingerprint
  assert jax.tree.structure(found.params) == jax.tree.structure(expected.params)
  jax.tree.map(np.testing.assert_array_equal, found.params, expected.params)


@pytest.mark.parametrize(("family", "kind"), [*((f, None) for f in FAMILIES), *EXPORTED])
def test_out_and_in_again(family, kind, tmp_path):
  """Ours → Hugging Face → ours → Hugging Face: the files are equal, byte by byte."""
  one = model(family, kind) if kind else load(FIXTURES / family)
  export.write(one, tmp_path / "a", "hf")
  read = load(tmp_path / "a")
  assert_same(read, one)
  export.write(read, tmp_path / "b", "hf")
  for file in (tmp_path / "a").iterdir():
    assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes(), file.name


@pytest.mark.parametrize("family", FAMILIES)
def test_their_files_come_back(family, tmp_path):
  """Hugging Face → ours → Hugging Face: the tensors are those of the first file, and so is what their config says."""
  export.write(load(FIXTURES / family), tmp_path / "ours", "bidir")
  export.write(load(tmp_path / "ours"), tmp_path / "theirs", "hf")
  before, after = (load_file(folder / "model.safetensors") for folder in (FIXTURES / family, tmp_path / "theirs"))
  assert before.keys() == after.keys()
  for name, x in before.items():
    np.testing.assert_array_equal(after[name], x, err_msg=name)
  before, after = (json.loads((f / "config.json").read_text()) for f in (FIXTURES / family, tmp_path / "theirs"))
  differing = {name for name in after if name in before and after[name] != before[name]}
  # The fixtures' models were made before their vocabularies.
  assert differing <= {"bos_token_id", "eos_token_id", "pad_token_id"}
  assert before["architectures"] == after["architectures"]


@pytest.mark.parametrize(
  ("family", "kind"),
  [("bert", None), ("xlnet", None), ("bert", "tagging"), ("albert", "conditional_span"), ("xlnet", "choice")],
)
def test_our_own_layout(family, kind, tmp_path):
  one = model(family, kind) if kind else load(FIXTURES / family)
  export.write(one, tmp_path / "a", "bidir")
  assert_same(load(tmp_path / "a"), one)
  body = load(tmp_path / "a", heads=False)
  assert body.head is None
  assert body.params.keys() <= {"encoder", "xlnet", "pooler"}


def test_a_bare_encoder_in_our_layout(tmp_path):
  one = load(FIXTURES / "bert", heads=False)
  assert one.missing == ("mlm_head", "pair_head")
  export.write(one, tmp_path / "a", "bidir")
  assert_same(load(tmp_path / "a"), one)


@pytest.mark.parametrize(("family", "kind"), [(f, kind) for f in FAMILIES for kind in HEAD_KINDS])
def test_every_parameter_of_a_head_is_in_the_table_once(family, kind):
  if (family, kind) == ("bert", "conditional_span"):
    assert kind not in hf.FAMILIES[family].HEADS
    return
  one = model(family, kind)
  added = parameter_shapes(one.config, one.head).keys() - parameter_shapes(one.config).keys()
  assert sorted(entry.ours for entry in hf.FAMILIES[family].HEADS[kind].entries) == sorted(added)


@pytest.mark.parametrize(("family", "kind"), [("bert", "classification"), ("albert", "span"), ("xlnet", "choice")])
def test_the_originals_names_of_heads(family, kind):
  """Ours → TF1's names and shapes → ours."""
  one = model(family, kind)
  head = hf.FAMILIES[family].HEADS[kind]
  entries = names.of_tf1(hf.FAMILIES[family].ENTRIES + head.entries)
  tensors = names.to_theirs(entries, one.params, one.config)
  expected = {
    "bert": {"output_weights": (3, 32), "output_bias": (3,)},
    "albert": {"cls/squad/output_weights": (2, 24), "cls/squad/output_bias": (2,)},
    "xlnet": {"model/sequnece_summary/summary/kernel": (24, 24), "logits/dense/kernel": (24, 1)},
  }[family]
  assert {name: tensors[name].shape for name in expected} == expected
  shapes = parameter_shapes(one.config, one.head)
  params, absent = names.from_theirs(entries, tensors, shapes, one.config)
  assert absent == one.missing
  jax.tree.map(np.testing.assert_array_equal, params, one.params)


@pytest.mark.parametrize(
  ("held", "expected"),
  [
    (("pooler", "mlm_head", "pair_head"), "BertForPreTraining"),
    (("mlm_head",), "BertForMaskedLM"),
    (("pooler", "pair_head"), "BertForNextSentencePrediction"),
    (("pooler",), "BertModel"),
    ((), "BertModel"),
  ],
)
def test_the_class_that_reads_it_whole(held, expected, tmp_path):
  one = load(FIXTURES / "bert")
  params = {name: tree for name, tree in one.params.items() if name in ("encoder", *held)}
  export.write(dataclasses.replace(one, params=params), tmp_path / "a", "hf")
  assert json.loads((tmp_path / "a" / "config.json").read_text())["architectures"] == [expected]
  assert load(tmp_path / "a").params.keys() == params.keys()


def test_padded_slots_are_stripped(tmp_path):
  """A run with vocab_multiple=64 on 96 pieces has 128 rows; the file has 96."""
  one = load(FIXTURES / "bert")
  config = dataclasses.replace(one.config, vocab_multiple=64)
  params = jax.tree.map(np.copy, one.params)
  words = params["encoder"]["embeddings"]["word"]
  words["embedding"] = np.pad(words["embedding"], ((0, 32), (0, 0)), constant_values=7)
  params["mlm_head"]["bias"] = np.pad(params["mlm_head"]["bias"], (0, 32), constant_values=7)
  export.write(dataclasses.replace(one, config=config, params=params), tmp_path / "a", "hf")
  assert_same(load(tmp_path / "a"), one)


def test_what_has_no_class_of_theirs_is_said(tmp_path):
  for family, kind, more, said in [
    ("albert", "conditional_span", {}, "Hugging Face has no albert with a head of kind 'conditional_span'"),
    ("xlnet", "classification", {"summary": "attention"}, "Hugging Face has no summary of kind 'attention'"),
  ]:
    with pytest.raises(ValueError, match=f"{said}; --to=bidir keeps it"):
      export.write(model(family, kind, **more), tmp_path / kind, "hf")
    assert not (tmp_path / kind).exists()


def test_a_folder_that_is_in_use_is_not_written_to(tmp_path):
  (tmp_path / "notes.txt").write_text("mine")
  for layout in ("hf", "bidir"):
    with pytest.raises(ValueError, match="not an empty folder; choose another"):
      export.write(load(FIXTURES / "bert"), tmp_path, layout)


def edit(folder, **fields):
  path = folder / "config.json"
  path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
  ("family", "kind", "fields", "said"),
  [
    ("bert", "classification", {"problem_type": "multi_label_classification"}, "problem_type='multi_label"),
    ("bert", "classification", {"id2label": {"0": "a", "2": "b"}}, "id2label must number its 2 labels from 0 on"),
    ("bert", "classification", {"id2label": {"0": "a", "1": "b"}}, r"classifier\.weight has shape \(3, 32\)"),
    ("bert", "tagging", {"architectures": ["BertModel"]}, r"unknown tensors: classifier\.bias, classifier\.weight"),
    ("bert", "span", {"architectures": ["BertForTokenClassification"]}, r"unknown tensors: qa_outputs\.bias"),
    ("bert", "tagging", {"architectures": ["BertForSequenceClassification"]}, "missing tensors: bert.pooler.dense.w"),
    ("xlnet", "classification", {"summary_type": "attn"}, "summary_type='attn' is not supported"),
    ("xlnet", "classification", {"summary_activation": "relu"}, "summary_activation='relu' with summary_use_proj=True"),
  ],
)  # fmt: skip
def test_heads_that_do_not_fit_are_named(family, kind, fields, said, tmp_path):
  export.write(model(family, kind), tmp_path / "a", "hf")
  edit(tmp_path / "a", **fields)
  with pytest.raises(ValueError, match=said):
    load(tmp_path / "a")
  assert load(tmp_path / "a", heads=False).head is None


def test_fields_that_a_head_leaves_out(tmp_path):
  export.write(model("bert", "classification"), tmp_path / "a", "hf")
  path = tmp_path / "a" / "config.json"
  fields = json.loads(path.read_text())
  for name in ("classifier_dropout", "problem_type", "label2id", "id2label"):
    fields.pop(name)
  path.write_text(json.dumps(fields | {"num_labels": 3}))
  head = load(tmp_path / "a").head
  assert (head.kind, head.labels, head.dropout) == ("classification", ("LABEL_0", "LABEL_1", "LABEL_2"), 0.0)
  shutil.rmtree(tmp_path / "a")
  export.write(model("bert", "regression"), tmp_path / "a", "hf")
  fields = json.loads(path.read_text())
  assert fields.pop("problem_type") == "regression"
  path.write_text(json.dumps(fields))
  assert load(tmp_path / "a").head.kind == "regression"
