"""GLUE's scores, against arithmetic by hand and slow definitions; live against SciPy and scikit-learn if installed."""

import itertools
import math

import numpy as np
import pytest

import scores
from scores import labels


def test_two_classes_by_hand():
  targets = [1, 1, 0, 0, 0, 1, 1, 0]
  predictions = [1, 1, 1, 0, 0, 0, 1, 0]  # 3 true positives, 1 false one, 1 false negative, 3 true negatives
  found = scores.score(["accuracy", "f1", "matthews"], predictions, targets)
  # (3 · 3 − 1 · 1) / √(4 · 4 · 4 · 4)
  assert found == pytest.approx({"accuracy": 6 / 8, "f1": 2 * 3 / (2 * 3 + 1 + 1), "matthews": 8 / 16})


def test_f1_is_of_class_1():
  assert labels.f1([1, 1, 1, 0], [1, 0, 0, 0]) == {"f1": 0.5}  # precision 1/3, recall 1
  assert labels.f1([0, 0, 0, 1], [0, 1, 1, 1]) == {"f1": 0.5}


def test_matthews_of_three_classes_by_hand():
  # 5 of 6 right; predicted 2, 1, 3 times, true 2, 2, 2 times:
  # (5 · 6 − (2·2 + 1·2 + 3·2)) / √((36 − (4+1+9)) (36 − (4+4+4))) = 18 / √(22 · 24)
  found = labels.matthews([0, 0, 1, 2, 2, 2], [0, 0, 1, 1, 2, 2])
  assert found["matthews"] == pytest.approx(18 / math.sqrt(528))


@pytest.mark.parametrize(("predictions", "targets"), [([1, 1], [0, 1]), ([0, 1], [1, 1]), ([0, 0], [0, 0])])
def test_matthews_of_a_constant_is_zero(predictions, targets):
  assert labels.matthews(predictions, targets) == {"matthews": 0.0}


def test_f1_without_any_1_is_zero():
  assert labels.f1([0, 0], [0, 0]) == {"f1": 0.0}


def test_labels_may_be_names():
  assert labels.accuracy(["yes", "no", "no"], ["yes", "no", "yes"])["accuracy"] == pytest.approx(2 / 3)
  assert labels.matthews(["b", "a"], ["b", "a"])["matthews"] == pytest.approx(1)


def test_pearson_by_hand():
  # Deviations (−3, −1, 1, 3)/2 and (−3, −1, 0, 4): 11 / √(5 · 26)
  assert labels.pearson([1, 2, 3, 4], [2, 4, 5, 9])["pearson"] == pytest.approx(11 / math.sqrt(130))


def test_spearman_with_ties_by_hand():
  # Ranks 1, 2½, 2½, 4 and 1, 3, 2, 4: 4.5 / √(4.5 · 5). The formula for distinct values would give 0.95.
  assert labels.spearman([1, 2, 2, 3], [1, 30, 20, 400])["spearman"] == pytest.approx(4.5 / math.sqrt(22.5))


def test_a_constant_has_no_correlation():
  for score in (labels.pearson, labels.spearman):
    assert all(math.isnan(x) for x in score([0.1, 0.1, 0.1], [1, 2, 3]).values())
    assert all(math.isnan(x) for x in score([1, 2, 3], [0.1, 0.1, 0.1]).values())


def test_tiny_and_huge_numbers_correlate():
  x = np.array([1.0, 2.0, 4.0])
  for factor in (1e-200, 1e200):
    assert labels.pearson(x * factor, x)["pearson"] == pytest.approx(1)


def _slow_rank(values, at):
  below = sum(x < values[at] for x in values)
  return below + (1 + sum(x == values[at] for x in values)) / 2


def _slow_pearson(x, y):
  n = len(x)
  mx, my = math.fsum(x) / n, math.fsum(y) / n
  products = lambda a, ma, b, mb: math.fsum((p - ma) * (q - mb) for p, q in zip(a, b, strict=True))
  return products(x, mx, y, my) / math.sqrt(products(x, mx, x, mx) * products(y, my, y, my))


def test_correlations_equal_their_definitions():
  rng = np.random.default_rng(0)
  for _ in range(50):
    x, y = rng.integers(0, 6, (2, 12)).astype(float).tolist()  # many ties
    if len(set(x)) == 1 or len(set(y)) == 1:
      continue
    assert labels.pearson(x, y)["pearson"] == pytest.approx(_slow_pearson(x, y), abs=1e-12)
    ranks = [[_slow_rank(z, at) for at in range(len(z))] for z in (x, y)]
    assert labels.spearman(x, y)["spearman"] == pytest.approx(_slow_pearson(*ranks), abs=1e-12)


def test_matthews_is_the_correlation_of_two_classes():
  for bits in itertools.product([0, 1], repeat=8):
    p, t = bits[:4], bits[4:]
    if len(set(p)) == len(set(t)) == 2:
      assert labels.matthews(p, t)["matthews"] == pytest.approx(_slow_pearson(p, t), abs=1e-12)


def test_groups():
  # RACE: 1 of 2 of middle school, 1 of 3 of high school.
  found = scores.score(["accuracy"], [0, 1, 2, 3, 0], [0, 2, 2, 0, 1], ["middle", "middle", "high", "high", "high"])
  assert found == pytest.approx({"accuracy": 2 / 5, "accuracy_middle": 1 / 2, "accuracy_high": 1 / 3})


@pytest.mark.parametrize(
  ("score", "predictions", "targets", "said"),
  [
    (labels.accuracy, [1], [1, 0], r"\(1,\) and targets \(2,\)"),
    (labels.accuracy, [[0.2, 0.8]], [[0, 1]], "not two rows"),
    (labels.accuracy, [], [], "nothing to score"),
    (labels.accuracy, ["1"], [1], "names on one side"),
    (labels.f1, [0, 2], [0, 1], "predictions hold 2"),
    (labels.pearson, [1.0, float("nan")], [1, 2], "prediction 2 of 2 is not a finite number"),
    (labels.spearman, [1.0, 2.0], [1, float("inf")], "target 2 of 2"),
  ],
)
def test_what_cannot_be_scored(score, predictions, targets, said):
  with pytest.raises(ValueError, match=said):
    score(predictions, targets)


def test_groups_are_counted():
  with pytest.raises(ValueError, match="1 groups for 2 examples"):
    scores.score(["accuracy"], [0, 1], [0, 1], ["high"])


@pytest.mark.parity
def test_scipy_agrees():
  stats = pytest.importorskip("scipy.stats")
  rng = np.random.default_rng(1)
  for _ in range(20):
    x, y = rng.integers(0, 9, 40), rng.normal(size=40)
    assert labels.pearson(x, y)["pearson"] == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-12)
    assert labels.spearman(x, y)["spearman"] == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


@pytest.mark.parity
def test_sklearn_agrees():
  metrics = pytest.importorskip("sklearn.metrics")
  rng = np.random.default_rng(2)
  for classes in (2, 4):
    p, t = rng.integers(0, classes, (2, 40))
    assert labels.matthews(p, t)["matthews"] == pytest.approx(metrics.matthews_corrcoef(t, p), abs=1e-12)
  p, t = rng.integers(0, 2, (2, 40))
  assert labels.f1(p, t)["f1"] == pytest.approx(metrics.f1_score(t, p))
