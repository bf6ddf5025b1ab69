"""The parameters that a configuration makes, whichever family it is of."""

import models.pretraining
import models.xlnet
from models.head_config import HeadConfig
from models.primitives import ModelConfig
from models.tasks import parameter_shapes as task_shapes
from models.xlnet_config import XLNetConfig


def parameter_shapes(
  config: ModelConfig, head: HeadConfig | None = None, pair: bool = False
) -> dict[str, tuple[int, ...]]:
  """The shape of every parameter of the family's model for pretraining, and of a fine-tuned head's besides, by path.

  `pair`: with the pair head that an XLNet may have; every encoder has one.
  """
  is_xlnet = isinstance(config, XLNetConfig)
  shapes = models.xlnet.parameter_shapes(config, pair) if is_xlnet else models.pretraining.parameter_shapes(config)
  return shapes | (task_shapes(config, head) if head else {})


__all__ = ["parameter_shapes", "task_shapes"]
