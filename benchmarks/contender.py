"""Things that are timed against each other, each in a process of its own."""

import multiprocessing
import time
from collections.abc import Callable
from typing import Any

from training.memory import keep_freed_memory

Step = Callable[[], None]  # does the work once, and waits for it


class Contender:
  """A contender in its own process; it works only while it is asked to.

  Args:
    make: a function of a module: arguments → (step, a number that is known of it, such as its FLOPs).
    arguments: of `make`.
    ours: whether it is JAX that works; keeping freed memory makes PyTorch slower.
  """

  def __init__(self, make: Callable[..., tuple[Step, Any]], *arguments, ours: bool = True):
    context = multiprocessing.get_context("spawn")
    self._pipe, other = context.Pipe()
    self._process = context.Process(target=_serve, args=(other, make, arguments, ours), daemon=True)
    self._process.start()
    other.close()
    try:
      self.known = self._pipe.recv()
    except EOFError:
      raise ValueError(f"{make.__name__} ended before its first step; its error is above") from None

  def seconds(self, times: int = 1) -> float:
    """Returns seconds a step, over `times` steps."""
    self._pipe.send(times)
    return self._pipe.recv()

  def close(self) -> None:
    """Ends the process."""
    self._pipe.send(0)
    self._process.join()


def _serve(pipe, make: Callable, arguments: tuple, ours: bool) -> None:
  if ours:
    keep_freed_memory()
  step, known = make(*arguments)
  step()  # compile, and fill caches
  pipe.send(known)
  while times := pipe.recv():
    began = time.perf_counter()
    for _ in range(times):
      step()
    pipe.send((time.perf_counter() - began) / times)
