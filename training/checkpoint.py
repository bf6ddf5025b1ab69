"""Checkpoints: asynchronous, never of a broken state, and never lost to a damaged one.

Each holds Orbax items, so that whoever needs only the weights reads only them: `params`, `rest` (step and optimizer
state), and in the newest checkpoint alone `carry`, where the objective carries something: XLNet's memory is many times
the weights at the paper's size.
"""

import contextlib
import math
import shutil
import sys
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint import checkpoint_managers

from data.places import absolute, is_remote, make_folder
from objectives.objective import Carry
from training import failures
from training.aftermath import hush
from training.saved import saved_steps
from training.state import TrainState
from training.trees import path_name

# Free space asked for before a save, in sizes of the state and in bytes: metadata, the log, other writers.
ROOM_FACTOR, ROOM = 1.5, 32e6
CARRY = ("exact", "zero")


class Manager(ocp.CheckpointManager):
  """Orbax's, which asks JAX itself whether SIGTERM has come, and would spoil the count of the loop's own questions."""

  def reached_preemption(self, step: int) -> bool:
    del step
    return False


class Checkpoints:
  """The checkpoints of a workdir, under DIR/checkpoints/STEP.

  Args:
    folder: the workdir.
    keep_last: how many of the newest stay.
    keep_best: how many of the best stay besides, those saved with the least badness.
    carry: "exact", it is saved; or "zero", it is not, and a resumed run begins with a fresh one.

  Raises:
    ValueError: `carry` is neither.
  """

  def __init__(self, folder: str, keep_last: int, keep_best: int, carry: str = "exact"):
    hush()
    if carry not in CARRY:
      raise ValueError(f"config.checkpoint_memory={carry!r} is unknown; use one of {', '.join(CARRY)}")
    self._carry = carry
    self._workdir = absolute(folder)
    self._folder = self._workdir / "checkpoints"
    policies = [checkpoint_managers.LatestN(keep_last)]
    if keep_best:
      best = checkpoint_managers.BestN(
        get_metric_fn=lambda metrics: -metrics["loss"], n=keep_best, keep_checkpoints_without_metrics=False
      )
      policies.append(best)
    # Not max_to_keep with best_fn: that deletes the newest checkpoint when it is not among the best.
    options = ocp.CheckpointManagerOptions(preservation_policy=checkpoint_managers.AnyPreservationPolicy(policies))
    self._manager = Manager(self._folder, options=options)

  def save(self, state: TrainState, badness: float | None) -> None:
    """Starts to save the state under its step, once the one before is on disk.

    Raises:
      FloatingPointError: the state holds a number that is not finite; nothing is written.
      OSError: the disk has no room for it, or the checkpoint before could not be written.
    """
    step = int(state.step)
    if step in self._manager.all_steps():
      return
    self.wait()
    items = {"params": state.params, "rest": {"step": state.step, "opt_state": state.opt_state}}
    if self._carry == "exact" and jax.tree.leaves(state.carry):
      items["carry"] = state.carry
    # Asked beforehand, with nothing else being saved: Orbax's threads do not end well on a full disk.
    needed = ROOM_FACTOR * sum(x.nbytes for x in jax.tree.leaves(items)) + ROOM
    if jax.process_index() == 0 and free_space(self._folder) < needed:
      raise OSError(
        f"no room in {self._folder} for the checkpoint of step {step}, which needs {needed / 1e6:,.0f} MB free; "
        f"{self._kept()}"
      )
    if not bool(all_finite(state)):
      raise FloatingPointError(f"the state at step {step} holds numbers that are not finite, so it was not saved")
    args = ocp.args.Composite(**{name: ocp.args.StandardSave(item) for name, item in items.items()})
    metrics = None if badness is None else {"loss": badness}  # the loss, or minus a score
    if not self._manager.save(step, args=args, metrics=metrics):
      raise RuntimeError(f"the checkpoint of step {step} was refused; is a newer one in {self._folder}?")

  def restore(self, abstract: Callable[[int], TrainState]) -> TrainState:
    """Returns the newest whole state of those in `saved_steps`, placed as `abstract(its step)` says.

    A damaged checkpoint is moved to DIR/damaged/STEP, with one line, and the one before is taken. A carry that was not
    kept, is damaged, or has other shapes, is zeros, with one line.

    Raises:
      ValueError: there are checkpoints, and none can be read; nothing is moved.
    """
    steps = saved_steps(self._workdir)
    read = lambda step: self._restore(step, abstract(step))
    state, damaged = newest_whole(self._folder, steps, read, "delete the folder to start over")
    for step, reason in damaged.items():
      print(f"checkpoint {step} is damaged and was moved to {self._set_aside(step)} ({reason})", file=sys.stderr)
    return state

  def _restore(self, step: int, abstract: TrainState) -> TrainState:
    items = {"params": abstract.params, "rest": {"step": abstract.step, "opt_state": abstract.opt_state}}
    args = ocp.args.Composite(**{name: ocp.args.StandardRestore(item) for name, item in items.items()})
    restored = self._manager.restore(step, args=args)
    if int(restored.rest["step"]) != step or not bool(all_finite(restored.params | {"rest": restored.rest})):
      raise ValueError("its numbers are damaged")
    carry, fault = self._restore_carry(step, abstract.carry)
    if fault and jax.process_index() == 0:
      print(
        f"checkpoint {step} {fault}: the run goes on with an empty memory, and not bit for bit as before",
        file=sys.stderr,
      )
    return TrainState(params=restored.params, carry=carry, **restored.rest)

  def _restore_carry(self, step: int, wanted: Carry) -> tuple[Carry, str]:
    """Returns a carry as `wanted`, and what keeps the checkpoint's from being used: then it is zeros."""
    path = self._folder / str(step) / "carry"
    shapes = lambda tree: {path_name(path): tuple(x.shape) for path, x in jax.tree.leaves_with_path(tree)}
    if not shapes(wanted):
      return wanted, "holds a memory, and this run has none" if path.is_dir() else ""
    if not path.is_dir():
      return zeros(wanted), "holds no memory"
    try:
      with ocp.StandardCheckpointer() as checkpointer:
        found = shapes(checkpointer.metadata(path).item_metadata.tree)
        if differ := [name for name in shapes(wanted) if found.get(name) != shapes(wanted)[name]]:
          there, here = found.get(differ[0]), shapes(wanted)[differ[0]]
          return zeros(wanted), f"holds a memory of another shape ({differ[0]}: {there} there, {here} here)"
        carry = checkpointer.restore(path, wanted)
      if bool(all_finite(carry)):
        return carry, ""
      reason = "its numbers are not finite"
    except Exception as error:  # Orbax has no public class for a damaged file
      if failures.elsewhere(error):
        raise
      reason = first_line(error)
    return zeros(wanted), f"holds a damaged memory ({reason})"

  def _set_aside(self, step: int) -> epath.Path:
    target = self._workdir / "damaged" / str(step)
    if jax.process_index() == 0:
      if target.exists():
        target.rmtree()
      make_folder(target.parent)
      (self._folder / str(step)).rename(target)
    self._manager.reload()
    return target

  def wait(self) -> None:
    """Returns when the last save is on disk.

    Raises:
      OSError: it could not be written.
    """
    try:
      self._manager.wait_until_finished()
    except Exception as error:  # Orbax has no public class for this either
      fix = "" if failures.elsewhere(error) else f"; {self._kept()}"
      raise OSError(f"a checkpoint could not be written ({first_line(error)}){fix}") from None
    if jax.process_index() == 0:
      for step in saved_steps(self._workdir)[:-1]:
        if (old := self._folder / str(step) / "carry").exists():
          with contextlib.suppress(OSError):  # Orbax may be at it, too
            old.rmtree()

  def _kept(self) -> str:
    steps = saved_steps(self._workdir)
    return f"free some space and run the same command again: it continues from step {steps[-1] if steps else 0}"

  def close(self) -> None:
    """Waits for the last save and frees the manager's threads.

    Raises:
      OSError: the last save could not be written.
    """
    try:
      self.wait()
    finally:
      self._manager.close()


def first_line(error: Exception) -> str:
  """Returns what an error says, in a line."""
  return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def zeros(abstract):
  """Returns arrays of zeros, shaped and placed as `abstract` says."""
  places = jax.tree.map(lambda x: x.sharding, abstract)
  make = lambda: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), abstract)
  return jax.jit(make, out_shardings=places)()


@jax.jit
def all_finite(tree) -> jax.Array:
  """Returns whether every floating-point number of a tree is finite. bool scalar."""
  floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
  return jnp.stack([jnp.isfinite(x).all() for x in floats]).all() if floats else jnp.bool_(True)


def free_space(folder: epath.Path) -> float:
  """Returns the free bytes where a folder is."""
  return math.inf if is_remote(folder) else shutil.disk_usage(folder).free


def newest_whole(
  folder: epath.PathLike, steps: Iterable[int], read: Callable[[int], Any], fix: str
) -> tuple[Any, dict[int, str]]:
  """Returns what `read` returns of the newest step that it can read, and why each newer one cannot be read.

  Raises:
    ValueError: none can be read; the message ends in `fix`.
    Exception: what `read` raises when the network, a bucket or another process fails, or memory: no step is the worse
      for it.
  """
  damaged = {}
  for step in sorted(steps, reverse=True):
    try:
      return read(step), damaged
    except Exception as error:  # Orbax has no public class for a damaged file
      if failures.elsewhere(error):
        raise
      damaged[step] = first_line(error)
  step, reason = max(damaged.items())
  raise ValueError(f"no checkpoint in {folder} can be read (step {step}: {reason}); {fix}")


def restore_params(folder: str, abstract_params, step: int | None = None):
  """Returns the parameters alone of a workdir's checkpoint of that step, or of its newest one whose parameters are
  whole.

  Nothing in the workdir is touched: another process may be training there. A damaged checkpoint is passed over with one
  line.

  Raises:
    FileNotFoundError: the workdir holds no checkpoint, or none of that step.
    ValueError: there are checkpoints, and none can be read, or that of the step cannot.
  """
  path = absolute(folder) / "checkpoints"
  if not (steps := saved_steps(folder)):
    raise FileNotFoundError(f"{path} holds no checkpoint; train first, or name another workdir")
  if step is not None:
    if step not in steps:
      raise FileNotFoundError(
        f"{folder} holds no checkpoint of step {step}; it holds those of {', '.join(map(str, steps))}"
      )
    steps = [step]
  hush()
  with ocp.StandardCheckpointer() as checkpointer:

    def read(step: int):
      params = checkpointer.restore(path / str(step) / "params", abstract_params)
      if not bool(all_finite(params)):
        raise ValueError("its numbers are damaged")
      return params

    params, damaged = newest_whole(path, steps, read, f"name another {'workdir' if step is None else 'step'}")
  for step, reason in damaged.items():
    print(f"checkpoint {step} in {path} is damaged and was passed over ({reason})", file=sys.stderr)
  return params
