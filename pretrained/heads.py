"""The head of a fine-tuned model in a config.json of Hugging Face's."""

import types
from collections.abc import Mapping

from models.head_config import HEAD_KINDS, HeadConfig
from models.primitives import ModelConfig

# The same thing under two names: without an index, cls_index is the last position.
_SUMMARIES = {"last": "last", "cls_index": "last", "first": "first", "mean": "mean"}


def read_head(fields: Mapping, family: types.ModuleType, config: ModelConfig) -> HeadConfig | None:
  """Returns the head that a config.json describes; None where it names no class with one.

  Raises:
    ValueError: a setting that is not supported.
  """
  named = fields.get("architectures") or ()
  kinds = [kind for kind, head in family.HEADS.items() if head.architecture and head.architecture in named]
  if not kinds:
    return None
  kind, labels = kinds[0], _labels(fields)
  if kind == "classification":
    problem = fields.get("problem_type")
    if problem not in (None, "regression", "single_label_classification"):
      raise ValueError(f"problem_type={problem!r} is not supported, only one label a text, or a number")
    if problem == "regression" or (problem is None and len(labels) == 1):
      kind = "regression"
      if len(labels) != 1:
        raise ValueError(f"a regression of {len(labels)} numbers is not supported, only of one")
  dropout = fields.get(family.DROPOUT)
  more = {}
  if family.DROPOUT == "summary_last_dropout":
    more = _summary(fields)
  if dropout is None:
    dropout = config.hidden_dropout if family.DROPOUT == "classifier_dropout" else 0.1
  return HeadConfig(kind, () if HEAD_KINDS[kind].outputs else labels, dropout, **more)


def _labels(fields: Mapping) -> tuple[str, ...]:
  names = fields.get("id2label")
  if names is None:
    return tuple(f"LABEL_{i}" for i in range(fields.get("num_labels", 2)))
  try:
    names = {int(i): str(name) for i, name in names.items()}
  except (AttributeError, ValueError):
    raise ValueError(f"id2label={names!r} does not name labels by number") from None
  if sorted(names) != list(range(len(names))):
    raise ValueError(f"id2label must number its {len(names)} labels from 0 on")
  return tuple(names[i] for i in range(len(names)))


def _summary(fields: Mapping) -> dict:
  kind, projection = fields.get("summary_type", "last"), fields.get("summary_use_proj", True)
  if kind not in _SUMMARIES:
    raise ValueError(f"summary_type={kind!r} is not supported, only {', '.join(_SUMMARIES)}")
  activation = fields.get("summary_activation", "tanh") or ""  # null or "": none
  if activation != ("tanh" if projection else ""):
    raise ValueError(f"summary_activation={activation!r} with summary_use_proj={projection} is not supported")
  return {"summary": _SUMMARIES[kind], "projection": projection}


def write_head(head: HeadConfig, family: types.ModuleType) -> dict:
  """Returns the fields that `read_head` takes.

  Raises:
    ValueError: Hugging Face has no class for such a head.
  """
  if head.features:
    raise ValueError(f"Hugging Face has no {family.PREFIX} with a BiLSTM (head.features); --to=bidir keeps it")
  layout = family.HEADS.get(head.kind)
  if layout is None or not layout.architecture:
    raise ValueError(f"Hugging Face has no {family.PREFIX} with a head of kind {head.kind!r}; --to=bidir keeps it")
  fields = {"architectures": [layout.architecture], family.DROPOUT: head.dropout}
  labels = head.labels
  if head.kind == "regression":
    labels = ("LABEL_0",)
    fields["problem_type"] = "regression"
  elif head.kind == "classification":
    fields["problem_type"] = "single_label_classification"
  if labels:
    fields["id2label"] = {str(i): label for i, label in enumerate(labels)}
    fields["label2id"] = {label: i for i, label in enumerate(labels)}
  if family.DROPOUT == "summary_last_dropout":
    if head.summary not in _SUMMARIES:
      raise ValueError(f"Hugging Face has no summary of kind {head.summary!r}; --to=bidir keeps it")
    fields |= {
      "summary_type": head.summary,
      "summary_use_proj": head.projection,
      "summary_activation": "tanh" if head.projection else "",
    }
  return fields
