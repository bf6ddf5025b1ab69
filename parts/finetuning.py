"""Fine-tuning: a task's examples, read by a checkpoint's model with the task's head."""

import dataclasses
import functools
import hashlib
import math
import os
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from data.corpus import TOKENIZER_FOLDER
from data.tasks import constant, decode, features, packing, readers, table
from data.tasks.examples import Example
from data.tasks.flat import Features
from data.tasks.packing import TaskSource
from data.tasks.table import Task
from models import fused
from models.flops import task_flops
from models.head_config import HEAD_KINDS, HeadConfig
from models.primitives import ModelConfig
from models.tasks import TaskModel
from models.xlnet_config import XLNetConfig
from objectives import tasks
from objectives.objective import Batch, Params
from parts.parts import LocalRows, Parts
from pretrained.load import Pretrained, load
from pretrained.transfer import fill
from training import sharding
from training.programs import Shapes
from training.stages import Stage, make_stages
from training.step import EVAL_SEED


class Examples(NamedTuple):
  """A task and its examples.

  Attributes:
    task: with its labels.
    train: what is trained on.
    held_out: by split, what is evaluated on.
  """

  task: Task
  train: list[Example]
  held_out: dict[str, list[Example]]


def build(config: ConfigDict, row_parts: int | None = None) -> Parts:
  """Returns the parts of a fine-tuning run.

  Args:
    config: the run's.
    row_parts: parts that the mesh splits a batch into; None = as config.mesh lays out the devices at hand.

  Raises:
    ValueError, FileNotFoundError: fields that contradict each other, the checkpoint or the task's files.
  """
  if not config.init_from:
    raise ValueError(
      "config.init_from is empty; name the checkpoint to fine-tune (config.fresh=True for its shape alone)"
    )
  if not config.epochs > 0:
    raise ValueError(f"config.epochs={config.epochs} must be above 0")
  checkpoint = load(config.init_from)
  examples = read(config.data)
  task = examples.task
  model = model_config(config, checkpoint.config)
  head = head_config(config.head, task)
  answers = decode.AnswerConfig(config.data.n_best, config.data.max_answer_length)

  def featurize(some: Sequence[Example]) -> Features:
    return features.build(
      task,
      some,
      checkpoint.tokenizer,
      config.length,
      cls_last=isinstance(model, XLNetConfig),
      doc_stride=config.data.doc_stride,
      max_query_length=config.data.max_query_length,
    )

  held_out = [example for some in examples.held_out.values() for example in some]
  train_features, eval_features = featurize(examples.train), featurize(held_out)
  for name, some in (("train", train_features), ("held-out", eval_features)):
    said = features.said_of_cuts(some, config.length, config.data.max_query_length)
    if said and jax.process_index() == 0:
      print(f"note: {name}: {said}", file=sys.stderr)
  if row_parts is None:
    row_parts = sharding.row_parts(sharding.make_mesh(sharding.MeshConfig(**config.mesh)))
  source = functools.partial(
    TaskSource, length=config.length, batch_size=config.batch_size, pack=config.data.pack, row_parts=row_parts
  )
  train_source = source(train_features, seed=config.seed, parts=config.accumulate)
  eval_source = source(eval_features, seed=EVAL_SEED)

  # Rounded up, so that the last epoch is whole.
  steps = config.steps or math.ceil(config.epochs * train_source.num_units / config.batch_size)
  declared = declared_shapes(train_source), declared_shapes(eval_source)

  def train_batches(stage: Stage, first: int, local: LocalRows) -> Iterator[Batch]:
    return packing.batches(train_source, first, stage.stop, local)

  def eval_batches(stage: Stage, local: LocalRows) -> Iterator[Batch]:
    return packing.evaluation_batches(eval_source, local=local)

  def initial(params: Params) -> Params:
    return params if config.fresh else fill(params, checkpoint, head)

  return Parts(
    objective=tasks.make(TaskModel(model, head), config.objective.dropout_prng),
    stages=make_stages(steps, config.length, config.batch_size),
    shapes=lambda stage: declared,
    train_batches=train_batches,
    eval_batches=eval_batches,
    flops=lambda rows, length: task_flops(model, head, rows, length),
    initial=initial,
    facts=facts(config, checkpoint, examples, model, head, train_source, eval_source, steps),
    save_assets=lambda workdir: checkpoint.tokenizer.save(os.path.join(workdir, TOKENIZER_FOLDER)),
    score=lambda outputs: score(examples, decode.decode(task, held_out, eval_features, outputs, answers)),
    badness=functools.partial(badness, task.main_score),
    baselines=functools.partial(baselines, examples),
    attention=functools.partial(fused.described, still(model) if head.freeze else model),
  )


def read(data: ConfigDict) -> Examples:
  """Returns the examples that the data section names."""
  if not data.task:
    raise ValueError(f"config.data.task is empty; use one of {', '.join(table.TASKS)}, or custom")
  if not data.source:
    raise ValueError("config.data.source is empty; name the folder with the task's files, or tfds:NAME")
  if not data.eval_splits:
    raise ValueError("config.data.eval_splits names no split")
  if data.task == "custom":
    task = table.custom(data.kind, texts=data.texts, label=data.label, labels=data.labels, scores=data.scores)
  else:
    task = table.find_task(data.task)
    if data.scores:
      raise ValueError(f"config.data.scores is of task custom; {task.name} is scored by {', '.join(task.scores)}")
  of = functools.partial(readers.read, task, data.source, labelled=True, data_dir=data.data_dir or None)
  train = of(data.train_split)
  if data.train_examples < 0:
    raise ValueError(f"config.data.train_examples={data.train_examples} must be at least 0")
  if data.train_examples:
    train = train[: data.train_examples]
  task = readers.with_labels(task, train)
  if task.is_labelled_by_name and len(task.labels) < 2:
    raise ValueError(
      f"{train[0].where}: all {len(train)} training examples have the label {', '.join(task.labels)!r}; two or more "
      "are needed, in the file or in config.data.labels"
    )
  if "f1" in task.scores and len(task.labels) > 2:
    raise ValueError(f"config.data.scores: f1 is of two labels, and there are {', '.join(task.labels)}; use matthews")
  return Examples(task, train, {split: of(split) for split in data.eval_splits})


def model_config(config: ConfigDict, given: ModelConfig) -> ModelConfig:
  """Returns the checkpoint's model with what the model section changes."""
  changes = {name: value for name, value in config.model.items() if value != "" and value != -1}
  known = {field.name for field in dataclasses.fields(given)}
  if strange := sorted(changes.keys() - known):
    raise ValueError(
      f"config.model.{strange[0]}: the model of {config.init_from} has no such field; leave it as it was"
    )
  model = dataclasses.replace(given, **changes)
  longest = getattr(model, "max_length", config.length)
  if config.length > longest:
    raise ValueError(
      f"config.length={config.length} is more than the {longest} positions of {config.init_from}; lower it"
    )
  return model


def still(model: ModelConfig) -> ModelConfig:
  """Returns the model as it is run without dropout."""
  return dataclasses.replace(model, attention_dropout=0.0)


def head_config(head: ConfigDict, task: Task) -> HeadConfig:
  """Returns the task's head.

  Raises:
    ValueError: a kind that is not the task's.
  """
  fields = dict(head)
  kind = fields.pop("kind") or task.kind
  if kind != task.kind and (task.kind, kind) != ("span", "conditional_span"):
    raise ValueError(f"config.head.kind={kind!r} is none of task {task.name}, whose kind is {task.kind}")
  labelled = kind in HEAD_KINDS and not HEAD_KINDS[kind].outputs
  return HeadConfig(kind, task.labels if labelled else (), **fields)


def declared_shapes(source: TaskSource) -> list[Shapes]:
  """Returns the shapes of a source's batches, the smallest first."""
  example = source.evaluation(0)  # all of its arrays are by token or by slot
  width = lambda name, length: length if name in BY_TOKEN else source.slots
  return [
    {name: jax.ShapeDtypeStruct((rows, width(name, length)), x.dtype) for name, x in example.items()}
    for rows, length in source.shapes
  ]


BY_TOKEN = ("tokens", "segment_ids", "sequence_ids", "targets", "allowed")


def score(examples: Examples, found: list) -> dict[str, float]:
  """Returns the scores of the predictions for all held-out splits, one after another: of the first by their official
  names, of others with the split's behind them."""
  result, start = {}, 0
  for number, (split, some) in enumerate(examples.held_out.items()):
    scores = decode.score(examples.task, some, found[start : start + len(some)])
    result |= {name if number == 0 else f"{name}_{split}": value for name, value in scores.items()}
    start += len(some)
  return result


def baselines(examples: Examples) -> dict[str, tuple[float, str]]:
  """Returns what the same prediction for all examples scores, and which, by the names of `score`; a correlation with a
  constant is none, 0."""
  found = [one for some in examples.held_out.values() for one in constant.constant(examples.task, some)]
  said = constant.SAID[examples.task.kind]
  return {name: (0.0 if math.isnan(value) else value, said) for name, value in score(examples, found).items()}


def badness(main_score: str, values: dict[str, float]) -> float:
  """Returns minus the main score; of one that is no number (a correlation with a constant), more than any other."""
  value = values[main_score]
  return math.inf if math.isnan(value) else -value


def facts(
  config: ConfigDict,
  checkpoint: Pretrained,
  examples: Examples,
  model: ModelConfig,
  head: HeadConfig,
  train: TaskSource,
  held_out: TaskSource,
  steps: int,
) -> dict:
  """Returns what the checkpoint and the task's files decided, by config field; with these, config.json says what the
  workdir's weights are of."""
  digest = hashlib.sha256()
  for source in (train, held_out):
    for values in (source.features.tokens, source.features.starts, source.features.labels, source.features.targets):
      digest.update(b"" if values is None else np.ascontiguousarray(values).tobytes())
    digest.update(b"" if source.features.answers is None else source.features.answers.tobytes())
  epoch = -(-train.num_units // config.batch_size)
  return {
    "family": "xlnet" if isinstance(model, XLNetConfig) else "encoder",
    "steps": steps,
    "eval_every": config.eval_every or epoch,
    "checkpoint_every": config.checkpoint_every or epoch,
    "data.tokenizer": checkpoint.tokenizer.fingerprint,
    "data.fingerprint": digest.hexdigest(),
    "data.labels": tuple(examples.task.labels),
    "model": dataclasses.asdict(model),
    "head": dataclasses.asdict(head),
  }
