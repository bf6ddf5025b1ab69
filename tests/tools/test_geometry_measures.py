"""The numbers of tools.geometry, against arithmetic by hand and sums over every pair."""

import itertools

import numpy as np
import pytest

from tools import geometry_measures as measures
from tools.geometry_measures import UnitSums


def filled(lines, keys) -> UnitSums:
  """Sums of lines of vectors [vectors, layers, width], each under its key."""
  sums = UnitSums.zeros(max(keys) + 1, *lines[0].shape[1:])
  for line, key in zip(lines, keys, strict=True):
    sums.add(key, measures.units(line))
  return sums


def every_pair(lines) -> np.ndarray:
  """float64 [pairs, layers]: the cosines of all pairs in different lines, one by one."""
  return np.array(
    [
      (x * y).sum(-1) / np.linalg.norm(x, axis=-1) / np.linalg.norm(y, axis=-1)
      for one, other in itertools.combinations(lines, 2)
      for x in one
      for y in other
    ]
  )


@pytest.mark.parametrize(("offset", "expected"), [(0, 0), (0.5, 0.2), (1, 0.5), (3, 0.9)])
def test_gaussians_around_a_constant(offset, expected):
  """x + c with x standard normal: the cosine of two is c²d / (d + c²d) in many dimensions."""
  lines = offset + np.random.default_rng(0).standard_normal((60, 3, 1, 2000))
  found = measures.mean_cosine(filled(lines, range(60)))
  assert found.pairs == 60 * 59 // 2 * 9
  assert found.mean[0] == pytest.approx(expected, abs=0.003)
  assert abs(found.mean[0] - expected) < 4 * found.error[0]


def test_a_mean_is_over_every_pair_of_different_lines():
  rng = np.random.default_rng(1)
  lines = [0.3 + rng.standard_normal((n, 2, 5)) for n in (1, 4, 0, 2, 3, 5)]
  keys = [0, 0, 1, 1, 2, 2]
  found, cosines = measures.mean_cosine(filled(lines, keys)), every_pair(lines)
  assert found.pairs == len(cosines)
  np.testing.assert_allclose(found.mean, cosines.mean(axis=0))
  # The jackknife leaves one group out at a time.
  without = np.array(
    [every_pair([x for x, key in zip(lines, keys, strict=True) if key != left]).mean(axis=0) for left in range(3)]
  )
  np.testing.assert_allclose(found.error, np.sqrt(2 / 3 * np.square(without - without.mean(axis=0)).sum(axis=0)))


def test_the_error_is_that_of_repeated_draws():
  """Lines whose vectors are alike within the line, as words of a sentence are: as if independent, it would be less."""
  means, errors = [], []
  for seed in range(40):
    rng = np.random.default_rng(seed)
    lines = 0.5 + rng.standard_normal((50, 1, 1, 20)) + 0.3 * rng.standard_normal((50, 8, 1, 20))
    found = measures.mean_cosine(filled(lines, range(50)))
    means.append(found.mean[0])
    errors.append(found.error[0])
  assert 0.7 < np.mean(errors) / np.std(means, ddof=1) < 1.4


def test_means_by_key_and_where_there_is_no_pair():
  x, y = np.eye(2)[:, None, None]  # two lines of a vector each
  lines = [x, y, x + y, x, np.concatenate([x, y])]
  found = measures.mean_by_key(filled(lines, [0, 0, 0, 1, 2]))
  np.testing.assert_allclose(found[:, 0], [(0 + 2 / 2**0.5) / 3, np.nan, np.nan])
  one = measures.mean_cosine(filled([x], [0]))
  assert one.pairs == 0
  assert np.isnan(one.mean).all()


def test_a_vector_of_zeros_is_like_no_other():
  np.testing.assert_array_equal(measures.units([[0, 0], [3, 4]]), [[0, 0], [0.6, 0.8]])


def test_frequent_pieces():
  lines = [np.array(line) for line in ([3, 3, 7], [3, 9], [7, 3], [9, 8])]
  assert measures.frequent_pieces(lines, 2, 9, 0).tolist() == [3, 7, 9]  # 3 twice in a line is once
  assert measures.frequent_pieces(lines, 3, 9, 0).tolist() == [3]
  drawn = {tuple(measures.frequent_pieces(lines, 2, 2, seed).tolist()) for seed in range(20)}
  assert drawn == {(3, 7), (3, 9), (7, 9)}


def test_equal_cosines_say_nothing():
  """[CLS] before the first layer is one vector; what differs is the last bit."""
  gold = np.array([1.0, 2.0, 4.0])
  same = 1 - np.array([0, 1e-13, 3e-13])
  assert measures.correlations(same, gold) == {"pearson": None, "spearman": None}
  found = measures.correlations(np.array([0.1, 0.2, 0.6]), gold)
  assert found["spearman"] == pytest.approx(1)
  assert found["pearson"] == pytest.approx(np.corrcoef([0.1, 0.2, 0.6], gold)[0, 1])


def test_jaccard():
  assert measures.jaccard(np.array([1, 2, 2, 3]), np.array([3, 2, 4])) == 2 / 4
  assert measures.jaccard(np.array([1]), np.array([2, 3])) == 0
  assert measures.jaccard(np.array([5, 5]), np.array([5])) == 1


def test_quartiles():
  assert measures.quartiles(np.arange(8)[::-1] / 10).tolist() == [3, 3, 2, 2, 1, 1, 0, 0]
  # Half of the pairs share nothing: they are the first quartile, and nothing is the second.
  assert measures.quartiles(np.array([0, 0, 0, 0, 0.1, 0.2, 0.3, 0.4])).tolist() == [0, 0, 0, 0, 2, 2, 3, 3]


def test_area():
  true = np.array([True, True, False, False])
  assert measures.area(np.array([3, 4, 1, 2]), true) == 1
  assert measures.area(np.array([1, 4, 2, 3]), true) == 0.5
  assert measures.area(np.array([2, 2, 2, 1]), true) == 0.75  # a pair of equals is half right
  assert np.isnan(measures.area(np.array([1, 2]), np.array([True, True])))


def test_by_overlap():
  overlaps = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
  labels = np.array([1, 1, 0, 1, 0, 1, 0, 0])
  odds = np.array([-1, 2, -1, -2, 1, -1, 3, 0.0])  # a tie is called true, as argmax does
  found = measures.by_overlap(overlaps, labels, odds)
  assert found["accuracy"] == [6 / 8, (6 / 8 * 2 / 8 / 8) ** 0.5]
  assert found["true_pairs"][0] == 3 / 4
  assert found["false_pairs"][0] == 3 / 4
  first, second, third, fourth = found["quartiles"]
  assert first["overlap"] == [0, 0.1]
  assert (first["true"], first["true_pairs"]) == ([0, 0], None)
  assert (first["all"][0], first["false_pairs"][0]) == (0.5, 0.5)
  assert (second["all"][0], second["true_pairs"][0], second["false_pairs"][0]) == (0.5, 0, 1)
  assert third["all"][0] == fourth["all"][0] == 1
  assert fourth["false_pairs"] is None
  assert found["area_of_overlap"] == 13 / 16
  assert found["area_of_model"] == 12 / 16


def test_no_pairs_in_a_quartile():
  found = measures.by_overlap(np.array([0, 0, 0, 1.0]), np.array([0, 1, 0, 1]), np.ones(4))
  assert [one["pairs"] for one in found["quartiles"]] == [3, 0, 0, 1]
  assert found["quartiles"][1]["overlap"] is None
  assert found["spearman"] is None
