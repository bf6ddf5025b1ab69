"""The encoder's fields in a config.json: one table a family, read in both directions."""

import dataclasses
from collections.abc import Mapping

from models.config import EncoderConfig

# Ours: theirs.
COMMON = {
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
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_new", "gelu_pytorch_tanh": "gelu_new", "relu": "relu"}
# Settings under which the same tensors mean another model.
_REQUIRED = {
  "position_embedding_type": "absolute",
  "is_decoder": False,
  "add_cross_attention": False,
  "tie_word_embeddings": True,
}


def number(name: str, value: object, kind: type) -> int | float:
  """Returns a field's value as `kind`, int or float: the releases write rates of 0 without a point.

  Raises:
    ValueError: it is no number, or no whole one where `kind` is int.
  """
  if isinstance(value, bool) or not isinstance(value, int | float):
    raise ValueError(f"{name}={value!r} is no number")
  if kind is int and not float(value).is_integer():
    raise ValueError(f"{name}={value!r} is no whole number")
  return kind(value)


@dataclasses.dataclass(frozen=True)
class Fields:
  """A family's config.json.

  Attributes:
    names: the field of theirs for each of ours.
    defaults: what a field of theirs means that the file leaves out; the others have no default.
    constant: fields of ours that are the same in the whole family.
  """

  names: Mapping[str, str]
  defaults: Mapping[str, object]
  constant: Mapping[str, object] = dataclasses.field(default_factory=dict)

  def read(self, fields: Mapping) -> EncoderConfig:
    """Returns the encoder that a config.json describes; what only its heads or other programs use is ignored.

    Raises:
      ValueError: a size is missing or no number, or a setting is not supported.
    """
    for name, value in _REQUIRED.items():
      if fields.get(name, value) != value:
        raise ValueError(f"{name}={fields[name]!r} is not supported, only {value!r}")
    fields = {**self.defaults, **fields}
    if (activation := fields["hidden_act"]) not in ACTIVATIONS:
      raise ValueError(f"hidden_act={activation!r} is not supported, only {', '.join(ACTIVATIONS)}")
    if lost := [theirs for theirs in self.names.values() if theirs not in fields]:
      raise ValueError(f"missing {', '.join(lost)}")
    kinds = {field.name: field.type for field in dataclasses.fields(EncoderConfig)}
    known = {ours: number(theirs, fields[theirs], kinds[ours]) for ours, theirs in self.names.items()}
    return EncoderConfig(activation=ACTIVATIONS[activation], **known, **self.constant)

  def write(self, config: EncoderConfig) -> dict:
    """Returns the fields that `read` takes, and no others.

    Raises:
      ValueError: the encoder reads from left to right.
    """
    if config.causal:
      raise ValueError("this layout's model sees both ways, not model.causal=True; --to=bidir keeps it")
    theirs = {theirs: getattr(config, ours) for ours, theirs in self.names.items()}
    return theirs | {"hidden_act": config.activation, "tie_word_embeddings": True}
