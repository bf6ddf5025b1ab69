"""From a config's sections to the parts of a run: data, model and objective, joined. Only train.py imports this."""

from parts.parts import Parts
from parts.pretraining import build

__all__ = ["Parts", "build"]
