"""Reads a model folder in Hugging Face layout: config.json, model.safetensors, and the tokenizer's files."""

import json
import pathlib
import types

import numpy as np
import safetensors

from models.primitives import ModelConfig
from pretrained import albert, bert, names, xlnet
from pretrained.shapes import parameter_shapes

# What config.json calls a family: the module with its tables.
FAMILIES = {"bert": bert, "albert": albert, "xlnet": xlnet}


def is_folder(path: pathlib.Path) -> bool:
  """Whether `path` looks like a model folder in this layout."""
  return any((path / name).exists() for name in ("model.safetensors", "pytorch_model.bin"))


def read_folder(path: pathlib.Path) -> tuple[ModelConfig, dict, tuple[str, ...]]:
  """Returns (config, parameters, names of the heads that the file does not hold).

  Raises:
    FileNotFoundError: config.json or model.safetensors is missing.
    ValueError: names the file and the tensor or field that does not fit.
  """
  config_file, weights_file = path / "config.json", path / "model.safetensors"
  if not weights_file.exists() and (path / "pytorch_model.bin").exists():
    raise ValueError(
      f"{path}/pytorch_model.bin: pickled weights are not read; save the model again as model.safetensors "
      "(transformers: model.save_pretrained)"
    )
  for file in (config_file, weights_file):
    if not file.exists():
      raise FileNotFoundError(f"{file}: no such file; a model folder holds config.json and model.safetensors")
  try:
    fields = json.loads(config_file.read_text(encoding="utf-8"))
    family = _family(fields)
    config = family.read_config(fields)
  except ValueError as error:
    raise ValueError(f"{config_file}: {error}") from None
  try:
    tensors = _canonical(_read_tensors(weights_file), family)
    params, absent = names.from_theirs(family.ENTRIES, tensors, parameter_shapes(config), config)
  except ValueError as error:
    raise ValueError(f"{weights_file}: {error}") from None
  return config, params, absent


def _family(fields: dict) -> types.ModuleType:
  """The family's module; a file that does not name it, as the original releases, is told by ALBERT's own field."""
  name = fields.get("model_type") or ("albert" if "num_hidden_groups" in fields else "bert")
  if name not in FAMILIES:
    raise ValueError(f"model_type={name!r} is not supported, only {', '.join(FAMILIES)}")
  return FAMILIES[name]


def _read_tensors(path: pathlib.Path) -> dict[str, np.ndarray]:
  try:
    with safetensors.safe_open(path, framework="np") as file:
      return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, a safetensors file is no dict
  except safetensors.SafetensorError as error:
    raise ValueError(f"not a whole safetensors file ({error})") from None


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
