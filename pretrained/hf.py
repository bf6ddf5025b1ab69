"""Reads a model folder in Hugging Face layout: config.json, model.safetensors, and the tokenizer's files."""

import json
import pathlib
import types

import numpy as np

from models.head_config import HeadConfig
from models.primitives import ModelConfig
from models.xlnet_config import XLNetConfig
from pretrained import albert, bert, files, names, xlnet
from pretrained.heads import read_head
from pretrained.shapes import parameter_shapes, task_shapes

# What config.json calls a family: the module with its tables.
FAMILIES = {"bert": bert, "albert": albert, "xlnet": xlnet}
CONFIG = "config.json"
# What may lie in a folder besides, and is opened if it does.
TOKENIZER = ("vocab.txt", "spiece.model", "tokenizer.json", "tokenizer_config.json")


def is_folder(path: pathlib.Path) -> bool:
  """Whether `path` looks like a model folder in this layout."""
  return files.has_weights(path)


def family_of(config: ModelConfig) -> types.ModuleType:
  """The module of the family that a model is of, in this layout."""
  if isinstance(config, XLNetConfig):
    return xlnet
  plain = config.sharing == "none" and config.inner_groups == 1 and config.embedding_width == config.hidden_size
  return bert if plain else albert


def read_head_of(path: pathlib.Path) -> HeadConfig | None:
  """Returns the head of a fine-tuned model; None for one that was only pretrained.

  Raises:
    ValueError, FileNotFoundError: as `read_folder`.
  """
  return _read_config(path, heads=True)[2]


def read_folder(path: pathlib.Path, heads: bool = True) -> tuple[ModelConfig, dict, tuple[str, ...]]:
  """Returns (config, parameters, names of the pretraining heads that the file does not hold).

  Args:
    path: the folder.
    heads: without them, only the body is read (and BERT's pooler), and whatever else there is, is left out.

  Raises:
    FileNotFoundError: config.json or the weights are missing.
    ValueError: names the file and the tensor or field that does not fit.
  """
  family, config, head = _read_config(path, heads)
  for name in TOKENIZER:
    files.inside(path, name)
  tensors, file = files.read_tensors(path)
  entries = family.ENTRIES + (family.HEADS[head.kind].entries if head else ())
  shapes = parameter_shapes(config, head)
  own = {name.split("/")[0] for name in task_shapes(config, head)} if head else ()
  try:
    tensors = _canonical(tensors, family)
    if not heads:
      tensors = {name: array for name, array in tensors.items() if name.startswith(f"{family.PREFIX}.")}
    params, absent = names.from_theirs(entries, tensors, shapes, config, required=own)
  except ValueError as error:
    raise ValueError(f"{file}: {error}") from None
  return config, params, absent


def _read_config(path: pathlib.Path, heads: bool) -> tuple[types.ModuleType, ModelConfig, HeadConfig | None]:
  file = files.inside(path, CONFIG)
  if not file.exists():
    raise FileNotFoundError(f"{file}: no such file; a model folder holds config.json and model.safetensors")
  try:
    fields = json.loads(file.read_text(encoding="utf-8"))
    family = _family(fields)
    config = family.read_config(fields)
    return family, config, read_head(fields, family, config) if heads else None
  except ValueError as error:
    raise ValueError(f"{file}: {error}") from None


def _family(fields: dict) -> types.ModuleType:
  """The family's module; a file that does not name it, as the original releases, is told by fields of its own."""
  if not isinstance(fields, dict):
    raise ValueError("no object of fields")
  name = fields.get("model_type")
  name = name or ("albert" if "num_hidden_groups" in fields else "xlnet" if "untie_r" in fields else "bert")
  if name not in FAMILIES:
    raise ValueError(f"model_type={name!r} is not supported, only {', '.join(FAMILIES)}")
  return FAMILIES[name]


def _canonical(tensors: dict[str, np.ndarray], family: types.ModuleType) -> dict[str, np.ndarray]:
  """Renames the tensors as in the family's table and leaves out the tied copies, once they are seen to be copies."""
  tensors = {new: array for name, array in tensors.items() if (new := names.canonical(name, family.PREFIX))}
  for copy, original in family.TIED.items():
    if copy not in tensors:
      continue
    array = tensors.pop(copy)
    if original in tensors and not np.array_equal(array, tensors[original]):
      raise ValueError(f"tensor {copy} is not {original}; an untied output matrix is not supported")
    tensors.setdefault(original, array)
  return tensors
