"""The parameters that a configuration makes, whichever family it is of."""

import models.pretraining
import models.xlnet
from models.primitives import ModelConfig
from models.xlnet_config import XLNetConfig


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
  """The shape of every parameter of the family's model for pretraining, by path."""
  family = models.xlnet if isinstance(config, XLNetConfig) else models.pretraining
  return family.parameter_shapes(config)
