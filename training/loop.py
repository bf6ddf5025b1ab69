"""What the training loop needs besides the step: input ahead of time, signals, profiles."""

import os
import signal
from collections.abc import Iterator

import jax
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from training import sharding


def on_mesh(batches: Iterator[dict], mesh: Mesh) -> Iterator[dict]:
  """Yields batches placed on the mesh, each sent while the one before is in use; closes `batches` when it is closed."""
  ahead = None
  try:
    for batch in batches:
      placed = sharding.put_batch(batch, mesh)
      if ahead is not None:
        yield ahead
      ahead = placed
    if ahead is not None:
      yield ahead
  finally:
    batches.close()


class Preemption:
  """Asks the loop to stop after SIGTERM; on several processes all of them agree on the step."""

  def __init__(self):
    self._asked = False
    if jax.process_count() == 1:
      signal.signal(signal.SIGTERM, self._ask)

  def _ask(self, signum, frame):
    del signum, frame
    self._asked = True

  def reached(self, step: int) -> bool:
    """Returns whether to save and stop after `step`."""
    if jax.process_count() > 1:
      return multihost_utils.reached_preemption_sync_point(step)
    return self._asked


class Profile:
  """Writes a trace of steps first..last-1 to DIR/profile, to be opened with TensorBoard or Perfetto.

  Args:
    folder: the workdir.
    steps: (first, last), or empty for none.
  """

  def __init__(self, folder: str, steps: tuple[int, ...]):
    if steps and (len(steps) != 2 or steps[0] >= steps[1]):
      raise ValueError(f"profile_steps={tuple(steps)} must be empty or two steps, first < last, e.g. 10,13")
    self._folder, self._steps, self._running = os.path.join(folder, "profile"), tuple(steps), False

  def before(self, step: int) -> None:
    """Starts the trace if `step` is its first."""
    if self._steps and step == self._steps[0]:
      jax.profiler.start_trace(self._folder)
      self._running = True

  def after(self, step: int, waited_for) -> None:
    """Ends the trace if `step` was its last, once `waited_for` is computed."""
    if self._running and step + 1 >= self._steps[1]:
      jax.block_until_ready(waited_for)
      jax.profiler.stop_trace()
      self._running = False
      print(f"profile of steps {self._steps[0]} to {self._steps[1]} written to {self._folder}")
