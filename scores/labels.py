"""Scores of labels and of numbers: accuracy, F1, Matthews, Pearson, Spearman. Fractions, not percent.

GLUE's official script takes them from scikit-learn and SciPy; these equal theirs, degenerate cases included. All
arithmetic is float64.
"""

import numpy as np
from numpy.typing import ArrayLike


def accuracy(predictions: ArrayLike, targets: ArrayLike) -> dict[str, float]:
  """`accuracy`: the fraction of equal labels (numbers or names) [examples]."""
  predictions, targets = _pair(predictions, targets)
  return {"accuracy": float(np.mean(predictions == targets))}


def f1(predictions: ArrayLike, targets: ArrayLike) -> dict[str, float]:
  """`f1` of class 1 of two (MRPC, QQP): 2 TP / (2 TP + FP + FN); 0 if there is no 1 on either side.

  Args:
    predictions: 0 or 1 [examples].
    targets: the same.

  Raises:
    ValueError: another number.
  """
  predictions, targets = _pair(predictions, targets)
  for what, x in (("predictions", predictions), ("targets", targets)):
    if wrong := sorted(set(x.tolist()) - {0, 1}):
      raise ValueError(f"f1 is of the classes 0 and 1, and the {what} hold {wrong[0]!r}")
  both = np.sum((predictions == 1) & (targets == 1))
  either = np.sum(predictions == 1) + np.sum(targets == 1)
  return {"f1": float(2 * both / either) if either else 0.0}


def matthews(predictions: ArrayLike, targets: ArrayLike) -> dict[str, float]:
  """`matthews`: the correlation of two labellings (CoLA), of any number of classes (Gorodkin, 2004).

  0 if one of them is constant, where the quotient is 0/0.
  """
  predictions, targets = _pair(predictions, targets)
  _, codes = np.unique(np.concatenate([predictions, targets]), return_inverse=True)
  p, t = codes[: len(targets)], codes[len(targets) :]
  classes, total = codes.max() + 1, len(targets)
  of_p, of_t = (np.bincount(x, minlength=classes).astype(np.float64) for x in (p, t))
  covariance = np.sum(p == t) * total - of_p @ of_t
  spread = (total**2 - of_p @ of_p) * (total**2 - of_t @ of_t)
  return {"matthews": float(covariance / np.sqrt(spread)) if spread else 0.0}


def pearson(predictions: ArrayLike, targets: ArrayLike) -> dict[str, float]:
  """`pearson`: the linear correlation; NaN if one side is constant, as SciPy."""
  return {"pearson": _correlation(*_numbers(predictions, targets))}


def spearman(predictions: ArrayLike, targets: ArrayLike) -> dict[str, float]:
  """`spearman`: the correlation of ranks, equal values sharing their mean rank; NaN if one side is constant."""
  predictions, targets = _numbers(predictions, targets)
  return {"spearman": _correlation(ranks(predictions), ranks(targets))}


def ranks(values: np.ndarray) -> np.ndarray:
  """float64 [n]: ranks from 1; equal values have the mean of the ranks they take together."""
  _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
  return (np.cumsum(counts) - (counts - 1) / 2)[which]


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
  if (x == x[0]).all() or (y == y[0]).all():
    return float("nan")
  x, y = (_unit(z - z.mean()) for z in (x, y))
  return float(np.clip(x @ y, -1, 1))


def _unit(x: np.ndarray) -> np.ndarray:
  x = x / np.abs(x).max()  # squares of small differences would underflow
  return x / np.linalg.norm(x)


def _numbers(predictions: ArrayLike, targets: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
  pair = tuple(x.astype(np.float64) for x in _pair(predictions, targets))
  for what, x in zip(("prediction", "target"), pair, strict=True):
    if not np.isfinite(x).all():
      raise ValueError(f"{what} {np.flatnonzero(~np.isfinite(x))[0] + 1} of {len(x)} is not a finite number")
  return pair


def _pair(predictions: ArrayLike, targets: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
  predictions, targets = np.asarray(predictions), np.asarray(targets)
  if predictions.ndim != 1 or predictions.shape != targets.shape:
    raise ValueError(f"predictions {predictions.shape} and targets {targets.shape} are not two rows of one length")
  if (predictions.dtype.kind in "US") != (targets.dtype.kind in "US"):
    raise ValueError("labels are names on one side and numbers on the other")
  if not len(targets):
    raise ValueError("there is nothing to score: no predictions and no targets")
  return predictions, targets
