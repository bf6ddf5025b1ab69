"""The numbers of tools.geometry, of vectors, labels and overlaps; no model here."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scores import labels as scores

_DECIMALS = 9  # of a cosine: what is behind these is the rounding of float32


@dataclasses.dataclass(frozen=True)
class UnitSums:
  """Sums of vectors of length 1 by key (a group of lines, a piece): enough for mean cosines over all pairs.

  Of such vectors u, |Σ u|² - Σ_line |Σ_line u|² is the sum of the cosines of all ordered pairs in different lines.

  Attributes:
    totals: float64 [keys, layers, width], Σ u.
    within: float64 [keys, layers], Σ_line |Σ_line u|².
    counts: int64 [keys, 2], how many u, and Σ_line (how many in the line)².
  """

  totals: np.ndarray
  within: np.ndarray
  counts: np.ndarray

  @classmethod
  def zeros(cls, keys: int, layers: int, width: int) -> "UnitSums":
    return cls(np.zeros((keys, layers, width)), np.zeros((keys, layers)), np.zeros((keys, 2), np.int64))

  def add(self, key: int, vectors: np.ndarray) -> None:
    """Adds the vectors of one line under `key`: float [vectors, layers, width], each of length 1."""
    total = vectors.sum(axis=0, dtype=np.float64)
    self.totals[key] += total
    self.within[key] += np.square(total).sum(axis=-1)
    self.counts[key] += len(vectors), len(vectors) ** 2


class MeanCosine(NamedTuple):
  """Means over all pairs of vectors in different lines, by layer: float64 [layers] each; NaN where there is no pair."""

  mean: np.ndarray
  error: np.ndarray  # standard error
  pairs: int  # unordered


def units(vectors: np.ndarray) -> np.ndarray:
  """float64, the vectors on the last axis at length 1; a vector of zeros stays."""
  vectors = np.asarray(vectors, np.float64)
  lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
  return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)


def mean_cosine(sums: UnitSums) -> MeanCosine:
  """Returns the mean over the pairs of all keys together.

  The error is the delete-a-group jackknife's over keys, which are groups of lines: what is in one line, or in lines
  beside each other, may well be alike.
  """
  total, within, counts = sums.totals.sum(axis=0), sums.within.sum(axis=0), sums.counts.sum(axis=0)
  without = _mean(total - sums.totals, within - sums.within, counts - sums.counts)
  groups = len(without)
  error = np.sqrt((groups - 1) / groups * np.square(without - without.mean(axis=0)).sum(axis=0))
  return MeanCosine(_mean(total, within, counts), error, int(counts[0] ** 2 - counts[1]) // 2)


def mean_by_key(sums: UnitSums) -> np.ndarray:
  """float64 [keys, layers]: the mean over the pairs of each key alone."""
  return _mean(sums.totals, sums.within, sums.counts)


def _mean(totals: np.ndarray, within: np.ndarray, counts: np.ndarray) -> np.ndarray:
  pairs = (counts[..., 0] ** 2 - counts[..., 1])[..., None].astype(np.float64)
  cosines = np.square(totals).sum(axis=-1) - within
  return np.divide(cosines, pairs, out=np.full_like(cosines, np.nan), where=pairs > 0)


def frequent_pieces(lines: Sequence[np.ndarray], least: int, most: int, seed: int) -> np.ndarray:
  """int64, sorted: the pieces that occur in at least `least` lines, or `most` of these drawn without replacement.

  Args:
    lines: the pieces of each line.
    least: lines that a piece must occur in.
    most: pieces to return at most.
    seed: of the draw.
  """
  ids, counts = np.unique(np.concatenate([np.unique(line) for line in lines]), return_counts=True)
  found = ids[counts >= least].astype(np.int64)
  if len(found) > most:
    found = np.sort(np.random.default_rng(seed).choice(found, most, replace=False))
  return found


def correlations(cosines: np.ndarray, gold: np.ndarray) -> dict[str, float | None]:
  """Returns `pearson` and `spearman` of cosines with gold scores [pairs]; None where all cosines are equal."""
  cosines = np.round(cosines, _DECIMALS)
  found = scores.pearson(cosines, gold) | scores.spearman(cosines, gold)
  return {name: number(value) for name, value in found.items()}


def jaccard(first: np.ndarray, second: np.ndarray) -> float:
  """|A ∩ B| / |A ∪ B| of the pieces of two segments, each piece counted once."""
  both = len(np.intersect1d(first, second))
  return both / (len(np.unique(first)) + len(np.unique(second)) - both)


def quartiles(values: np.ndarray) -> np.ndarray:
  """int64 [values]: 0 to 3 by the quartile of each; equal values stay together, in the lower one."""
  return np.searchsorted(np.quantile(values, [0.25, 0.5, 0.75]), values, side="left")


def area(values: np.ndarray, positive: np.ndarray) -> float:
  """The area under the ROC curve: how likely a positive example has the greater value (equal ones count a half).

  Args:
    values: float [examples].
    positive: bool [examples].

  Returns:
    0 … 1, NaN if all examples are of one kind.
  """
  count = int(positive.sum())
  pairs = count * (len(positive) - count)
  return float((scores.ranks(values)[positive].sum() - count * (count + 1) / 2) / pairs) if pairs else float("nan")


def by_overlap(overlaps: np.ndarray, labels: np.ndarray, odds: np.ndarray) -> dict:
  """Returns how well pairs are told, by the quartile of their overlap, and how far overlap alone tells them.

  Args:
    overlaps: float [pairs], see `jaccard`.
    labels: int [pairs], 0 = a true pair, 1 = a false one.
    odds: float [pairs], the model's log-odds that a pair is true.

  Returns:
    `accuracy`; `area_of_model` and `area_of_overlap`, under the ROC curves of both; `spearman` of one with the other;
    and for each of the `quartiles` its least and greatest `overlap`, the number of `pairs`, the rate of `true` ones,
    and `all`, `true_pairs` and `false_pairs`: accuracy with its standard error, None where there are none.
  """
  right = (odds < 0) == (labels == 1)
  true = labels == 0
  of = quartiles(overlaps)
  rows = []
  for quartile in range(4):
    mine = of == quartile
    rows.append(
      {
        "overlap": [float(overlaps[mine].min()), float(overlaps[mine].max())] if mine.any() else None,
        "pairs": int(mine.sum()),
        "true": rate(true[mine]),
        "all": rate(right[mine]),
        "true_pairs": rate(right[mine & true]),
        "false_pairs": rate(right[mine & ~true]),
      }
    )
  return {
    "pairs": len(labels),
    "accuracy": rate(right),
    "true_pairs": rate(right[true]),
    "false_pairs": rate(right[~true]),
    "area_of_model": number(area(odds, true)),
    "area_of_overlap": number(area(overlaps, true)),
    "spearman": number(scores.spearman(odds, overlaps)["spearman"]),
    "quartiles": rows,
  }


def rate(right: np.ndarray) -> list[float] | None:
  """The mean of bool [n] and its standard error; None of nothing."""
  if not len(right):
    return None
  mean = float(right.mean())
  return [mean, (mean * (1 - mean) / len(right)) ** 0.5]


def number(value: float) -> float | None:
  """The value as JSON has it: None for NaN."""
  return None if np.isnan(value) else float(value)
