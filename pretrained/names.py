"""What a checkpoint's tensors are called elsewhere: one table a family, read in both directions.

Elsewhere every layer has tensors of its own, and a dense layer's matrix is stored [out, in]; here the copies of a
layer's part are stacked on a leading axis under `…/layers/`, and the matrix is [in, out].
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

import flax.traverse_util
import numpy as np

from models.primitives import ModelConfig
from models.xlnet_config import XLNetConfig

BODIES = ("encoder", "xlnet")  # modules that a checkpoint cannot do without


@dataclasses.dataclass(frozen=True)
class Entry:
  """One parameter of ours and its name elsewhere.

  Attributes:
    ours: path in the parameter tree, joined with "/"; its first part is the module it belongs to.
    theirs: name; for a layer's part "{copy}" stands for the copy's number, which is "{block}" of "{group}": the copies
      of a group's blocks follow one another.
    transpose: theirs is [out, in].
    heads: theirs has the heads on an axis of their own: [.., heads, head width], after `transpose`.
    leading: axes of size 1 that theirs begins with.
  """

  ours: str
  theirs: str
  transpose: bool = False
  heads: bool = False
  leading: int = 0

  @property
  def module(self) -> str:
    return self.ours.split("/")[0]

  @property
  def is_stacked(self) -> bool:
    return self.ours.split("/")[1:2] == ["layers"]

  def names(self, config: ModelConfig) -> list[str]:
    """Their names, one a copy."""
    if not self.is_stacked:
      return [self.theirs]
    if isinstance(config, XLNetConfig):
      return [self.theirs.format(copy=i) for i in range(config.num_layers)]
    part, blocks = self.ours.split("/")[2], config.inner_groups
    return [self.theirs.format(copy=i, group=i // blocks, block=i % blocks) for i in range(config.copies(part))]

  def their_shape(self, shape: tuple[int, ...], config: ModelConfig) -> tuple[int, ...]:
    """The shape of a tensor of theirs, by that of one copy of ours."""
    shape = shape[::-1] if self.transpose else shape
    if self.heads:
      shape = (*shape[:-1], config.num_heads, shape[-1] // config.num_heads)
    return (1,) * self.leading + shape


def table(ours: str, theirs: str) -> list[Entry]:
  return [Entry(f"{ours}/embedding", f"{theirs}.weight")]


def dense(ours: str, theirs: str) -> list[Entry]:
  return [Entry(f"{ours}/kernel", f"{theirs}.weight", transpose=True), Entry(f"{ours}/bias", f"{theirs}.bias")]


def norm(ours: str, theirs: str) -> list[Entry]:
  return [Entry(f"{ours}/scale", f"{theirs}.weight"), Entry(f"{ours}/bias", f"{theirs}.bias")]


def canonical(name: str, prefix: str) -> str | None:
  """Returns a tensor's name in a table's spelling, or None for a buffer that is no parameter.

  Files of a bare encoder lack the prefix, and old files call a norm's parameters gamma and beta.
  """
  if name.endswith("position_ids"):
    return None
  name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
  name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
  return re.sub(r"^(embeddings|encoder|pooler|word_embedding|mask_emb|layer)(\.|$)", rf"{prefix}.\1\2", name)


def from_theirs(
  entries: Sequence[Entry],
  tensors: Mapping[str, np.ndarray],
  shapes: Mapping[str, tuple[int, ...]],
  config: ModelConfig,
) -> tuple[dict, tuple[str, ...]]:
  """Returns (parameters, modules that are absent from `tensors` and so from the parameters).

  Args:
    entries: the family's table.
    tensors: theirs, by name, already in the table's spelling.
    shapes: the shape of every parameter of ours, by path.
    config: says how many copies of a part there are.

  Raises:
    ValueError: the body, or part of another module, is missing; a tensor is unknown; a shape differs.
  """
  wanted = {entry: entry.names(config) for entry in entries}
  if unknown := sorted(tensors.keys() - {name for names in wanted.values() for name in names}):
    raise ValueError(f"unknown tensors: {_some(unknown)}")
  missing = {entry.module: [] for entry in entries}
  for entry, names in wanted.items():
    missing[entry.module] += [name for name in names if name not in tensors]
  absent = tuple(
    module
    for module in missing
    if module not in BODIES
    and not any(n in tensors for e, names in wanted.items() if e.module == module for n in names)
  )
  if lost := [name for module, names in missing.items() if module not in absent for name in names]:
    raise ValueError(f"missing tensors: {_some(lost)}")

  params = {}
  for entry, names in wanted.items():
    if entry.module in absent:
      continue
    shape = shapes[entry.ours][1:] if entry.is_stacked else shapes[entry.ours]
    theirs = entry.their_shape(shape, config)
    for name in names:
      if tensors[name].shape != theirs:
        raise ValueError(f"tensor {name} has shape {tensors[name].shape}; config.json says {theirs}")
    turned = lambda x, shape=shape, turn=entry.transpose: x.reshape(shape[::-1]).T if turn else x.reshape(shape)
    arrays = [turned(tensors[name]) for name in names]
    if entry.is_stacked and shapes[entry.ours][0] == 1:  # one for all layers here, a copy for each there
      if any(not np.array_equal(arrays[0], other) for other in arrays[1:]):
        raise ValueError(f"tensors {names[0]} and those of the other layers differ; config.json says they are tied")
      arrays = arrays[:1]
    array = np.stack(arrays) if entry.is_stacked else arrays[0]
    params[entry.ours] = np.ascontiguousarray(array, dtype=np.float32)
  return flax.traverse_util.unflatten_dict(params, sep="/"), absent


def to_theirs(entries: Sequence[Entry], params: Mapping, config: ModelConfig) -> dict[str, np.ndarray]:
  """Returns their tensors by name: `from_theirs` backwards, without the slots that vocab_multiple adds."""
  flat = flax.traverse_util.flatten_dict(params, sep="/")
  tensors = {}
  for entry in entries:
    if entry.ours not in flat:
      continue
    array = np.asarray(flat[entry.ours])
    if re.search(r"/embeddings/word/embedding$|^(mlm|lm)_head/bias$", entry.ours):
      array = array[: config.vocab_size]
    names = entry.names(config)
    arrays = [array] if not entry.is_stacked else array if len(array) > 1 else [array[0]] * len(names)
    for name, one in zip(names, arrays, strict=True):
      theirs = entry.their_shape(one.shape, config)
      tensors[name] = np.ascontiguousarray(one.T if entry.transpose else one).reshape(theirs)
  return tensors


def _some(names: Iterable[str]) -> str:
  names = list(names)
  return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
