"""From a config's sections to the parts of a run: data, model and objective, joined. Only train.py imports this, and
what compiles the same programs."""

from ml_collections import ConfigDict

from parts import finetuning, pretraining
from parts.parts import Parts, Plan

FAMILIES = dict.fromkeys(pretraining.FAMILIES, pretraining.build) | {"task": finetuning.build}


def build(config: ConfigDict) -> Parts:
  """Returns the parts of a run of `config`.

  Raises:
    ValueError, FileNotFoundError: fields that contradict each other or the data.
  """
  if config.family not in FAMILIES:
    raise ValueError(f"config.family={config.family!r} is unknown; use one of {', '.join(FAMILIES)}")
  return FAMILIES[config.family](config)


def plan(config: ConfigDict, row_parts: int | None = None) -> Plan:
  """Returns what is compiled for a run of `config`, of pretraining with no text at hand.

  Args:
    config: the run's.
    row_parts: see `finetuning.build`; a task's batches are filled up to a multiple of it.

  Raises:
    ValueError, FileNotFoundError: as `build`.
  """
  if config.family in pretraining.FAMILIES:
    return pretraining.plan(config)
  return finetuning.build(config, row_parts) if config.family == "task" else build(config)


__all__ = ["Parts", "Plan", "build", "plan"]
