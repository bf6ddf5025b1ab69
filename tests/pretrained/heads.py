"""Small models of every family with every head, for the tests that write and read them."""

import pathlib
import zlib

import flax.traverse_util
import numpy as np

from models.head_config import HEAD_KINDS, HeadConfig
from models.tasks import parameter_shapes
from pretrained.load import Pretrained, load

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"
# All that Hugging Face has a class for.
EXPORTED = [
  (family, kind) for family in ("bert", "albert", "xlnet") for kind in HEAD_KINDS
  if kind != "conditional_span" or family == "xlnet"
]  # fmt: skip


def head(kind: str, **fields) -> HeadConfig:
  return HeadConfig(kind, () if HEAD_KINDS[kind].outputs else ("no", "maybe", "yes"), **{"dropout": 0.2, **fields})


def model(family: str, kind: str, **fields) -> Pretrained:
  """The fixture's body, its pooler where the head needs one, and random values for the head."""
  body, one = load(FIXTURES / family), head(kind, **fields)
  shapes = parameter_shapes(body.config, one)
  given = flax.traverse_util.flatten_dict(body.params, sep="/")
  rng = np.random.default_rng(zlib.crc32(kind.encode()))
  params = {
    name: given[name] if name in given else rng.normal(0.0, 0.5, shape).astype(np.float32)
    for name, shape in shapes.items()
  }
  missing = tuple(name for name in ("pooler", "mlm_head", "pair_head", "lm_head") if name in body.params)
  params = flax.traverse_util.unflatten_dict(params, sep="/")
  return Pretrained(
    body.config, params, body.tokenizer, tuple(name for name in missing if name not in params), head=one
  )
