"""Puts the weights of a trained model into a run's: what `config.init_from` does.

The body must be the checkpoint's, array by array, but for two tables. Position table: of a longer one the first rows
are taken; behind a shorter one the run's own initial rows stay. Word table and its biases: rows that no piece has, such
as those of vocab_multiple, may be more or fewer. Every other module (a head, the pooler) is taken where both have it in
the same shapes; where they do not, the run's own initial values stay, or the checkpoint's are not used, and a line
says so. The last layer of a task's head must be of the same kind with the same labels besides (RTE does not go on with
MNLI's classifier, SQuAD 2.0 goes on with SQuAD 1.1's), and a line says if it goes on.
"""

import dataclasses
import re
import sys

import flax.traverse_util
import jax

from models.head_config import HeadConfig
from models.primitives import ModelConfig
from models.tasks import OUTPUTS
from pretrained import names
from pretrained.load import Pretrained

_UNNAMED = re.compile(r"LABEL_\d+")  # what Hugging Face calls labels that have no names
_FEATURES = ("features", "bilstm")  # modules below a head that know which layers they read
_POSITIONS = "encoder/embeddings/position/embedding"


def require_family(params: dict, pretrained: Pretrained) -> None:
  """Raises ValueError if the body of `pretrained` is not, array by array, that of a model with the parameters
  `params`; shapes apart."""
  ours, theirs = _flat(params), _flat(pretrained.params)
  if other := [name for name in theirs.keys() - ours.keys() if _is_body(name)]:
    raise ValueError(f"config.init_from: this run's model has no {min(other)}; the checkpoint is of another family")
  if other := [name for name in ours.keys() - theirs.keys() if _is_body(name)]:
    raise ValueError(f"config.init_from: the checkpoint has no {min(other)}; it is of another family")


# Fields in which a run's model may differ from the checkpoint's: they change how it is trained or run, not what its
# weights compute. Of the tables, the rules above decide.
_FREE = {
  "vocab_size", "vocab_multiple", "max_length", "initializer_range", "hidden_dropout", "attention_dropout",
  "ffn_dropout", "mem_len", "dtype", "unroll", "remat", "attention",
}  # fmt: skip


def require_model(config: ModelConfig, pretrained: Pretrained) -> None:
  """Raises ValueError if the weights of `pretrained` would compute something else in a model of `config`.

  Shapes cannot tell: those of shared layers are the same for any number of layers, and heads leave no trace.
  """
  ours, theirs = dataclasses.asdict(config), dataclasses.asdict(pretrained.config)
  for fields in (ours, theirs):
    if "embedding_size" in fields:  # 0 and the width itself are the same
      fields["embedding_size"] = fields["embedding_size"] or fields["hidden_size"]
  if differ := [name for name in ours if name in theirs and name not in _FREE and ours[name] != theirs[name]]:
    said = "; ".join(f"config.model.{name} is {theirs[name]!r} there and {ours[name]!r} in this run" for name in differ)
    raise ValueError(f"config.init_from: {said}. Set them to the checkpoint's")


def fill(params: dict, pretrained: Pretrained, head: HeadConfig | None = None) -> dict:
  """Returns `params` with what `pretrained` holds put in its place, on the same devices.

  Args:
    params: a run's initial parameters.
    pretrained: what it starts from.
    head: the run's, if it is of a task.

  Raises:
    ValueError: a model of another family, or an array of the body of another shape than the run's model has.
  """
  require_family(params, pretrained)
  ours, theirs = _flat(params), _flat(pretrained.params)
  module = lambda name: name.split("/")[0]
  differ, last = {}, OUTPUTS[head.kind] if head else ""
  if head and pretrained.head and last in pretrained.params and (said := _unlike(head, pretrained.head)):
    differ[last] = said
  if head and pretrained.head and head.features != pretrained.head.features:
    reads = f"it reads {pretrained.head.features} there and {head.features} in this run"
    differ |= {name: reads for name in _FEATURES if name in params and name in pretrained.params}
  for name in sorted(theirs.keys() & ours.keys()):
    if not _fits(name, ours[name].shape, theirs[name].shape, pretrained.tokenizer.vocab_size):
      said = f"{name} has shape {theirs[name].shape} there and {ours[name].shape} in this run"
      if _is_body(name):
        raise ValueError(f"config.init_from: {said}; set config.model to the checkpoint's: {pretrained.config}")
      differ.setdefault(module(name), said)
  taken = {module(name) for name in theirs} & {module(name) for name in ours} - differ.keys()
  for name, reason in differ.items():
    _say(f"{name} begins anew: {reason}")
  for name in sorted({module(name) for name in ours} - {module(name) for name in theirs}):
    _say(f"{name} begins anew: the checkpoint has none")
  for name in sorted({module(name) for name in theirs} - {module(name) for name in ours}):
    _say(f"the checkpoint's {name} is not used: this run's model has none")

  if last in taken:
    _say(f"{last} goes on from the checkpoint's")

  filled = dict(ours)
  for name in theirs:
    if module(name) not in taken:
      continue
    rows = min(len(theirs[name]), len(ours[name]))
    if rows < len(ours[name]) and name == _POSITIONS:
      _say(f"positions {rows} to {len(ours[name]) - 1} begin anew: the checkpoint's table has {rows} rows")
    put = lambda x, rows, of=ours[name].sharding: jax.device_put(x[:rows], of)
    if rows == len(ours[name]):
      filled[name] = put(theirs[name], rows)
    else:
      set_rows = jax.jit(lambda x, y: x.at[: len(y)].set(y), out_shardings=ours[name].sharding)
      filled[name] = set_rows(ours[name], theirs[name])
  return flax.traverse_util.unflatten_dict(filled, sep="/")


def _unlike(ours: HeadConfig, theirs: HeadConfig) -> str:
  """How two heads mean different things by the same layer; "" if they do not, as far as is known."""
  if ours.kind != theirs.kind:
    return f"it is of {theirs.kind} there and of {ours.kind} in this run"
  if ours.features != theirs.features:
    return f"it reads {_read(theirs)} there and {_read(ours)} in this run"
  unnamed = all(_UNNAMED.fullmatch(name) for name in theirs.labels)
  if ours.labels == theirs.labels or (unnamed and len(ours.labels) == len(theirs.labels)):
    return ""
  return f"its labels are {', '.join(theirs.labels)} there and {', '.join(ours.labels)} in this run"


def _read(head: HeadConfig) -> str:
  return f"a BiLSTM on {head.features}" if head.features else "the body"


def _fits(name: str, ours: tuple[int, ...], theirs: tuple[int, ...], vocab_size: int) -> bool:
  if name == _POSITIONS or names.VOCABULARY.search(name):
    return ours[1:] == theirs[1:] and (name == _POSITIONS or min(ours[0], theirs[0]) >= vocab_size)
  return ours == theirs


def _flat(tree: dict) -> dict:
  return flax.traverse_util.flatten_dict(tree, sep="/")


def _is_body(name: str) -> bool:
  return name.split("/")[0] in names.BODIES


def _say(line: str) -> None:
  if jax.process_index() == 0:
    print(f"config.init_from: {line}", file=sys.stderr)
