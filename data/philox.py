"""Random numbers as a pure function of where they are used, for many rows at once.

Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3) turns a counter into
random bits. The counter here is (row, word, purpose), so no generator has a state, any row can be drawn without those
before it, and the number of rows drawn together changes nothing.
"""

from typing import NamedTuple

import numpy as np

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10


class Key(NamedTuple):
  """Names an independent stream of rows; each field fits 32 bits."""

  seed: int
  stage: int
  purpose: int


def draw(key: Key, row: np.ndarray, word: np.ndarray | int) -> np.ndarray:
  """uint64 of the broadcast shape of `row` and `word`: 64 random bits for each pair of them, both at least 0."""
  row, word = np.broadcast_arrays(np.asarray(row, np.uint64), np.asarray(word, np.uint64))
  words = philox((row & _LOW, row >> _HALF, word, np.full_like(row, key.purpose)), (key.seed, key.stage))
  return words[0] | words[1] << _HALF


def uniform(bits: np.ndarray) -> np.ndarray:
  """float64 in [0, 1): the upper 53 of 64 random bits."""
  return (bits >> np.uint64(11)) * 2.0**-53


def philox(counter: tuple[np.ndarray, ...], key: tuple[int, int]) -> tuple[np.ndarray, ...]:
  """Philox4x32-10: four words from four words and a key of two; words of 32 bits, kept in uint64 arrays."""
  c0, c1, c2, c3 = counter
  for number in range(_ROUNDS):
    k0, k1 = (np.uint64((k + number * step) & 0xFFFFFFFF) for k, step in zip(key, _WEYL, strict=True))
    p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
    c0, c1, c2, c3 = p1 >> _HALF ^ c1 ^ k0, p1 & _LOW, p0 >> _HALF ^ c3 ^ k1, p0 & _LOW
  return c0, c1, c2, c3
