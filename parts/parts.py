"""What a run is made of."""

import dataclasses
from collections.abc import Callable, Iterator

from objectives.objective import Batch, Objective, Params
from training.stages import Stage


@dataclasses.dataclass(frozen=True)
class Parts:
  """What a config names: the objective, and where its batches come from.

  Attributes:
    objective: what is predicted, by which model.
    train_batches: (stage, first step) → this process's rows of the batches of the stage's remaining steps.
    eval_batches: stage → this process's rows of the held-out batches, the same ones every time.
    flops: stage → matrix-product FLOPs of one training step by the model's own count.
    initial: fresh parameters → those to start from (a checkpoint's, where the config names one).
    facts: what the data decided, by config field: a resumed run must find the same.
    save_assets: writes to a workdir what its weights need to be used (the tokenizer).
  """

  objective: Objective
  train_batches: Callable[[Stage, int], Iterator[Batch]]
  eval_batches: Callable[[Stage], Iterator[Batch]]
  flops: Callable[[Stage], float]
  initial: Callable[[Params], Params]
  facts: dict
  save_assets: Callable[[str], None]
