"""What the clock says of a run's steps, and what memory they need."""

import time
from collections.abc import Iterable, Iterator

from objectives.objective import Batch
from training.hardware import memory_peak, peak_flops


class Rates:
  """Counts the steps of an interval, the tokens and model FLOPs in them, and how long their batches take to come.

  Attributes:
    peak: FLOP/s of all devices; None where that is not known.
  """

  def __init__(self):
    self.peak = peak_flops()
    self.restart()

  def restart(self) -> None:
    """Starts a new interval."""
    self._began, self._waited, self._steps, self._tokens, self._flops = time.monotonic(), 0.0, 0, 0.0, 0.0

  def timed(self, batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yields `batches`, and counts how long they keep the host waiting."""
    batches, end = iter(batches), object()
    while True:
      began = time.monotonic()
      batch = next(batches, end)
      self._waited += time.monotonic() - began
      if batch is end:
        return
      yield batch

  def add(self, tokens: float, flops: float) -> None:
    """Counts a step that is done."""
    self._steps, self._tokens, self._flops = self._steps + 1, self._tokens + tokens, self._flops + flops

  def numbers(self) -> dict[str, float]:
    """Returns the interval's numbers by their names in the log; of the first process, in seconds a step.

    `data_wait_s` and `compute_s` add up to `step_s`, by what the host waits for: the next batch, with its way to the
    devices, or else the devices. What these compute while the host waits for a batch counts as waiting for it. The
    host is a batch ahead, so that in an interval of a step or two (config.log_every=1, before an evaluation) what
    belongs to one step may stand with the one before.

    Returns:
      tokens_per_s: tokens without padding, of the global batch.
      mfu: the model's own FLOPs over the peak of all devices; left out where that is not known.
      step_s, data_wait_s, compute_s: see above.
      hbm_peak_bytes: the most that a device has had in use since the process began; left out where devices do not say.
    """
    seconds = max(time.monotonic() - self._began, 1e-9)
    numbers = {"tokens_per_s": self._tokens / seconds}
    if self.peak:
      numbers["mfu"] = self._flops / seconds / self.peak
    numbers["step_s"] = seconds / self._steps
    numbers["data_wait_s"] = self._waited / self._steps
    numbers["compute_s"] = (seconds - self._waited) / self._steps
    if peak := memory_peak():
      numbers["hbm_peak_bytes"] = peak
    return numbers
