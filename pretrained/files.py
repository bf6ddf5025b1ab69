"""The files of a model folder that someone else made: none outside it is opened, and no code in it is run."""

import functools
import importlib.util
import json
import pathlib
from collections.abc import Callable

import numpy as np
import safetensors

SAFE, PICKLED = "model.safetensors", "pytorch_model.bin"
_INDEX = ".index.json"  # behind either name: which tensor is in which file
_TORCH = (2, 6)  # before it, weights_only could be got round


def inside(folder: pathlib.Path, name: str) -> pathlib.Path:
  """Returns the path of a folder's file.

  A download of huggingface_hub is a folder snapshots/REVISION of links into blobs/ beside snapshots/, which count as
  inside.

  Raises:
    ValueError: not the name of a file in the folder itself, or a link that leads out of it.
  """
  if pathlib.PurePosixPath(name).name != name or pathlib.PureWindowsPath(name).name != name:
    raise ValueError(f"{folder}: {name!r} is no file of this folder; nothing outside it is read")
  path, root = folder / name, folder.resolve()
  roots = [root, root.parent.parent / "blobs"] if root.parent.name == "snapshots" else [root]
  if not any(path.resolve().is_relative_to(root) for root in roots):
    raise ValueError(f"{path} is a link to {path.resolve()}, outside the folder; nothing outside it is read")
  return path


def has_weights(folder: pathlib.Path) -> bool:
  """Returns whether a folder holds weights in a form that `read_tensors` reads."""
  return any((folder / f"{name}{end}").exists() for name in (SAFE, PICKLED) for end in ("", _INDEX))


def read_tensors(folder: pathlib.Path) -> tuple[dict[str, np.ndarray], pathlib.Path]:
  """Returns the tensors of a model folder, and the file that holds them (or the index of several).

  Raises:
    FileNotFoundError: no file of weights, or one that an index names is missing.
    ValueError: a damaged file, a name that leads out of the folder, or a pickle that would run code.
  """
  for name, read in ((SAFE, _read_safe), (PICKLED, _read_pickled)):
    for file in (folder / name, folder / f"{name}{_INDEX}"):
      if not file.exists():
        continue
      inside(folder, file.name)
      if file.name == name:
        return read(file), file
      return _read_shards(folder, file, read), file
  raise FileNotFoundError(f"{folder / SAFE}: no such file; a model folder holds config.json and {SAFE}")


def _read_shards(folder: pathlib.Path, index: pathlib.Path, read: Callable) -> dict[str, np.ndarray]:
  try:
    where = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    shards = sorted(set(where.values()))
    if not all(isinstance(name, str) for name in shards):
      raise ValueError
  except (ValueError, KeyError, TypeError, AttributeError):
    raise ValueError(f"{index}: no index of weights (weight_map: tensor to file)") from None
  tensors = {}
  for name in shards:
    file = inside(folder, name)
    if not file.exists():
      raise FileNotFoundError(f"{file}: no such file, and {index.name} names it")
    tensors |= read(file)
  if lost := sorted(where.keys() - tensors.keys()):
    raise ValueError(f"{index}: {lost[0]} is not in {where[lost[0]]}")
  return tensors


def _read_safe(file: pathlib.Path) -> dict[str, np.ndarray]:
  try:
    with safetensors.safe_open(file, framework="np") as opened:
      return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118, a safetensors file is no dict
  except safetensors.SafetensorError as error:
    raise ValueError(f"{file}: not a whole safetensors file ({error})") from None


def _read_pickled(file: pathlib.Path) -> dict[str, np.ndarray]:
  """A pickle can run code when it is read; PyTorch's weights-only reader makes tensors and nothing else."""
  torch = _torch()
  if torch is None:
    raise ValueError(
      f"{file}: pickled weights are read by PyTorch {'.'.join(map(str, _TORCH))} or newer, which is not installed; "
      f"pip install torch, or save the model again as {SAFE} (transformers: model.save_pretrained)"
    )
  try:
    tensors = torch.load(file, map_location="cpu", weights_only=True)
    return {name: tensor.float().numpy() for name, tensor in tensors.items()}
  except Exception as error:  # whatever a damaged pickle makes of the reader
    first = (str(error).strip() or type(error).__name__).splitlines()[0].split(". ")[0]
    raise ValueError(f"{file}: refused, for it is damaged or holds more than tensors, such as code ({first})") from None


@functools.cache
def _torch():
  """PyTorch, if it is there and new enough."""
  if importlib.util.find_spec("torch") is None:
    return None
  import torch

  version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
  return torch if version >= _TORCH else None
