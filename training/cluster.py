"""The processes of one run: how they meet, and how one that ends early takes the others with it.

JAX keeps a small store where the processes meet. Who ends early writes there with which status and why; the others
look every second, say so and end with the same status. Else a mistake that only one of them can see would look like a
lost process to the others, which would be begun again.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax._src.distributed import global_state  # the store has no public name

POLL = 1.0  # seconds
GRACE = 3 * POLL  # that the process where the others meet stays, for them to read
_LEFT = "bidir/left"


class ConnectionLost(Exception):
  """The processes of a run do not find each other."""


def join() -> None:
  """Makes this process one of a run on several, as SLURM, Open MPI, Kubernetes or a TPU pod's metadata describe it;
  JAX_COORDINATOR_ADDRESS overrides where they meet.

  Raises:
    ValueError: no cluster is found.
    ConnectionLost: its processes do not meet.
  """
  try:
    jax.distributed.initialize()
  except ValueError as error:
    raise ValueError(
      f"--distributed: no cluster to join ({error}); start by srun, by mpirun, by launch.local or on a TPU pod, or "
      "without the flag"
    ) from None
  except RuntimeError as error:
    reason = str(error).splitlines()[0][:200]
    raise ConnectionLost(f"--distributed: the processes of the run do not meet ({reason})") from None


@contextlib.contextmanager
def together() -> Iterator[None]:
  """While the block lasts, ends this process of several when another one has left."""
  over = threading.Event()
  listener = threading.Thread(target=_listen, args=(global_state.client, over), daemon=True)
  if jax.distributed.is_initialized():
    listener.start()
  try:
    yield
  finally:
    over.set()
    if listener.ident is not None:
      listener.join(GRACE)


def leave(status: int, said: str = "") -> None:
  """Ends this process of several, having told the others with which status and why, without waiting for them: they may
  never come to an end of their own. Returns in a process that is alone."""
  if not jax.distributed.is_initialized():
    return
  sys.stdout.flush()
  sys.stderr.flush()
  left = f"{status} process {global_state.process_id} of the run has ended{': ' if said else ''}{said}"
  tell = lambda: global_state.client.key_value_set(f"{_LEFT}/{global_state.process_id}", left)
  teller = threading.Thread(target=_quietly, args=(tell,), daemon=True)
  teller.start()  # nobody may be there to be told
  teller.join(GRACE)
  _end(status)


def _listen(client, over: threading.Event) -> None:
  left = None
  while not left:
    if over.wait(POLL):
      return
    left = _quietly(lambda: client.key_value_dir_get(_LEFT))
  if over.wait(POLL):  # this process sees what is wrong, too, and says it itself
    return
  status, _, said = left[0][1].partition(" ")
  sys.stderr.write(f"error: {said}\n")  # at once: others write to the same log
  sys.stderr.flush()
  _end(int(status))


def _end(status: int) -> None:
  """Ends this process; the one where all meet, once the others have had the time to look."""
  if global_state.service is not None and global_state.num_processes > 1:
    time.sleep(GRACE)
  os._exit(status)


def _quietly(ask: Callable[[], Any]) -> Any:
  """Returns what `ask` returns, or None where nobody answers any more."""
  with contextlib.suppress(jax.errors.JaxRuntimeError):
    return ask()
