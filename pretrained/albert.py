"""ALBERT as Hugging Face and the original code store it: the tensors' names and the fields of config.json."""

import dataclasses
from collections.abc import Mapping

from models.config import EncoderConfig
from pretrained.fields import COMMON, Fields
from pretrained.names import Entry, Head, conditional_span, dense, norm, output, table

PREFIX = "albert"  # of the encoder's tensors and the pooler's; files of a bare encoder lack it
_BLOCK = "albert.encoder.albert_layer_groups.{group}.albert_layers.{block}"
_TF1_BLOCK = "bert/encoder/transformer/group_{group}/inner_group_{block}"

ENTRIES: tuple[Entry, ...] = (
  *table("encoder/embeddings/word", "albert.embeddings.word_embeddings", "bert/embeddings/word_embeddings"),
  *table("encoder/embeddings/position", "albert.embeddings.position_embeddings", "bert/embeddings/position_embeddings"),
  *table(
    "encoder/embeddings/segment", "albert.embeddings.token_type_embeddings", "bert/embeddings/token_type_embeddings"
  ),
  *norm("encoder/embeddings/norm", "albert.embeddings.LayerNorm", "bert/embeddings/LayerNorm"),
  *dense(
    "encoder/embedding_projection",
    "albert.encoder.embedding_hidden_mapping_in",
    "bert/encoder/embedding_hidden_mapping_in",
  ),
  *dense("encoder/layers/attention/query", f"{_BLOCK}.attention.query", f"{_TF1_BLOCK}/attention_1/self/query"),
  *dense("encoder/layers/attention/key", f"{_BLOCK}.attention.key", f"{_TF1_BLOCK}/attention_1/self/key"),
  *dense("encoder/layers/attention/value", f"{_BLOCK}.attention.value", f"{_TF1_BLOCK}/attention_1/self/value"),
  *dense("encoder/layers/attention/output", f"{_BLOCK}.attention.dense", f"{_TF1_BLOCK}/attention_1/output/dense"),
  *norm("encoder/layers/attention_norm", f"{_BLOCK}.attention.LayerNorm", f"{_TF1_BLOCK}/LayerNorm"),
  *dense("encoder/layers/ffn/intermediate", f"{_BLOCK}.ffn", f"{_TF1_BLOCK}/ffn_1/intermediate/dense"),
  *dense("encoder/layers/ffn/output", f"{_BLOCK}.ffn_output", f"{_TF1_BLOCK}/ffn_1/intermediate/output/dense"),
  *norm("encoder/layers/ffn_norm", f"{_BLOCK}.full_layer_layer_norm", f"{_TF1_BLOCK}/LayerNorm_1"),
  *dense("pooler", "albert.pooler", "bert/pooler/dense"),
  *dense("mlm_head/dense", "predictions.dense", "cls/predictions/transform/dense"),
  *norm("mlm_head/norm", "predictions.LayerNorm", "cls/predictions/transform/LayerNorm"),
  Entry("mlm_head/bias", "predictions.bias", tf1="cls/predictions/output_bias"),
  *output("pair_head", "sop_classifier.classifier", "cls/seq_relationship/"),
)

_CLASSIFIER = tuple(output("classifier", "classifier", ""))
HEADS = {
  "classification": Head("AlbertForSequenceClassification", _CLASSIFIER),
  "regression": Head("AlbertForSequenceClassification", _CLASSIFIER),
  "choice": Head("AlbertForMultipleChoice", _CLASSIFIER),
  "tagging": Head("AlbertForTokenClassification", tuple(output("tagger", "classifier", ""))),
  "span": Head("AlbertForQuestionAnswering", tuple(output("span_head", "qa_outputs", "cls/squad/"))),
  "conditional_span": Head("", conditional_span(in_hf=False)),  # run_squad_v2.py; nothing of theirs reads it
}
PRETRAINING = {
  ("pooler", "mlm_head", "pair_head"): "AlbertForPreTraining",
  ("mlm_head",): "AlbertForMaskedLM",
  ("pooler", "mlm_head"): "AlbertForMaskedLM",
}
BODY = "AlbertModel"
DROPOUT = "classifier_dropout_prob"

# Copies of other tensors: the output matrix is the word table, its bias is predictions.bias.
TIED = {
  "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
  "predictions.decoder.bias": "predictions.bias",
}

# Of the releases' other fields, net_structure_type, gap_size, num_memory_blocks, down_scale_factor and layers_to_keep
# are read by no published code, and classifier_dropout_prob is a classifier's.
_FIELDS = Fields(
  COMMON | {"embedding_size": "embedding_size", "num_groups": "num_hidden_groups", "inner_groups": "inner_group_num"},
  {
    "hidden_act": "gelu_new",
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "layer_norm_eps": 1e-12,
    "num_hidden_groups": 1,
    "inner_group_num": 1,
  },
  constant={"sharing": "all"},
)
_PROJECTION = (
  "an ALBERT whose embeddings are as wide as its layers (embedding_size={0}) is not supported in this layout: "
  "there it projects them all the same"
)
read_original = _FIELDS.read  # there, embeddings as wide as the layers are not projected


def read_config(fields: Mapping) -> EncoderConfig:
  """Returns the encoder that a config.json describes.

  Raises:
    ValueError: a size is missing, or a setting is not supported.
  """
  config = _FIELDS.read(fields)
  if config.embedding_width == config.hidden_size:
    raise ValueError(_PROJECTION.format(config.embedding_width))
  return config


def write_config(config: EncoderConfig) -> dict:
  """Returns the config.json of an encoder, without what the heads need; layers that share nothing are a group each.

  Raises:
    ValueError: the encoder shares parts of its layers, or its embeddings are as wide as its layers.
  """
  if config.sharing == "none":
    config = dataclasses.replace(config, sharing="all", num_groups=config.num_layers)
  if config.sharing != "all":
    raise ValueError(f"an ALBERT in this layout shares whole layers, not model.sharing={config.sharing!r}")
  if config.embedding_width == config.hidden_size:
    raise ValueError(_PROJECTION.format(config.embedding_width))
  return {"model_type": "albert"} | _FIELDS.write(config)
