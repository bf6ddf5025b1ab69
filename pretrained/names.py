"""What a checkpoint's tensors are called elsewhere: one table a family, read in both directions, for both sources.

The sources are Hugging Face and the original TensorFlow 1 code. There every layer has tensors of its own (but for
XLNet's biases in TF1), and Hugging Face stores a dense layer's matrix [out, in]; here the copies of a layer's part are
stacked on a leading axis under `…/layers/`, and the matrix is [in, out].
"""

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import flax.traverse_util
import numpy as np

from models.primitives import ModelConfig
from models.xlnet_config import XLNetConfig

BODIES = ("encoder", "xlnet")  # modules that a checkpoint cannot do without
PRETRAINING = ("pooler", "mlm_head", "pair_head", "lm_head")  # what a model for pretraining has beside its body
VOCABULARY = re.compile(r"/embeddings/word/embedding$|^(mlm|lm)_head/bias$")  # parameters with a row a piece


@dataclasses.dataclass(frozen=True)
class Entry:
  """One parameter of ours and its name elsewhere.

  Attributes:
    ours: path in the parameter tree, joined with "/"; its first part is the module it belongs to.
    theirs: name; for a layer's part "{copy}" stands for the copy's number, which is "{block}" of "{group}": the copies
      of a group's blocks follow one another. A layer's part whose name has no "{" is stacked there as here.
    transpose: theirs is [out, in].
    heads: theirs has the heads on an axis of their own: [.., heads, head width], after `transpose`.
    leading: axes of size 1 that theirs begins with.
    tf1: name in the original TensorFlow 1 checkpoints, in the same form; "" where they have no such tensor.
    tf1_transpose: `transpose` there; `heads` and `leading` are the same.
  """

  ours: str
  theirs: str
  transpose: bool = False
  heads: bool = False
  leading: int = 0
  tf1: str = ""
  tf1_transpose: bool = False

  @property
  def module(self) -> str:
    return self.ours.split("/")[0]

  @property
  def is_stacked(self) -> bool:
    return self.ours.split("/")[1:2] == ["layers"]

  @property
  def is_split(self) -> bool:
    """Whether theirs is a tensor a copy."""
    return self.is_stacked and "{" in self.theirs

  def names(self, config: ModelConfig) -> list[str]:
    """Their names, one a copy."""
    if not self.is_split:
      return [self.theirs]
    if isinstance(config, XLNetConfig):
      return [self.theirs.format(copy=i) for i in range(config.num_layers)]
    part, blocks = self.ours.split("/")[2], config.inner_groups
    return [self.theirs.format(copy=i, group=i // blocks, block=i % blocks) for i in range(config.copies(part))]

  def their_shape(self, shape: tuple[int, ...], config: ModelConfig) -> tuple[int, ...]:
    """The shape of a tensor of theirs, by that of ours: of one copy, if theirs are split."""
    if self.is_stacked and not self.is_split:
      one_for_all = isinstance(config, XLNetConfig) and not config.untie_biases and self.ours.endswith("_bias")
      return shape[1:] if one_for_all else shape
    shape = shape[::-1] if self.transpose else shape
    if self.heads:
      shape = (*shape[:-1], config.num_heads, shape[-1] // config.num_heads)
    return (1,) * self.leading + shape


def table(ours: str, theirs: str, tf1: str = "") -> list[Entry]:
  """Entries of an embedding, [rows, width] on both sides. `tf1` is its variable."""
  return [Entry(f"{ours}/embedding", f"{theirs}.weight", tf1=tf1)]


def dense(ours: str, theirs: str, tf1: str = "") -> list[Entry]:
  """Entries of a dense layer: its matrix is [in, out] here, [out, in] in theirs. `tf1` is a scope."""
  kernel, bias = (f"{tf1}/kernel", f"{tf1}/bias") if tf1 else ("", "")
  return [
    Entry(f"{ours}/kernel", f"{theirs}.weight", transpose=True, tf1=kernel),
    Entry(f"{ours}/bias", f"{theirs}.bias", tf1=bias),
  ]


def output(ours: str, theirs: str, tf1: str) -> list[Entry]:
  """A dense layer that BERT's and ALBERT's code writes out: the matrix is [out, in] there too. `tf1` is a prefix."""
  return [
    Entry(f"{ours}/kernel", f"{theirs}.weight", transpose=True, tf1=f"{tf1}output_weights", tf1_transpose=True),
    Entry(f"{ours}/bias", f"{theirs}.bias", tf1=f"{tf1}output_bias"),
  ]


def norm(ours: str, theirs: str, tf1: str = "") -> list[Entry]:
  """Entries of a layer norm. `tf1` is a scope."""
  gamma, beta = (f"{tf1}/gamma", f"{tf1}/beta") if tf1 else ("", "")
  return [Entry(f"{ours}/scale", f"{theirs}.weight", tf1=gamma), Entry(f"{ours}/bias", f"{theirs}.bias", tf1=beta)]


def conditional_span(in_hf: bool) -> tuple[Entry, ...]:
  """The head of models/span.py, which both originals build alike."""
  ours, theirs = "conditional_span_head", lambda tf1: tf1.replace("/", ".") if in_hf else ""
  entries = (
    *dense(f"{ours}/start", theirs("start_logits/dense"), "start_logits/dense"),
    *dense(f"{ours}/end/dense", theirs("end_logits/dense_0"), "end_logits/dense_0"),
    *norm(f"{ours}/end/norm", theirs("end_logits/LayerNorm"), "end_logits/LayerNorm"),
    *dense(f"{ours}/end/output", theirs("end_logits/dense_1"), "end_logits/dense_1"),
    *dense(f"{ours}/answer/dense", theirs("answer_class/dense_0"), "answer_class/dense_0"),
    dense(f"{ours}/answer/output", theirs("answer_class/dense_1"), "answer_class/dense_1")[0],  # no bias
  )
  return entries if in_hf else tuple(dataclasses.replace(entry, theirs="") for entry in entries)


@dataclasses.dataclass(frozen=True)
class Head:
  """A fine-tuned model of one kind.

  Attributes:
    architecture: the class of Hugging Face's; "" where they have none.
    entries: what it holds beside the body and, where it works on one vector a sequence, the pooler.
  """

  architecture: str
  entries: tuple[Entry, ...]


def of_tf1(entries: Iterable[Entry]) -> tuple[Entry, ...]:
  """The table with the TensorFlow 1 names and layouts as `theirs`."""
  return tuple(
    Entry(entry.ours, entry.tf1, entry.tf1_transpose, entry.heads, entry.leading) for entry in entries if entry.tf1
  )


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
  described: str = "config.json",
  required: Collection[str] = (),
) -> tuple[dict, tuple[str, ...]]:
  """Returns (parameters, modules that are absent from `tensors` and so from the parameters).

  Args:
    entries: the family's table; what is not in `shapes` is left out of it.
    tensors: theirs, by name, already in the table's spelling; each is read once.
    shapes: the shape of every parameter of ours, by path.
    config: says how many copies of a part there are.
    described: the file that `config` was read from.
    required: modules that must be there, besides the body.

  Raises:
    ValueError: the body, or part of another module, is missing; a tensor is unknown; a shape differs.
  """
  wanted = {entry: entry.names(config) for entry in entries if entry.theirs and entry.ours in shapes}
  if unknown := sorted(tensors.keys() - {name for names in wanted.values() for name in names}):
    raise ValueError(f"unknown tensors: {_some(unknown)}")
  missing = {entry.module: [] for entry in wanted}
  for entry, names in wanted.items():
    missing[entry.module] += [name for name in names if name not in tensors]
  absent = tuple(
    module
    for module in missing
    if module not in (*BODIES, *required)
    and not any(n in tensors for e, names in wanted.items() if e.module == module for n in names)
  )
  if lost := [name for module, names in missing.items() if module not in absent for name in names]:
    raise ValueError(f"missing tensors: {_some(lost)}")

  params = {}
  for entry, names in wanted.items():
    if entry.module in absent:
      continue
    shape = shapes[entry.ours][1:] if entry.is_split else shapes[entry.ours]
    theirs = entry.their_shape(shape, config)
    arrays = []
    for name in names:
      array = tensors[name]
      if array.shape != theirs:
        raise ValueError(f"tensor {name} has shape {array.shape}; {described} says {theirs}")
      arrays.append(array.reshape(shape[::-1]).T if entry.transpose else array.reshape(shape))
    if entry.is_split and shapes[entry.ours][0] == 1:  # one for all layers here, a copy for each there
      if any(not np.array_equal(arrays[0], other) for other in arrays[1:]):
        raise ValueError(f"tensors {names[0]} and those of the other layers differ; {described} says they are tied")
      arrays = arrays[:1]
    array = np.stack(arrays) if entry.is_split else arrays[0]
    params[entry.ours] = np.ascontiguousarray(array, dtype=np.float32)
  return flax.traverse_util.unflatten_dict(params, sep="/"), absent


def to_theirs(entries: Sequence[Entry], params: Mapping, config: ModelConfig) -> dict[str, np.ndarray]:
  """Returns their tensors by name: `from_theirs` backwards, without the slots that vocab_multiple adds.

  Raises:
    ValueError: parameters that have no name there.
  """
  flat = flax.traverse_util.flatten_dict(params, sep="/")
  if nameless := sorted(flat.keys() - {entry.ours for entry in entries if entry.theirs}):
    raise ValueError(f"this layout has no names for {_some(nameless)}")
  tensors = {}
  for entry in entries:
    if entry.ours not in flat:
      continue
    array = np.asarray(flat[entry.ours])
    if VOCABULARY.search(entry.ours):
      array = array[: config.vocab_size]
    names = entry.names(config)
    arrays = [array] if not entry.is_split else array if len(array) > 1 else [array[0]] * len(names)
    for name, one in zip(names, arrays, strict=True):
      theirs = entry.their_shape(one.shape, config)
      tensors[name] = np.ascontiguousarray(one.T if entry.transpose else one).reshape(theirs)
  return tensors


def _some(names: Iterable[str]) -> str:
  names = list(names)
  return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
