"""What a run is made of."""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from objectives.objective import Batch, Objective, Outputs, Params
from training.programs import Shapes
from training.stages import Stage

LocalRows = Callable[[int], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Plan:
  """What is compiled for a run.

  Attributes:
    objective: what is predicted, by which model.
    stages: the steps of the run.
    shapes: stage → the declared shapes of its global batches, and of the held-out ones; () = the same.
    flops: (rows, length) of a batch → matrix-product FLOPs of a training step on it by the model's own count.
  """

  objective: Objective
  stages: list[Stage]
  shapes: Callable[[Stage], tuple[list[Shapes], list[Shapes]]]
  flops: Callable[[int, int], float]


@dataclasses.dataclass(frozen=True)
class Parts(Plan):
  """What a config names: the plan, and where its batches come from.

  Attributes:
    train_batches: (stage, first step, local) → this process's rows of the batches of the stage's remaining steps;
      `local`: how many rows a global batch has → the numbers of those that this process reads.
    eval_batches: (stage, local) → this process's rows of the held-out batches, the same ones every time.
    initial: fresh parameters → those to start from (a checkpoint's, where the config names one).
    facts: what the data decided, by config field: a resumed run must find the same.
    save_assets: writes to a workdir what its weights need to be used (the tokenizer).
    score: outputs of the held-out batches → the task's scores, by name.
    badness: numbers of an evaluation → what is least in the best checkpoints.
    baselines: what some of these numbers are without a model, and how, by name; besides training.report's.
    attention: length → which attention such rows have, in words; "" where there is one kind alone.
  """

  train_batches: Callable[[Stage, int, LocalRows], Iterator[Batch]]
  eval_batches: Callable[[Stage, LocalRows], Iterator[Batch]]
  initial: Callable[[Params], Params]
  facts: dict
  save_assets: Callable[[str], None]
  score: Callable[[list[Outputs]], dict[str, float]] = lambda outputs: {}
  badness: Callable[[dict[str, float]], float] = lambda values: values["loss"]
  baselines: Callable[[], dict[str, tuple[float, str]]] = dict
  attention: Callable[[int], str] = lambda length: ""
