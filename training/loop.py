"""What the training loop needs besides the step: input ahead of time, signals, progress, profiles."""

import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator

import jax
from absl import logging
from jax.experimental import multihost_utils
from jax.sharding import Mesh
from tqdm import tqdm

from training import sharding


def on_mesh(batches: Iterable[dict], mesh: Mesh) -> Iterator[dict]:
  """Yields batches placed on the mesh, each sent while the one before is in use."""
  ahead = None
  for batch in batches:
    placed = sharding.put_batch(batch, mesh)
    if ahead is not None:
      yield ahead
    ahead = placed
  if ahead is not None:
    yield ahead


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


class Progress:
  """A bar on a terminal, a line a record elsewhere; and tokens/s since the last record.

  Args:
    start, stop: steps of this run.
  """

  def __init__(self, start: int, stop: int):
    self._stop = stop
    show = jax.process_index() == 0 and sys.stderr.isatty()
    self._bar = tqdm(total=stop, initial=start, unit="step", dynamic_ncols=True, disable=not show)
    self.restart()

  def restart(self) -> None:
    """Starts a new interval, e.g. after an evaluation, whose time is not training's."""
    self._began, self._tokens, self._steps = time.monotonic(), 0.0, 0

  def step(self, tokens: float) -> None:
    """Counts a finished step of `tokens` tokens."""
    self._tokens += tokens
    self._steps += 1
    self._bar.update()

  def rates(self) -> tuple[float, float]:
    """Returns (tokens/s, steps/s) since the last call, and starts a new interval."""
    seconds = max(time.monotonic() - self._began, 1e-9)
    rates = self._tokens / seconds, self._steps / seconds
    self.restart()
    return rates

  def show(self, step: int, split: str, metrics: dict) -> None:
    """Shows a record: on the bar, or as a line where there is no terminal. Evaluations are lines always."""
    shown = "  ".join(f"{name} {value:,.0f}" if value >= 1000 else f"{name} {value:.4g}" for name, value in metrics.items())
    if split == "train" and not self._bar.disable:
      self._bar.set_postfix_str(shown)
    elif jax.process_index() == 0:
      tqdm.write(f"step {step:>{len(str(self._stop))}}/{self._stop}  {split:<5}  {shown}", file=sys.stdout)
      sys.stdout.flush()

  def close(self) -> None:
    """Removes the bar."""
    self._bar.close()


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
      logging.info("profile of steps %d to %d written to %s", *self._steps, self._folder)
