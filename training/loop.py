"""What the training loop needs besides the step: input ahead of time, signals, profiles."""

import os
import signal
from collections.abc import Iterable, Iterator

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from data.places import is_remote
from training import interrupts, sharding


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


def told_by_first(value: bool) -> bool:
  """Returns the first process's `value`, on all."""
  return bool(multihost_utils.broadcast_one_to_all(np.bool_(value)))


class Preemption:
  """Asks the loop to stop after SIGTERM. On several processes one that gets it stops all, at the same question: each of
  them asks at the same places, so questions are counted, wherever they stand."""

  def __init__(self):
    self._asked, self._questions = False, 0
    if jax.process_count() == 1:  # else JAX listens
      signal.signal(signal.SIGTERM, self._ask)

  def _ask(self, signum, frame):
    del signum, frame
    self._asked = True

  def reached(self) -> bool:
    """Returns whether to stop; once True, always.

    Raises:
      KeyboardInterrupt: Ctrl-C has come, and what it raised was lost.
    """
    if interrupts.heard():
      raise KeyboardInterrupt
    if jax.process_count() > 1 and not self._asked:
      self._questions += 1
      self._asked = multihost_utils.reached_preemption_sync_point(self._questions)
    return self._asked

  def until(self, batches: Iterable[dict]) -> Iterator[dict]:
    """Yields batches, the first in any case, until it is time to stop."""
    for batch in batches:
      yield batch
      if self.reached():
        return


class Profile:
  """Writes a trace of steps first..last-1 to DIR/profile, to be opened with TensorBoard or Perfetto. A run that begins
  or ends among them traces those that it takes.

  Args:
    folder: the workdir.
    steps: (first, last), or empty for none.
    end: steps of the whole run.
  """

  def __init__(self, folder: str, steps: tuple[int, ...], end: int):
    if steps and (len(steps) != 2 or not 0 <= steps[0] < steps[1]):
      raise ValueError(
        f"config.profile_steps={tuple(steps)} must be empty or two steps, 0 <= first < last, e.g. (10, 13)"
      )
    if steps and is_remote(folder):
      raise ValueError(
        f"config.profile_steps={tuple(steps)}: traces go to local disks only, and --workdir={folder} is none"
      )
    self._folder, self._running = os.path.join(folder, "profile"), False
    self._first, self._last = (steps[0], min(steps[1], end)) if steps else (0, 0)

  def before(self, step: int) -> None:
    """Starts the trace if `step` is the first of its steps that this run takes."""
    if self._first <= step < self._last and not self._running:
      jax.profiler.start_trace(self._folder)
      self._first, self._running = step, True

  def after(self, step: int, waited_for) -> None:
    """Ends the trace if `step` was its last, once `waited_for` is computed."""
    if self._running and step + 1 == self._last:
      jax.block_until_ready(waited_for)
      self.close()
      print(f"profile of steps {self._first} to {self._last} written to {self._folder}")

  def close(self) -> None:
    """Ends the trace where the run does."""
    if self._running:
      jax.profiler.stop_trace()
      self._running = False
