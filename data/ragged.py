"""Many intervals at once, without a loop."""

import numpy as np


def ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
  """int64 [sum of counts]: `starts[0], …, starts[0] + counts[0] - 1`, then the same of the next interval, and so on."""
  ends = np.cumsum(counts)
  return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + counts, counts)
