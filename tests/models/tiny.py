"""A model small enough to think about, and rows for it."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from models.config import EncoderConfig
from models.pretraining import PretrainingModel

LENGTH, TARGETS = 12, 3
CONFIG = EncoderConfig(
  vocab_size=50, hidden_size=16, num_layers=3, num_heads=4, intermediate_size=24, max_length=16, initializer_range=0.2
)


def config(**fields) -> EncoderConfig:
  return dataclasses.replace(CONFIG, **fields)


@functools.cache
def params(config: EncoderConfig = CONFIG):
  """Parameters with no zeros and no ones: biases and norms, too, are drawn at random."""
  row = jax.ShapeDtypeStruct((1, 1), jnp.int32)
  shapes = jax.eval_shape(PretrainingModel(config).init, jax.random.key(0), row, row, row, row)["params"]
  rng = np.random.default_rng(0)
  return jax.tree.map(lambda x: jnp.asarray(rng.normal(0.1, 0.3, x.shape), jnp.float32), shapes)


def rows(lengths=(12, 7), seed=0, length=LENGTH):
  """(tokens, segment_ids, sequence_ids): one sequence a row, padded; two segments; ids from 1 up."""
  rng = np.random.default_rng(seed)
  shape = (len(lengths), length)
  index = np.broadcast_to(np.arange(length), shape)
  real = index < np.array(lengths)[:, None]
  tokens = np.where(real, rng.integers(1, CONFIG.vocab_size, shape), 0)
  segment_ids = np.where(real & (index >= np.array(lengths)[:, None] // 2), 1, 0)
  return tuple(jnp.asarray(x, jnp.int32) for x in (tokens, segment_ids, real))


def targets(batch=2):
  return jnp.tile(jnp.asarray([[1, 2, 5]], jnp.int32), (batch, 1))
