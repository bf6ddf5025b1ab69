"""A run as stages: steps of one length and batch size each, under one schedule and one optimizer state (BERT's 128,
then 512)."""

import dataclasses
from collections.abc import Mapping, Sequence

from ml_collections import ConfigDict


@dataclasses.dataclass(frozen=True)
class Stage:
  """Steps start..stop-1 of the run, each on `batch_size` rows of `length` tokens."""

  index: int
  start: int
  stop: int
  length: int
  batch_size: int


def make_stages(
  steps: int, length: int, batch_size: int, declared: Sequence[Mapping[str, int] | ConfigDict] = ()
) -> list[Stage]:
  """Returns the stages of a run of `steps` steps.

  Stages follow one another and the last one lasts until the run ends, so a longer or shorter run never moves an
  earlier boundary; a stage that would begin after the end is left out.

  Args:
    steps: steps of the whole run.
    length, batch_size: what a stage uses where it says nothing else; the only stage if none is declared.
    declared: mappings with "steps" and optionally "length" and "batch_size".

  Raises:
    ValueError: a number below 1, or an unknown key.
  """
  if steps < 1:
    raise ValueError(f"steps={steps} must be at least 1")
  defaults = {"steps": steps, "length": length, "batch_size": batch_size}
  stages, start = [], 0
  for index, stage in enumerate(declared or [defaults]):
    if not isinstance(stage, Mapping | ConfigDict):
      raise ValueError(f"stages[{index}]={stage!r} must say its steps: {{'steps': 1000, 'length': 128}}")
    unknown = set(stage) - set(defaults)
    if unknown or "steps" not in stage:
      raise ValueError(f"stages[{index}] must have steps, and may have length and batch_size, not {sorted(stage)}")
    values = defaults | dict(stage)
    for name, value in values.items():
      if value < 1:
        raise ValueError(f"stages[{index}].{name}={value} must be at least 1")
    stages.append(Stage(index, start, start + values["steps"], values["length"], values["batch_size"]))
    start = stages[-1].stop
  stages = [stage for stage in stages if stage.start < steps]
  stages[-1] = dataclasses.replace(stages[-1], stop=steps)
  return [dataclasses.replace(stage, stop=min(stage.stop, steps)) for stage in stages]
