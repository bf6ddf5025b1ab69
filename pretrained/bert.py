"""BERT as Hugging Face stores it: the tensors' names and the fields of config.json."""

import re
from collections.abc import Mapping

from models.config import EncoderConfig
from pretrained.names import Entry, dense, norm, table

_LAYER = "bert.encoder.layer.{layer}"

ENTRIES: tuple[Entry, ...] = (
  *table("encoder/embeddings/word", "bert.embeddings.word_embeddings"),
  *table("encoder/embeddings/position", "bert.embeddings.position_embeddings"),
  *table("encoder/embeddings/segment", "bert.embeddings.token_type_embeddings"),
  *norm("encoder/embeddings/norm", "bert.embeddings.LayerNorm"),
  *dense("encoder/layers/attention/query", f"{_LAYER}.attention.self.query"),
  *dense("encoder/layers/attention/key", f"{_LAYER}.attention.self.key"),
  *dense("encoder/layers/attention/value", f"{_LAYER}.attention.self.value"),
  *dense("encoder/layers/attention/output", f"{_LAYER}.attention.output.dense"),
  *norm("encoder/layers/attention_norm", f"{_LAYER}.attention.output.LayerNorm"),
  *dense("encoder/layers/ffn/intermediate", f"{_LAYER}.intermediate.dense"),
  *dense("encoder/layers/ffn/output", f"{_LAYER}.output.dense"),
  *norm("encoder/layers/ffn_norm", f"{_LAYER}.output.LayerNorm"),
  *dense("pooler", "bert.pooler.dense"),
  *dense("mlm_head/dense", "cls.predictions.transform.dense"),
  *norm("mlm_head/norm", "cls.predictions.transform.LayerNorm"),
  Entry("mlm_head/bias", "cls.predictions.bias"),
  *dense("pair_head", "cls.seq_relationship"),
)

# Copies of other tensors: the output matrix is the word table, its bias is cls.predictions.bias.
TIED = {
  "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
  "cls.predictions.decoder.bias": "cls.predictions.bias",
}

_FIELDS = {
  "vocab_size": "vocab_size",
  "hidden_size": "hidden_size",
  "num_layers": "num_hidden_layers",
  "num_heads": "num_attention_heads",
  "intermediate_size": "intermediate_size",
  "max_length": "max_position_embeddings",
  "type_vocab_size": "type_vocab_size",
  "initializer_range": "initializer_range",
  "hidden_dropout": "hidden_dropout_prob",
  "attention_dropout": "attention_probs_dropout_prob",
  "layer_norm_eps": "layer_norm_eps",
}
_ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_new", "gelu_pytorch_tanh": "gelu_new", "relu": "relu"}
# Settings under which the same tensors mean another model.
_REQUIRED = {
  "position_embedding_type": "absolute",
  "is_decoder": False,
  "add_cross_attention": False,
  "tie_word_embeddings": True,
}


def read_config(fields: Mapping) -> EncoderConfig:
  """Returns the encoder that a config.json describes.

  Raises:
    ValueError: not a BERT, a size is missing, or a setting is not supported.
  """
  if (family := fields.get("model_type", "bert")) != "bert":
    raise ValueError(f"model_type={family!r} is not supported, only 'bert'")
  for name, value in _REQUIRED.items():
    if fields.get(name, value) != value:
      raise ValueError(f"{name}={fields[name]!r} is not supported, only {value!r}")
  if (activation := fields.get("hidden_act", "gelu")) not in _ACTIVATIONS:
    raise ValueError(f"hidden_act={activation!r} is not supported, only {', '.join(_ACTIVATIONS)}")
  if lost := [theirs for theirs in list(_FIELDS.values())[:5] if theirs not in fields]:
    raise ValueError(f"missing {', '.join(lost)}")
  known = {ours: fields[theirs] for ours, theirs in _FIELDS.items() if theirs in fields}
  return EncoderConfig(activation=_ACTIVATIONS[activation], **known)


def canonical_name(name: str) -> str | None:
  """Returns a tensor's name in ENTRIES' spelling, or None for a buffer that is no parameter.

  Files of a bare encoder lack the `bert.` prefix, and old files call a norm's parameters gamma and beta.
  """
  if name.endswith("position_ids"):
    return None
  name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
  name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
  return re.sub(r"^(embeddings|encoder|pooler)\.", r"bert.\1.", name)
