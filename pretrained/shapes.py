"""The parameters that a configuration makes, whichever family it is of."""

import models.pretraining
import models.xlnet
from models.head_config import HeadConfig
from models.primitives import ModelConfig
from models.tasks import parameter_shapes as task_shapes
from models.xlnet_config import XLNetConfig


def parameter_shapes(config: ModelConfig, head: HeadConfig | None = None) -> dict[str, tuple[int, ...]]:
  """The shape of every parameter of the family's model for pretraining, and of a fine-tuned head's besides, by path."""
  family = models.xlnet if isinstance(config, XLNetConfig) else models.pretraining
  return family.parameter_shapes(config) | (task_shapes(config, head) if head else {})


__all__ = ["parameter_shapes", "task_shapes"]
