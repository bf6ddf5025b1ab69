"""A tiny XLNet, and rows for it: [reuse | A <sep> B <sep> <cls>], half of them read backward."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from models.xlnet import PermutationLM
from models.xlnet_config import XLNetConfig
from objectives.plm import PLMConfig
from objectives.vocabulary import Vocabulary

UNK, CLS, SEP = range(3)
SIZE, LENGTH, REUSE, MEMORY = 20, 16, 8, 8
IDS = np.arange(SIZE)
VOCABULARY = Vocabulary(0, IDS < 3, IDS % 3 < 2, np.ones(SIZE, int), IDS, np.isin(IDS, [SEP, CLS]))


def config(**fields) -> PLMConfig:
  return PLMConfig(**{"num_predict": 7, "reuse_len": REUSE, "perm_size": REUSE, "alpha": 1} | fields)


def model(**fields) -> PermutationLM:
  small = {"hidden_size": 16, "num_layers": 3, "num_heads": 2, "intermediate_size": 32, "mem_len": MEMORY}
  return PermutationLM(XLNetConfig(**{"vocab_size": SIZE} | small | {"initializer_range": 0.3} | fields))


@functools.cache
def params(model: PermutationLM):
  """Parameters with no zeros and no ones, large enough that attention is far from even."""
  row = jax.ShapeDtypeStruct((1, 1), jnp.int32)
  init = lambda row: model.init(jax.random.key(0), row, row, target_positions=row)["params"]
  rng = np.random.default_rng(0)
  return jax.tree.map(lambda x: rng.normal(0.1, 0.4, x.shape).astype(np.float32), jax.eval_shape(init, row))


def rows(count: int, seed: int = 0, document: int = 1) -> dict[str, jax.Array]:
  """A batch; the rows are of one document each."""
  rng = np.random.default_rng(seed)
  tokens = rng.integers(3, SIZE, (count, LENGTH))
  tokens[::3, 5] = UNK
  tokens[:, 11] = tokens[:, -2] = SEP
  tokens[:, -1] = CLS
  segment_ids = np.array([0] * 12 + [1] * 3 + [2])
  return {
    "tokens": jnp.asarray(tokens, jnp.int32),
    "segment_ids": jnp.asarray(np.tile(segment_ids, (count, 1)), jnp.int32),
    "sequence_ids": jnp.ones((count, LENGTH), jnp.int32),
    "document_ids": jnp.full((count, LENGTH), document, jnp.int32),
    "backward": jnp.arange(count) % 2 == 1,
    "pair_label": jnp.arange(count, dtype=jnp.int32) % 3 % 2,
    "row": jnp.arange(count, dtype=jnp.int32),
  }


def carry(count: int, mem_len: int = MEMORY, seed: int = 1, document: int = 1, layers: int = 3) -> dict[str, jax.Array]:
  """A memory of noise."""
  memory = np.random.default_rng(seed).standard_normal((count, layers, mem_len, 16))
  return {
    "memory": jnp.asarray(memory, jnp.float32),
    "document_ids": jnp.full((count, mem_len), document, jnp.int32),
  }


def halves(tokens):
  """bool [batch, length, length]: the first half sees itself, the second both."""
  batch, length = tokens.shape
  seen = np.ones((length, length), bool)
  seen[:REUSE, REUSE:] = False
  return jnp.asarray(np.broadcast_to(seen, (batch, length, length)))
