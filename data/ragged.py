"""Many intervals at once, without a loop."""

import numpy as np


def ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
  """int64 [sum of counts]: `starts[0], …, starts[0] + counts[0] - 1`, then the same of the next interval, and so on."""
  ends = np.cumsum(counts)
  return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + counts, counts)


def cut(bounds: np.ndarray, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, ...]:
  """Cuts intervals where they cross `bounds`: the interval, the part between bounds, begin and end of each piece."""
  first = np.searchsorted(bounds, begin, side="right") - 1
  counts = np.searchsorted(bounds, end) - first
  interval, part = np.repeat(np.arange(len(begin)), counts), ranges(first, counts)
  return interval, part, np.maximum(begin[interval], bounds[part]), np.minimum(end[interval], bounds[part + 1])
