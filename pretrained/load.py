"""Opens a trained model wherever it comes from: what `init_from` and every tool's `--checkpoint` accept."""

import dataclasses
import json
import os
import pathlib
import sys

import flax.traverse_util
import jax
import numpy as np

from data.places import is_remote, local_copy, reach
from data.tokenizers import Tokenizer, load_tokenizer
from models.config import EncoderConfig
from models.head_config import HeadConfig
from models.primitives import ModelConfig
from models.xlnet_config import XLNetConfig
from pretrained import hf, hub, names, tf1
from pretrained.shapes import parameter_shapes, task_shapes
from training.checkpoint import restore_params
from training.saved import at_step

# What a run's config.json calls a family: the type of its model section. Runs from before there were two do not say.
_FAMILIES = {"encoder": EncoderConfig, "xlnet": XLNetConfig}


@dataclasses.dataclass(frozen=True)
class Pretrained:
  """A trained model.

  Attributes:
    config: the model's shape and arithmetic; its type is the family.
    params: parameters of PretrainingModel, or of PermutationLM for an XLNet (with a pair head, if it was trained with
      one); float32 arrays on the host, without the modules in `missing`.
    tokenizer: the one it was trained with.
    missing: heads that the checkpoint does not hold, of "pooler", "mlm_head", "pair_head", or "lm_head"; and, of an
      XLNet that the original code fine-tuned, "mask_embedding", which is zeros.
    left_over: tensors of the checkpoint that are not among the parameters: other heads, in a TF1 checkpoint.
    head: what a fine-tuned model predicts; its parameters are TaskModel's. None for a model that was only pretrained.
  """

  config: ModelConfig
  params: dict
  tokenizer: Tokenizer
  missing: tuple[str, ...] = ()
  left_over: tuple[str, ...] = ()
  head: HeadConfig | None = None


def load(path: str | os.PathLike, heads: bool = True) -> Pretrained:
  """Reads a workdir of ours (its newest checkpoint, or WORKDIR@STEP's), a folder in Hugging Face layout,
  `hf:ORG/NAME[@REVISION]` of its hub, or a TF1 checkpoint: its prefix, or a folder with one. A workdir in a bucket is
  read where it is; the files of another folder in one are copied first.

  Args:
    path: where.
    heads: without them, what a folder or a workdir holds beside the body (and BERT's pooler) is left out.

  Raises:
    FileNotFoundError: no such folder, no model in it, or none of that step.
    ValueError: the model is damaged or of another kind, its tokenizer has more pieces than it, or nothing here reaches
      the place.
  """
  name, step = at_step(path)
  where = hub.folder if name.startswith(hub.PREFIX) else reach if is_remote(name) else pathlib.Path
  path = where(name)
  head, left_over = None, ()
  if not path.exists() and not tf1.find(path):
    raise FileNotFoundError(f"{path}: no such checkpoint")
  if hf.is_folder(path):
    with local_copy(path) as folder:
      config, params, missing = hf.read_folder(folder, heads)
      head = hf.read_head_of(folder) if heads else None
      tokenizer = load_tokenizer(folder)
  elif (path / "checkpoints").exists():
    config, params, missing, head = _read_workdir(path, heads, step)
    with local_copy(path / "tokenizer") as folder:
      tokenizer = load_tokenizer(folder)
  elif prefix := tf1.find(path):
    with local_copy(prefix.parent) as folder:
      checkpoint = tf1.read(folder / prefix.name, heads)
      tokenizer = load_tokenizer(tf1.vocabulary(folder / prefix.name))
    config, params, head = checkpoint.config, checkpoint.params, checkpoint.head
    missing, left_over = checkpoint.missing, checkpoint.left_over
    if left_over and heads:
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
  return Pretrained(config, params, tokenizer, missing, left_over, head)


def _read_workdir(
  path: pathlib.Path, heads: bool, step: int | None
) -> tuple[ModelConfig, dict, tuple[str, ...], HeadConfig | None]:
  """Returns (config, parameters, pretraining heads that are not there, head) of a run's checkpoint of that step, or of
  its newest one."""
  file = path / "config.json"
  try:
    written = json.loads(file.read_text(encoding="utf-8"))
    family = written.get("family", "encoder")
    if family not in _FAMILIES:
      raise ValueError(f"family={family!r} is unknown")
    config = _FAMILIES[family](**written["model"])
    head = HeadConfig(**written["head"]) if written.get("head") else None
    # A converted model says what it holds; a run holds its model.
    modules = written.get("modules")
    has_pair = "pair_head" in modules if modules else (written.get("objective") or {}).get("pair", "none") != "none"
  except FileNotFoundError:
    raise FileNotFoundError(f"{file} is missing: {path} is no whole workdir") from None
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise ValueError(f"{file} does not describe a model ({error})") from None
  module = lambda name: name.split("/")[0]
  every = parameter_shapes(config, head, has_pair)
  pretraining = {module(name) for name in parameter_shapes(config, pair=has_pair)}
  if modules is None:
    modules = {module(name) for name in task_shapes(config, head)} if head else pretraining
  here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
  shapes = {
    name: jax.ShapeDtypeStruct(shape, np.float32, sharding=here)
    for name, shape in every.items()
    if module(name) in modules
  }
  params = jax.device_get(restore_params(str(path), flax.traverse_util.unflatten_dict(shapes, sep="/"), step))
  if not heads:
    kept = names.BODIES if isinstance(config, XLNetConfig) else (*names.BODIES, "pooler")
    head, params = None, {name: tree for name, tree in params.items() if name in kept}
  return config, params, tuple(name for name in names.PRETRAINING if name in pretraining - params.keys()), head
