"""XLNet's shape and arithmetic as one frozen dataclass, and the published sizes."""

import dataclasses

from models.config import check_fields, padded_slots


@dataclasses.dataclass(frozen=True)
class XLNetConfig:
  """What determines XLNet's parameters and its forward pass.

  The first group fixes the parameters, the second the arithmetic, and the third only how the same arithmetic is run.

  Raises:
    ValueError: a size is not positive, a name is not among its choices, or the heads do not divide the width.
  """

  vocab_size: int
  hidden_size: int
  num_layers: int
  num_heads: int
  intermediate_size: int
  head_size: int = 0  # width of a head; 0 = hidden_size / num_heads
  untie_biases: bool = True  # every layer has attention biases of its own (the original's untie_r), or all share them
  vocab_multiple: int = 1  # the word table's rows are rounded up to a multiple of this; added rows' logits are masked
  initializer_range: float = 0.02

  mem_len: int = 0  # positions of each layer's input that are kept for the next segment
  clamp_length: int = 0  # distances are cut to ± this; 0 = they are not
  activation: str = "gelu_new"  # gelu = erf; gelu_new = the tanh form of the original code
  hidden_dropout: float = 0.1
  attention_dropout: float = 0.1
  ffn_dropout: float = 0.1  # behind the feed-forward layer's activation
  layer_norm_eps: float = 1e-12

  dtype: str = "float32"  # of activations, memory and products; parameters, softmax and statistics are float32 always
  unroll: int = 1  # layers per iteration of the scan; 0 = all of them
  remat: str = "none"  # what the backward pass computes again: none, full (each layer), dots (all but matrix products)

  def __post_init__(self):
    check_fields(self)
    for name in ("head_size", "mem_len", "clamp_length"):
      if getattr(self, name) < 0:
        raise ValueError(f"model.{name} must be at least 0, not {getattr(self, name)}")
    if not self.head_size and self.hidden_size % self.num_heads:
      raise ValueError(
        f"model.num_heads={self.num_heads} does not divide model.hidden_size={self.hidden_size}; set model.head_size"
      )
    if self.hidden_size % 2:
      raise ValueError(f"model.hidden_size={self.hidden_size} must be even: half are sines, half cosines of distances")

  @property
  def head_width(self) -> int:
    return self.head_size or self.hidden_size // self.num_heads

  @property
  def vocab_slots(self) -> int:
    """Rows of the word table: vocab_size rounded up to a multiple of vocab_multiple."""
    return padded_slots(self)


# The published sizes, as keyword arguments of XLNetConfig (Yang et al. 2019, appendix A; xlnet_config.json).
XLNET_SIZES: dict[str, dict[str, int]] = {
  "base": {"num_layers": 12, "hidden_size": 768, "num_heads": 12, "intermediate_size": 3072},
  "large": {"num_layers": 24, "hidden_size": 1024, "num_heads": 16, "intermediate_size": 4096},
}
