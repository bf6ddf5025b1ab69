"""XLNet as Hugging Face and the original code store it: the tensors' names and the fields of config.json."""

import dataclasses
from collections.abc import Mapping

from models.xlnet_config import XLNetConfig
from pretrained.fields import ACTIVATIONS, number
from pretrained.names import Entry, Head, conditional_span, dense, norm, table

PREFIX = "transformer"  # of all tensors but the head's; files of a bare model lack it
_LAYER = "transformer.layer.{copy}"
_ATTENTION = "xlnet/layers/attention"
_TF1 = "model/transformer"
_TF1_LAYER = "model/transformer/layer_{copy}"

ENTRIES: tuple[Entry, ...] = (
  *table("xlnet/embeddings/word", "transformer.word_embedding", f"{_TF1}/word_embedding/lookup_table"),
  Entry("xlnet/mask_embedding", "transformer.mask_emb", leading=2, tf1=f"{_TF1}/mask_emb/mask_emb"),
  Entry(f"{_ATTENTION}/query/kernel", f"{_LAYER}.rel_attn.q", heads=True, tf1=f"{_TF1_LAYER}/rel_attn/q/kernel"),
  Entry(f"{_ATTENTION}/key/kernel", f"{_LAYER}.rel_attn.k", heads=True, tf1=f"{_TF1_LAYER}/rel_attn/k/kernel"),
  Entry(f"{_ATTENTION}/value/kernel", f"{_LAYER}.rel_attn.v", heads=True, tf1=f"{_TF1_LAYER}/rel_attn/v/kernel"),
  Entry(f"{_ATTENTION}/position/kernel", f"{_LAYER}.rel_attn.r", heads=True, tf1=f"{_TF1_LAYER}/rel_attn/r/kernel"),
  Entry(
    f"{_ATTENTION}/output/kernel",
    f"{_LAYER}.rel_attn.o",
    transpose=True,
    heads=True,
    tf1=f"{_TF1_LAYER}/rel_attn/o/kernel",
    tf1_transpose=True,
  ),
  Entry(f"{_ATTENTION}/content_bias", f"{_LAYER}.rel_attn.r_w_bias", tf1=f"{_TF1}/r_w_bias"),
  Entry(f"{_ATTENTION}/position_bias", f"{_LAYER}.rel_attn.r_r_bias", tf1=f"{_TF1}/r_r_bias"),
  Entry(f"{_ATTENTION}/segment_bias", f"{_LAYER}.rel_attn.r_s_bias", tf1=f"{_TF1}/r_s_bias"),
  Entry(f"{_ATTENTION}/segment_embedding", f"{_LAYER}.rel_attn.seg_embed", tf1=f"{_TF1}/seg_embed"),
  *norm("xlnet/layers/attention_norm", f"{_LAYER}.rel_attn.layer_norm", f"{_TF1_LAYER}/rel_attn/LayerNorm"),
  *dense("xlnet/layers/ffn/intermediate", f"{_LAYER}.ff.layer_1", f"{_TF1_LAYER}/ff/layer_1"),
  *dense("xlnet/layers/ffn/output", f"{_LAYER}.ff.layer_2", f"{_TF1_LAYER}/ff/layer_2"),
  *norm("xlnet/layers/ffn_norm", f"{_LAYER}.ff.layer_norm", f"{_TF1_LAYER}/ff/LayerNorm"),
  Entry("lm_head/bias", "lm_loss.bias", tf1="model/lm_loss/bias"),
)

# The original's scope has that spelling. A task's name follows "classification_" and "regression_" there: whoever reads
# its checkpoints takes it away first.
_SUMMARY = dense("summary/projection", "sequence_summary.summary", "model/sequnece_summary/summary")
HEADS = {
  "classification": Head(
    "XLNetForSequenceClassification", (*_SUMMARY, *dense("classifier", "logits_proj", "model/classification/logit"))
  ),
  "regression": Head(
    "XLNetForSequenceClassification", (*_SUMMARY, *dense("classifier", "logits_proj", "model/regression/logit"))
  ),
  "choice": Head("XLNetForMultipleChoice", (*_SUMMARY, *dense("classifier", "logits_proj", "logits/dense"))),
  "tagging": Head("XLNetForTokenClassification", tuple(dense("tagger", "classifier"))),
  "span": Head("XLNetForQuestionAnsweringSimple", tuple(dense("span_head", "qa_outputs"))),
  "conditional_span": Head("XLNetForQuestionAnswering", conditional_span(in_hf=True)),
}
PRETRAINING = {("lm_head",): "XLNetLMHeadModel"}
BODY = "XLNetModel"
DROPOUT = "summary_last_dropout"

# A copy of another tensor: the output matrix is the word table.
TIED = {"lm_loss.weight": "transformer.word_embedding.weight"}

# Ours: theirs.
_NAMES = {
  "vocab_size": "vocab_size",
  "hidden_size": "d_model",
  "num_layers": "n_layer",
  "num_heads": "n_head",
  "intermediate_size": "d_inner",
  "initializer_range": "initializer_range",
  "layer_norm_eps": "layer_norm_eps",
  "mem_len": "mem_len",
}
_DEFAULTS = {
  "initializer_range": 0.02,
  "layer_norm_eps": 1e-12,
  "dropout": 0.1,
  "clamp_len": -1,
  "ff_activation": "gelu",
  "untie_r": True,
}
# Settings under which the same tensors mean another model.
_REQUIRED = {"attn_type": "bi", "same_length": False, "tie_word_embeddings": True}


def read_config(fields: Mapping) -> XLNetConfig:
  """Returns the model that a config.json describes; what only its heads or other programs use is ignored.

  Raises:
    ValueError: a size is missing or no number, or a setting is not supported.
  """
  for name, value in _REQUIRED.items():
    if fields.get(name, value) != value:
      raise ValueError(f"{name}={fields[name]!r} is not supported, only {value!r}")
  # There mem_len may be null, and the vocabulary's size goes by its older name in the original's files.
  fields = {**_DEFAULTS, **fields, "mem_len": fields.get("mem_len") or 0}
  fields.setdefault("vocab_size", fields.get("n_token"))
  if (activation := fields["ff_activation"]) not in ACTIVATIONS:
    raise ValueError(f"ff_activation={activation!r} is not supported, only {', '.join(ACTIVATIONS)}")
  if lost := [theirs for theirs in _NAMES.values() if fields.get(theirs) is None]:
    raise ValueError(f"missing {', '.join(lost)}")
  kinds = {field.name: field.type for field in dataclasses.fields(XLNetConfig)}
  known = {ours: number(theirs, fields[theirs], kinds[ours]) for ours, theirs in _NAMES.items()}
  head_size = number("d_head", fields.get("d_head") or 0, int)
  dropout = number("dropout", fields["dropout"], float)
  return XLNetConfig(
    **known,
    head_size=0 if head_size * known["num_heads"] == known["hidden_size"] else head_size,
    clamp_length=max(number("clamp_len", fields["clamp_len"], int), 0),
    untie_biases=bool(fields["untie_r"]),
    activation=ACTIVATIONS[activation],
    hidden_dropout=dropout,
    attention_dropout=dropout,
    ffn_dropout=dropout,
  )


read_original = read_config


def write_config(config: XLNetConfig) -> dict:
  """Returns the config.json of a model, without what the heads need.

  Raises:
    ValueError: the model's dropout rates differ: in this layout they are one field.
  """
  if len(rates := {config.hidden_dropout, config.attention_dropout, config.ffn_dropout}) > 1:
    raise ValueError(
      "an XLNet in this layout has one dropout rate; this is "
      f"model.hidden_dropout={config.hidden_dropout}, model.attention_dropout={config.attention_dropout}, "
      f"model.ffn_dropout={config.ffn_dropout}"
    )
  return {
    "model_type": "xlnet",
    **{theirs: getattr(config, ours) for ours, theirs in _NAMES.items()},
    "d_head": config.head_width,
    "clamp_len": config.clamp_length or -1,
    "ff_activation": config.activation,
    "dropout": rates.pop(),
    **_REQUIRED,
    **({} if config.untie_biases else {"untie_r": False}),
  }
