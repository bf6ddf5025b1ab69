"""The encoder's shape and arithmetic as one frozen dataclass, and the published sizes of BERT."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
  """What determines an encoder's parameters and its forward pass.

  The first group fixes the parameters, the second the arithmetic, and the third only how the same arithmetic is run:
  fields of the third group may differ between two runs that share a checkpoint.

  Raises:
    ValueError: a size is not positive, a name is not among its choices, or the heads do not divide the width.
  """

  vocab_size: int
  hidden_size: int
  num_layers: int
  num_heads: int
  intermediate_size: int
  embedding_size: int = 0  # width of the embeddings; 0 = hidden_size, as in BERT
  max_length: int = 512  # rows of the position table
  type_vocab_size: int = 2
  vocab_multiple: int = (
    1  # the word table's rows are rounded up to a multiple of this; logits of the added rows are masked
  )
  initializer_range: float = 0.02
  sharing: str = "none"  # what layers share: none (BERT), all (ALBERT), attention, ffn
  num_groups: int = 1  # of layers that share; layer i of L uses group i·num_groups // L
  inner_groups: int = 1  # blocks of attention and feed-forward in a layer, each with parameters of its own
  causal: bool = False  # a token sees itself and those before it, as in a left-to-right model; False: all

  activation: str = "gelu"  # gelu = erf; gelu_new = the tanh form of the original code
  hidden_dropout: float = 0.1
  attention_dropout: float = 0.1
  layer_norm_eps: float = 1e-12

  dtype: str = "float32"  # of activations and matrix products; parameters, softmax and statistics are float32 always
  unroll: int = 1  # layers per iteration of the scan; 0 = all of them
  attention: str = "auto"  # explicit, splash (TPU v4 and later), cudnn (GPU), or the one that fits; models/fused.py
  remat: str = "none"  # what the backward pass computes again: none, full (each layer), dots (all but matrix products)

  def __post_init__(self):
    check_fields(self, "max_length", "type_vocab_size", "num_groups", "inner_groups")
    if self.num_layers % self.num_groups:
      raise ValueError(f"model.num_groups={self.num_groups} does not divide model.num_layers={self.num_layers}")
    if self.num_groups > 1 and self.sharing == "none":
      raise ValueError(f"model.num_groups={self.num_groups} says nothing while model.sharing='none'; set sharing, or 1")
    if self.embedding_size < 0:
      raise ValueError(
        f"model.embedding_size must be at least 1, or 0 for model.hidden_size, not {self.embedding_size}"
      )
    if self.embedding_size > self.hidden_size:
      raise ValueError(
        f"model.embedding_size={self.embedding_size} is larger than model.hidden_size={self.hidden_size}; "
        "the factorisation is meant to make it smaller (0 = the same)"
      )
    if self.hidden_size % self.num_heads:
      raise ValueError(f"model.num_heads={self.num_heads} does not divide model.hidden_size={self.hidden_size}")
    if self.sharing not in _SHARED:
      raise ValueError(f"model.sharing={self.sharing!r} is not one of {', '.join(_SHARED)}")

  @property
  def embedding_width(self) -> int:
    return self.embedding_size or self.hidden_size

  def is_shared(self, part: str) -> bool:
    """Whether the layers of a group share `part`, one of PARTS."""
    return _SHARED[self.sharing] is not None and part.startswith(_SHARED[self.sharing])

  @property
  def loop_groups(self) -> int:
    """Groups of layers that share something."""
    return 1 if self.sharing == "none" else self.num_groups

  def copies(self, part: str) -> int:
    """How many copies of `part` are stored, one after another: for each group or layer its blocks."""
    return (self.num_groups if self.is_shared(part) else self.num_layers) * self.inner_groups

  @property
  def vocab_slots(self) -> int:
    """Rows of the word table: vocab_size rounded up to a multiple of vocab_multiple."""
    return padded_slots(self)


# A layer's parts; each norm follows its sublayer.
PARTS = ("attention", "attention_norm", "ffn", "ffn_norm")
# What `sharing` shares: parts whose name starts so.
_SHARED = {"none": None, "all": "", "attention": "attention", "ffn": "ffn"}

_CHOICES = {
  "activation": ("gelu", "gelu_new", "relu"),
  "dtype": ("float32", "bfloat16"),
  "attention": ("auto", "explicit", "splash", "cudnn"),
  "remat": ("none", "full", "dots"),
}


def check_fields(config, *sizes: str) -> None:
  """Checks the fields that every model's configuration has, and that `sizes` are at least 1.

  Raises:
    ValueError: names the field.
  """
  for name in ("vocab_size", "hidden_size", "num_layers", "num_heads", "intermediate_size", "vocab_multiple", *sizes):
    if getattr(config, name) < 1:
      raise ValueError(f"model.{name} must be at least 1, not {getattr(config, name)}")
  for name in ("initializer_range", "layer_norm_eps"):
    if not getattr(config, name) > 0:
      raise ValueError(f"model.{name} must be above 0, not {getattr(config, name)}")
  for name, choices in _CHOICES.items():
    if getattr(config, name, choices[0]) not in choices:
      raise ValueError(f"model.{name}={getattr(config, name)!r} is not one of {', '.join(choices)}")
  for field in dataclasses.fields(config):
    if field.name.endswith("_dropout") and not 0 <= getattr(config, field.name) < 1:
      raise ValueError(f"model.{field.name} must lie in [0, 1), not {getattr(config, field.name)}")
  if not 0 <= config.unroll <= config.num_layers:
    raise ValueError(f"model.unroll={config.unroll} must lie in 0 (all) to model.num_layers={config.num_layers}")


def padded_slots(config) -> int:
  """vocab_size rounded up to a multiple of vocab_multiple."""
  return -(-config.vocab_size // config.vocab_multiple) * config.vocab_multiple


def _size(num_layers: int, hidden_size: int) -> dict[str, int]:
  """Heads of width 64 and a feed-forward layer of four times the width, as in every published BERT."""
  return {
    "num_layers": num_layers,
    "hidden_size": hidden_size,
    "num_heads": hidden_size // 64,
    "intermediate_size": 4 * hidden_size,
  }


# The published sizes, as keyword arguments of EncoderConfig: the paper's two, and "LAYERS/WIDTH" for the 24 small
# models of Turc et al. (2019, arXiv:1908.08962), four of which have names.
BERT_SIZES: dict[str, dict[str, int]] = {
  f"{layers}/{width}": _size(layers, width) for layers in (2, 4, 6, 8, 10, 12) for width in (128, 256, 512, 768)
} | {
  "tiny": _size(2, 128),
  "mini": _size(4, 256),
  "small": _size(4, 512),
  "medium": _size(8, 512),
  "base": _size(12, 768),
  "large": _size(24, 1024),
}

# The published sizes of ALBERT (Lan et al. 2020, table 1), all parameters shared; xlarge has 16 heads of width 128.
ALBERT_SIZES: dict[str, dict] = {
  name: {"embedding_size": 128, "sharing": "all", "num_layers": layers, "hidden_size": width, "num_heads": heads}
  | {"intermediate_size": 4 * width}
  for name, layers, width, heads in (
    ("base", 12, 768, 12),
    ("large", 24, 1024, 16),
    ("xlarge", 24, 2048, 16),
    ("xxlarge", 12, 4096, 64),
  )
}
