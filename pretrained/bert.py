"""BERT as Hugging Face and the original code store it: the tensors' names and the fields of config.json."""

from models.config import EncoderConfig
from pretrained.fields import COMMON, Fields
from pretrained.names import Entry, Head, dense, norm, output, table

PREFIX = "bert"  # of the encoder's tensors and the pooler's; files of a bare encoder lack it
_LAYER = "bert.encoder.layer.{copy}"
_TF1_LAYER = "bert/encoder/layer_{copy}"

ENTRIES: tuple[Entry, ...] = (
  *table("encoder/embeddings/word", "bert.embeddings.word_embeddings", "bert/embeddings/word_embeddings"),
  *table("encoder/embeddings/position", "bert.embeddings.position_embeddings", "bert/embeddings/position_embeddings"),
  *table(
    "encoder/embeddings/segment", "bert.embeddings.token_type_embeddings", "bert/embeddings/token_type_embeddings"
  ),
  *norm("encoder/embeddings/norm", "bert.embeddings.LayerNorm", "bert/embeddings/LayerNorm"),
  *dense("encoder/layers/attention/query", f"{_LAYER}.attention.self.query", f"{_TF1_LAYER}/attention/self/query"),
  *dense("encoder/layers/attention/key", f"{_LAYER}.attention.self.key", f"{_TF1_LAYER}/attention/self/key"),
  *dense("encoder/layers/attention/value", f"{_LAYER}.attention.self.value", f"{_TF1_LAYER}/attention/self/value"),
  *dense("encoder/layers/attention/output", f"{_LAYER}.attention.output.dense", f"{_TF1_LAYER}/attention/output/dense"),
  *norm(
    "encoder/layers/attention_norm", f"{_LAYER}.attention.output.LayerNorm", f"{_TF1_LAYER}/attention/output/LayerNorm"
  ),
  *dense("encoder/layers/ffn/intermediate", f"{_LAYER}.intermediate.dense", f"{_TF1_LAYER}/intermediate/dense"),
  *dense("encoder/layers/ffn/output", f"{_LAYER}.output.dense", f"{_TF1_LAYER}/output/dense"),
  *norm("encoder/layers/ffn_norm", f"{_LAYER}.output.LayerNorm", f"{_TF1_LAYER}/output/LayerNorm"),
  *dense("pooler", "bert.pooler.dense", "bert/pooler/dense"),
  *dense("mlm_head/dense", "cls.predictions.transform.dense", "cls/predictions/transform/dense"),
  *norm("mlm_head/norm", "cls.predictions.transform.LayerNorm", "cls/predictions/transform/LayerNorm"),
  Entry("mlm_head/bias", "cls.predictions.bias", tf1="cls/predictions/output_bias"),
  *output("pair_head", "cls.seq_relationship", "cls/seq_relationship/"),
)

# The original's classifiers lie outside every scope; it has no tagger, and an option's score is a class.
_CLASSIFIER = tuple(output("classifier", "classifier", ""))
HEADS = {
  "classification": Head("BertForSequenceClassification", _CLASSIFIER),
  "regression": Head("BertForSequenceClassification", _CLASSIFIER),
  "choice": Head("BertForMultipleChoice", _CLASSIFIER),
  "tagging": Head("BertForTokenClassification", tuple(output("tagger", "classifier", ""))),
  "span": Head("BertForQuestionAnswering", tuple(output("span_head", "qa_outputs", "cls/squad/"))),
}
# Their class for what is left of a model for pretraining.
PRETRAINING = {
  ("pooler", "mlm_head", "pair_head"): "BertForPreTraining",
  ("mlm_head",): "BertForMaskedLM",
  ("pooler", "pair_head"): "BertForNextSentencePrediction",
  ("pooler", "mlm_head"): "BertForMaskedLM",
}
BODY = "BertModel"
DROPOUT = "classifier_dropout"  # of a head, in config.json; null is hidden_dropout_prob

# Copies of other tensors: the output matrix is the word table, its bias is cls.predictions.bias.
TIED = {
  "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
  "cls.predictions.decoder.bias": "cls.predictions.bias",
}

_FIELDS = Fields(
  COMMON,
  {
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "layer_norm_eps": 1e-12,
  },
)

read_config = read_original = _FIELDS.read


def write_config(config: EncoderConfig) -> dict:
  """Returns the config.json of an encoder, without what the heads need.

  Raises:
    ValueError: the encoder is no BERT.
  """
  if config.sharing != "none" or config.inner_groups > 1 or config.embedding_width != config.hidden_size:
    raise ValueError(
      "a BERT shares no layers, has one block a layer, and embeddings as wide as its layers; this is "
      f"model.sharing={config.sharing!r}, model.inner_groups={config.inner_groups}, "
      f"model.embedding_size={config.embedding_size}"
    )
  return {"model_type": "bert"} | _FIELDS.write(config)
