"""Writes a trained model to a folder: in Hugging Face layout, or in ours."""

import dataclasses
import json
import os
import pathlib
import sys

import orbax.checkpoint as ocp
import safetensors.numpy

from data import shards
from models.primitives import ModelConfig
from models.xlnet_config import XLNetConfig
from pretrained import files, hf, library_tokenizer, names
from pretrained.heads import write_head
from pretrained.load import Pretrained
from training.aftermath import hush


def write(pretrained: Pretrained, folder: str | os.PathLike, layout: str) -> Pretrained:
  """Writes a model folder; the weights last, so that an unfinished one is none. Returns what it holds.

  Raises:
    ValueError: `folder` is not empty, or the layout has no such model.
  """
  folder = pathlib.Path(folder)
  if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
    raise ValueError(f"{folder} is there already and not an empty folder; choose another")
  if layout == "hf":
    pretrained = _known_there(pretrained)
  {"hf": _write_hf, "bidir": _write_bidir}[layout](pretrained, folder)
  return pretrained


def architecture(pretrained: Pretrained) -> str:
  """The class of `transformers` that reads the model whole."""
  family = hf.family_of(pretrained.config)
  if pretrained.head:
    return write_head(pretrained.head, family)["architectures"][0]
  heads = [entry.module for entry in family.ENTRIES if entry.module not in names.BODIES]
  held = tuple(head for head in dict.fromkeys(heads) if head in pretrained.params)
  if held in ((), ("pooler",)):
    return family.BODY
  return family.PRETRAINING.get(held, max(family.PRETRAINING.items(), key=lambda item: len(item[0]))[1])


def _write_hf(pretrained: Pretrained, folder: pathlib.Path) -> None:
  """config.json, model.safetensors (what is tied is stored once, slots of vocab_multiple are not), the tokenizer."""
  config, head = pretrained.config, pretrained.head
  family = hf.family_of(config)
  fields = family.write_config(config) | _special_ids(pretrained)
  fields |= write_head(head, family) if head else {}
  fields |= {"architectures": [architecture(pretrained)], "dtype": "float32"}
  entries = family.ENTRIES + (family.HEADS[head.kind].entries if head else ())
  tensors = names.to_theirs(entries, pretrained.params, config)

  folder.mkdir(parents=True, exist_ok=True)
  library_tokenizer.save(pretrained.tokenizer, folder, cls_last(config), getattr(config, "max_length", None))
  _write_json(folder / hf.CONFIG, fields)
  shards.write_bytes(folder / files.SAFE, [safetensors.numpy.save(tensors, metadata={"format": "pt"})])


def _known_there(pretrained: Pretrained) -> Pretrained:
  """Returns the model without the pair head of an XLNet, which no class has there; a line says so."""
  left = [name for name in ("pooler", "pair_head") if name in pretrained.params]
  if not left or not isinstance(pretrained.config, XLNetConfig):
    return pretrained
  print(f"Hugging Face has no {' and '.join(left)} of such a model: left out; --to=bidir keeps them", file=sys.stderr)
  params = {name: tree for name, tree in pretrained.params.items() if name not in left}
  return dataclasses.replace(pretrained, params=params)


def cls_last(config: ModelConfig) -> bool:
  """Returns whether the family's rows end with the cls piece, as XLNet's do."""
  return isinstance(config, XLNetConfig)


def _special_ids(pretrained: Pretrained) -> dict:
  """What a config.json says of the vocabulary, where it differs from what the class expects."""
  tokenizer = pretrained.tokenizer
  ids = {"pad_token_id": tokenizer.pad_id}
  if hf.family_of(pretrained.config).PREFIX == "albert":
    ids |= {"bos_token_id": tokenizer.cls_id, "eos_token_id": tokenizer.sep_id}
  if cls_last(pretrained.config):
    find = lambda piece: tokenizer.pieces.index(piece) if piece in tokenizer.pieces else None
    ids |= {"bos_token_id": find("<s>"), "eos_token_id": find("</s>")}
  return ids


def _write_bidir(pretrained: Pretrained, folder: pathlib.Path) -> None:
  """The folder of a run, as far as a model needs one: config.json, tokenizer/ and checkpoints/0/params."""
  hush()
  written = {
    "family": "xlnet" if isinstance(pretrained.config, XLNetConfig) else "encoder",
    "model": dataclasses.asdict(pretrained.config),
    "modules": sorted(pretrained.params),
  }
  if pretrained.head:
    written["head"] = dataclasses.asdict(pretrained.head)
  folder.mkdir(parents=True, exist_ok=True)
  pretrained.tokenizer.save(folder / "tokenizer")
  _write_json(folder / hf.CONFIG, written)
  with ocp.StandardCheckpointer() as checkpointer:
    checkpointer.save(os.path.join(os.path.abspath(folder), "checkpoints", "0", "params"), pretrained.params)


def _write_json(path: pathlib.Path, fields: dict) -> None:
  shards.write_bytes(path, [(json.dumps(fields, indent=2, ensure_ascii=False) + "\n").encode()])
