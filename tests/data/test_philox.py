"""Random numbers by counter: the published values, and independence of how they are asked for."""

import numpy as np
import pytest

from data import philox
from data.philox import Key, draw

PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)


@pytest.mark.parametrize(
  ("counter", "key", "expected"),
  [  # kat_vectors of the authors' Random123, philox4x32 with 10 rounds
    ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (PI, (0xA4093822, 0x299F31D0), (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
  ],
)
def test_published_values(counter, key, expected):
  words = philox.philox(tuple(np.array([word], np.uint64) for word in counter), key)
  assert tuple(int(word[0]) for word in words) == expected


def test_a_draw_depends_on_its_own_place_alone():
  key = Key(1, 2, 3)
  together = draw(key, np.arange(50)[:, None] + (1 << 40), np.arange(4))
  assert together.shape == (50, 4)
  assert together.dtype == np.uint64
  assert together[17, 2] == draw(key, (1 << 40) + 17, 2)
  assert np.unique(together).size == 200


@pytest.mark.parametrize("other", [Key(0, 2, 3), Key(1, 3, 3), Key(1, 2, 0), Key(2, 1, 3), Key(1 + (1 << 31), 2, 3)])
def test_keys_name_independent_streams(other):
  rows = np.arange(10_000)
  ours, theirs = draw(Key(1, 2, 3), rows, 0), draw(other, rows, 0)
  agreeing = np.bitwise_count(~(ours ^ theirs)).sum() / (64 * rows.size)
  assert abs(agreeing - 0.5) < 4 * 0.5 / np.sqrt(64 * rows.size)


def test_neighbouring_rows_and_words_are_uniform():
  values = philox.uniform(draw(Key(5, 0, 0), np.arange(20_000), np.arange(2)[:, None]))
  assert values.min() >= 0
  assert values.max() < 1
  counts = np.histogram2d(*values, bins=10, range=[(0, 1), (0, 1)])[0]
  chi_square = ((counts - 200) ** 2 / 200).sum()  # 99 degrees of freedom: 99 ± 14
  assert 99 - 4 * 14 < chi_square < 99 + 4 * 14
