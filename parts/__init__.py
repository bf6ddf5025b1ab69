"""From a config's sections to the parts of a run: data, model and objective, joined. Only train.py imports this."""

from ml_collections import ConfigDict

from parts import finetuning, pretraining
from parts.parts import Parts

FAMILIES = dict.fromkeys(pretraining.FAMILIES, pretraining.build) | {"task": finetuning.build}


def build(config: ConfigDict) -> Parts:
  """Returns the parts of a run of `config`.

  Raises:
    ValueError, FileNotFoundError: fields that contradict each other or the data.
  """
  if config.family not in FAMILIES:
    raise ValueError(f"config.family={config.family!r} is unknown; use one of {', '.join(FAMILIES)}")
  return FAMILIES[config.family](config)


__all__ = ["Parts", "build"]
