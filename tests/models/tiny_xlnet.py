"""An XLNet small enough to think about, and rows for it."""

import dataclasses
import functools

import flax.traverse_util
import jax.numpy as jnp
import numpy as np

from models.xlnet import parameter_shapes
from models.xlnet_config import XLNetConfig

ROWS, LENGTH, TARGETS, REMEMBERED = 2, 10, 3, 6
CONFIG = XLNetConfig(
  vocab_size=50, hidden_size=16, num_layers=3, num_heads=4, intermediate_size=24, initializer_range=0.2
)


def config(**fields) -> XLNetConfig:
  return dataclasses.replace(CONFIG, **fields)


@functools.cache
def params(config: XLNetConfig = CONFIG, pair: bool = False) -> dict:
  """Parameters of PermutationLM with no zeros and no ones: biases and norms, too, are drawn at random."""
  rng = np.random.default_rng(0)
  flat = {n: jnp.asarray(rng.normal(0.1, 0.3, s), jnp.float32) for n, s in parameter_shapes(config, pair).items()}
  return flax.traverse_util.unflatten_dict(flat, sep="/")


def rows(seed: int = 0, length: int = LENGTH):
  """(tokens, segment_ids): segment 0, then 1."""
  tokens = np.random.default_rng(seed).integers(1, CONFIG.vocab_size, (ROWS, length))
  segment_ids = np.broadcast_to(np.arange(length) >= length // 2, tokens.shape)
  return jnp.asarray(tokens, jnp.int32), jnp.asarray(segment_ids, jnp.int32)


def options(seed: int = 0, memory: bool = True) -> dict:
  """What pretraining gives besides: random masks and targets, memory, one row backwards, dropout off."""
  rng = np.random.default_rng(seed)
  positions = np.stack([rng.permutation(LENGTH)[:TARGETS] for _ in range(ROWS)])
  seen = rng.random((ROWS, LENGTH, LENGTH)) < 0.7
  result = {
    "visible": jnp.asarray(seen),
    "target_positions": jnp.asarray(positions, jnp.int32),
    "target_visible": jnp.asarray(rng.random((ROWS, TARGETS, LENGTH)) < 0.7),
    "backward": jnp.asarray([False, True]),
  }
  if memory:
    states = rng.normal(size=(ROWS, CONFIG.num_layers, REMEMBERED, CONFIG.hidden_size))
    result["memory"] = jnp.asarray(states, jnp.float32)
    result["memory_visible"] = jnp.asarray(rng.random((ROWS, LENGTH, REMEMBERED)) < 0.8)
  return result
