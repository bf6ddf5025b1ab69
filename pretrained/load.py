"""Opens a trained model wherever it comes from: what `init_from` and every tool's `--checkpoint` accept."""

import dataclasses
import json
import os
import pathlib
import sys

import flax.traverse_util
import jax
import numpy as np

from data.tokenizers import Tokenizer, load_tokenizer
from models.config import EncoderConfig
from models.primitives import ModelConfig
from models.xlnet_config import XLNetConfig
from pretrained import hf, tf1
from pretrained.shapes import parameter_shapes
from training.checkpoint import restore_params

# What a run's config.json calls a family: the type of its model section. Runs from before there were two do not say.
_FAMILIES = {"encoder": EncoderConfig, "xlnet": XLNetConfig}


@dataclasses.dataclass(frozen=True)
class Pretrained:
  """A trained model.

  Attributes:
    config: the model's shape and arithmetic; its type is the family.
    params: parameters of PretrainingModel, or of PermutationLM for an XLNet; float32 arrays on the host, without the
      modules in `missing`.
    tokenizer: the one it was trained with.
    missing: heads that the checkpoint does not hold, of "pooler", "mlm_head", "pair_head", or "lm_head".
    left_over: tensors of the checkpoint that are not among the parameters: other heads, in a TF1 checkpoint.
  """

  config: ModelConfig
  params: dict
  tokenizer: Tokenizer
  missing: tuple[str, ...] = ()
  left_over: tuple[str, ...] = ()


def load(path: str | os.PathLike) -> Pretrained:
  """Reads a workdir of ours (its newest checkpoint), a folder in Hugging Face layout, or a TF1 checkpoint: its prefix,
  or a folder with one.

  Raises:
    FileNotFoundError: no such folder, or no model in it.
    ValueError: the model is damaged or of another kind, or its tokenizer has more pieces than it.
  """
  path, left_over = pathlib.Path(path), ()
  if not path.exists() and not tf1.find(path):
    raise FileNotFoundError(f"{path}: no such checkpoint")
  if hf.is_folder(path):
    config, params, missing = hf.read_folder(path)
    tokenizer = load_tokenizer(path)
  elif (path / "checkpoints").exists():
    config, params, missing = _read_workdir(path)
    tokenizer = load_tokenizer(path / "tokenizer")
  elif prefix := tf1.find(path):
    config, params, missing, left_over = tf1.read(prefix)
    tokenizer = load_tokenizer(tf1.vocabulary(prefix))
    if left_over:
      print(f"{prefix}: heads that are not read: {', '.join(left_over)}", file=sys.stderr)
  else:
    raise FileNotFoundError(
      f"{path}: no model here; a workdir holds checkpoints/, a model folder config.json and model.safetensors, "
      "a TF1 checkpoint an .index file"
    )
  if tokenizer.vocab_size > config.vocab_size:
    raise ValueError(
      f"{path}: the tokenizer has {tokenizer.vocab_size} pieces and the model only {config.vocab_size}; "
      "they do not belong together"
    )
  return Pretrained(config, params, tokenizer, missing, left_over)


def _read_workdir(path: pathlib.Path) -> tuple[ModelConfig, dict, tuple[str, ...]]:
  """Returns what `hf.read_folder` does, of the newest checkpoint of a run."""
  file = path / "config.json"
  try:
    written = json.loads(file.read_text(encoding="utf-8"))
    family = written.get("family", "encoder")
    if family not in _FAMILIES:
      raise ValueError(f"family={family!r} is unknown")
    config = _FAMILIES[family](**written["model"])
  except FileNotFoundError:
    raise FileNotFoundError(f"{file} is missing: {path} is no whole workdir") from None
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise ValueError(f"{file} does not describe a model ({error})") from None
  here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
  shapes = {
    name: jax.ShapeDtypeStruct(shape, np.float32, sharding=here) for name, shape in parameter_shapes(config).items()
  }
  params = restore_params(str(path), flax.traverse_util.unflatten_dict(shapes, sep="/"))
  return config, jax.device_get(params), ()


def require_family(params: dict, pretrained: Pretrained) -> None:
  """Raises ValueError if `pretrained` holds what a model with the parameters `params` has no place for."""
  ours, theirs = (flax.traverse_util.flatten_dict(tree, sep="/") for tree in (params, pretrained.params))
  if other := theirs.keys() - ours.keys():
    raise ValueError(f"config.init_from: this run's model has no {min(other)}; the checkpoint is of another family")


def fill(params: dict, pretrained: Pretrained) -> dict:
  """Returns `params` with every module that `pretrained` holds put in its place, on the same devices.

  Raises:
    ValueError: a model of another family, or an array of another shape than the run's model has.
  """
  require_family(params, pretrained)
  ours, theirs = (flax.traverse_util.flatten_dict(tree, sep="/") for tree in (params, pretrained.params))
  for name, value in theirs.items():
    if ours[name].shape != value.shape:
      raise ValueError(
        f"config.init_from: {name} has shape {value.shape} there and {ours[name].shape} in this run; "
        f"set config.model to the checkpoint's: {pretrained.config}"
      )
    ours[name] = jax.device_put(value, ours[name].sharding)
  return flax.traverse_util.unflatten_dict(ours, sep="/")
