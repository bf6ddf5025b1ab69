"""Reads checkpoints of the original TensorFlow 1 code: BERT's, ALBERT's and XLNet's releases, and what was trained from
them with that code. TensorFlow is not needed (see tensor_bundle.py).

A release is a folder: PREFIX.index and PREFIX.data-…, the model's sizes as JSON, and a vocabulary. A module of TF-Hub
has the first two in variables/ and the others, as far as it has them, in assets/.
"""

import dataclasses
import json
import pathlib
import re
import types
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from models.head_config import HEAD_KINDS, HeadConfig
from models.primitives import ModelConfig
from pretrained import albert, bert, names, xlnet
from pretrained.heads import read_head
from pretrained.shapes import parameter_shapes
from pretrained.tensor_bundle import TensorBundle

# By family: what its tensors begin with, its module, and what its JSON means that leaves a field out.
_FAMILIES = {
  "bert": (r"bert/encoder/layer_\d", bert, {"hidden_act": "gelu", "type_vocab_size": 16}),
  "albert": (r"bert/encoder/transformer/", albert, {"hidden_act": "gelu"}),
  "xlnet": (r"model/transformer/", xlnet, {"ff_activation": "gelu"}),
}
_VOCABULARIES = ("vocab.txt", "spiece.model", "30k-clean.model", "vocab*.txt", "*.model")

# What optimizers keep beside a variable, and what counts steps.
_SLOTS = re.compile(
  r"/(adam|lamb)_[mv]$|/Adam(_1)?$|/Momentum$|AdamWeightDecayOptimizer|LAMBOptimizer"
  r"|^(global_step|beta[12]_power|loss_scale|good_steps)$"
)
_OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"  # what TensorFlow 2's own checkpoints hold
# XLNet's code makes it for the query stream alone, so that what was fine-tuned with it has none.
_MASK_EMBEDDING = "xlnet/mask_embedding"
# Scopes that have to be understood whole: a variable in them that no table has belongs to another model.
_BODY_SCOPES = re.compile(r"bert/|model/transformer/")
_HEAD_SCOPES = re.compile(r"cls/(predictions|seq_relationship)/|model/(lm_loss|sequnece_summary)/")
# A head's kind, by a variable that no other has. What lies outside every scope is a classifier, or with one output a
# regression (an option's score has the same variables; nothing tells it apart).
_HEADS = {
  "start_logits/dense/kernel": "conditional_span",
  "cls/squad/output_weights": "span",
  "model/classification/logit/kernel": "classification",
  "model/regression/logit/kernel": "regression",
  "logits/dense/kernel": "choice",
  "output_weights": "classification",
}


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """What a TF1 checkpoint holds.

  Attributes:
    config: the model's shape and arithmetic.
    params: parameters, without the modules in `missing`.
    head: of a fine-tuned model; its labels have no names there.
    missing: heads for pretraining that it does not hold. An XLNet without its "mask_embedding" has zeros there.
    left_over: variables of other heads.
  """

  config: ModelConfig
  params: dict
  head: HeadConfig | None
  missing: tuple[str, ...]
  left_over: tuple[str, ...]


def find(path: pathlib.Path) -> pathlib.Path | None:
  """Returns the prefix of the checkpoint at `path`, or None where there is none.

  `path` is a prefix, one of its files, or a folder with one checkpoint; of several, the one that the folder's file
  `checkpoint` names as the newest.

  Raises:
    ValueError: a folder with several, and nothing says which.
  """
  if not path.is_dir():
    prefix = path.with_name(re.sub(r"\.(index|meta|data-\d{5}-of-\d{5})$", "", path.name))
    return prefix if _index(prefix).exists() else None
  if (path / "variables" / "variables.index").exists():  # a module of TF-Hub, or a SavedModel
    return path / "variables" / "variables"
  found = sorted(file.with_suffix("") for file in path.glob("*.index"))
  if len(found) > 1 and (path / "checkpoint").exists():
    text = (path / "checkpoint").read_text(encoding="utf-8", errors="replace")
    if newest := re.search(r'^model_checkpoint_path: "(?:.*/)?([^"/]+)"', text, re.MULTILINE):
      found = [prefix for prefix in found if prefix.name == newest[1]] or found
  if len(found) > 1:
    raise ValueError(f"{path} holds several TF1 checkpoints; name one of {', '.join(prefix.name for prefix in found)}")
  return found[0] if found else None


def read(prefix: pathlib.Path, heads: bool = True) -> Checkpoint:
  """Reads a checkpoint. Optimizers' slots are passed over.

  Args:
    prefix: what `find` returns.
    heads: without them, only the body is read (and BERT's pooler), and whatever else there is, is left over.

  Raises:
    FileNotFoundError: no JSON with the sizes, or a file of the checkpoint is missing.
    ValueError: names the file and the tensor or field that does not fit.
  """
  bundle = TensorBundle(prefix)
  stored = _model_variables(bundle, prefix)
  name = _family(prefix, stored)
  _, family, defaults = _FAMILIES[name]
  file = _beside(prefix, (f"{name}_config.json", "config.json", f"{name}_config*.json"))
  if file is None:
    raise FileNotFoundError(f"{prefix.parent}: no {name}_config.json beside {prefix.name}; copy the release's")
  try:
    fields = _as_elsewhere(json.loads(file.read_text(encoding="utf-8")), defaults)
    config = family.read_original(fields)
    head = (read_head(fields, family, config) or _head(stored, bundle, family)) if heads else None
  except (ValueError, AttributeError, TypeError) as error:
    raise ValueError(f"{file}: {error}") from None

  has_mask_embedding = not any(entry.ours == _MASK_EMBEDDING and entry.tf1 not in stored for entry in family.ENTRIES)
  own = family.HEADS[head.kind].entries if head else ()
  shapes = parameter_shapes(config, head)
  entries = [
    entry
    for entry in names.of_tf1((*family.ENTRIES, *own))
    if entry.ours in shapes
    and (has_mask_embedding or entry.ours != _MASK_EMBEDDING)
    and (heads or entry.module in (*names.BODIES, "pooler"))
  ]
  known = {name for entry in entries for name in entry.names(config)}
  own_scope = lambda name: _BODY_SCOPES.match(name) or (heads and _HEAD_SCOPES.match(name))
  left_over = {name for name in stored if name not in known and not own_scope(name)}
  tensors = _Tensors(bundle, {name: there for name, there in stored.items() if name not in left_over})
  required = sorted({entry.module for entry in own})
  try:
    params, missing = names.from_theirs(entries, tensors, shapes, config, file.name, required)
  except ValueError as error:
    raise ValueError(f"{_index(prefix)}: {error}") from None
  if not has_mask_embedding:
    params["xlnet"]["mask_embedding"] = np.zeros(shapes[_MASK_EMBEDDING], np.float32)
    missing = (*missing, "mask_embedding")
  return Checkpoint(config, params, head, missing, tuple(stored[name] for name in stored if name in left_over))


def vocabulary(prefix: pathlib.Path) -> pathlib.Path:
  """Returns the vocabulary's file.

  Raises:
    FileNotFoundError: there is none.
  """
  if file := _beside(prefix, _VOCABULARIES):
    return file
  raise FileNotFoundError(
    f"{prefix.parent}: no vocabulary beside {prefix.name}; vocab.txt, spiece.model or 30k-clean.model belongs to it"
  )


@dataclasses.dataclass(frozen=True)
class _Tensors(Mapping):
  """A checkpoint's tensors under other names, each read when it is asked for: no second copy of the model in memory."""

  bundle: TensorBundle
  stored: Mapping[str, str]

  def __getitem__(self, name: str) -> np.ndarray:
    return self.bundle.read(self.stored[name])

  def __iter__(self) -> Iterator[str]:
    return iter(self.stored)

  def __len__(self) -> int:
    return len(self.stored)


def _model_variables(bundle: TensorBundle, prefix: pathlib.Path) -> dict[str, str]:
  """The name in the file by the tables' name: without optimizers' slots, without the scope that TF-Hub puts before all,
  and without the task's name in the scope of XLNet's classifiers."""
  if _OBJECTS in bundle.names:
    raise ValueError(
      f"{_index(prefix)}: a checkpoint of TensorFlow 2, by objects; only those of the original code are read"
    )
  stored = {}
  for there in bundle.names:
    if _SLOTS.search(there):
      continue
    name = re.sub(r"^model/(classification|regression)_[^/]+/logit/", r"model/\1/logit/", there.removeprefix("module/"))
    if name in stored:
      raise ValueError(f"{_index(prefix)}: {stored[name]} and {there} are both {name}; only one head is read")
    stored[name] = there
  return stored


def _head(stored: Mapping[str, str], bundle: TensorBundle, family: types.ModuleType) -> HeadConfig | None:
  """The head that a checkpoint holds, by its variables; None for one that the family's code does not make."""
  marks = [name for name, kind in _HEADS.items() if name in stored and kind in family.HEADS]
  if not marks:
    return None
  kind, shape = _HEADS[marks[0]], bundle.shape(stored[marks[0]])
  outputs = shape[0 if marks[0] == "output_weights" else -1] if shape else 0
  if kind == "classification" and outputs == 1:
    kind = "regression"
  labels = () if HEAD_KINDS[kind].outputs else tuple(f"LABEL_{i}" for i in range(outputs))
  summarizes = HEAD_KINDS[kind].pooled and any(name.startswith("model/transformer/") for name in stored)
  projection = not summarizes or "model/sequnece_summary/summary/kernel" in stored
  return HeadConfig(kind, labels, projection=projection)


def _family(prefix: pathlib.Path, stored: Iterable[str]) -> str:
  for name, (scope, _, _) in _FAMILIES.items():
    if any(re.match(scope, tensor) for tensor in stored):
      return name
  raise ValueError(
    f"{_index(prefix)}: no variables of the original BERT, ALBERT or XLNet (bert/encoder/…, model/transformer/…) here"
  )


def _as_elsewhere(fields: Mapping, defaults: Mapping) -> dict:
  """An original's JSON as Hugging Face's: what the originals call gelu is the tanh form, which is gelu_new there.

  A file with `model_type` is Hugging Face's, whatever it lies beside, and means what it says.
  """
  if "model_type" in fields:
    return dict(fields)
  fields = {**defaults, **fields}
  return fields | {name: "gelu_new" for name in ("hidden_act", "ff_activation") if fields.get(name) == "gelu"}


def _beside(prefix: pathlib.Path, patterns: Iterable[str]) -> pathlib.Path | None:
  """The file of a release that the first fitting pattern names; a pattern that several files fit names none."""
  folders = [prefix.parent]
  if prefix.parent.name == "variables":
    folders += [prefix.parent.parent / "assets", prefix.parent.parent]
  found = (list(folder.glob(pattern)) for folder in folders for pattern in patterns)
  return next((files[0] for files in found if len(files) == 1), None)


def _index(prefix: pathlib.Path) -> pathlib.Path:
  return prefix.with_name(prefix.name + ".index")
