"""Which checkpoints a workdir holds, and how one of them is named; without JAX, for tools that open none."""

import os
import re

from etils import epath

from data.places import is_remote, reach

MARK = "commit_success.txt"


def saved_steps(folder: epath.PathLike) -> list[int]:
  """Returns the steps of a workdir's checkpoints, the newest last."""
  path = reach(folder) / "checkpoints"
  steps = [step for step in path.iterdir() if step.name.isdigit()] if path.is_dir() else []
  # A bucket's folder cannot be renamed when it is whole; Orbax puts a mark into it.
  return sorted(int(step.name) for step in steps if not is_remote(folder) or (step / MARK).exists())


def at_step(name: epath.PathLike) -> tuple[str, int | None]:
  """Returns (WORKDIR, STEP) of WORKDIR@STEP; (name, None) of any other path, of a folder that is so called, too."""
  name = os.fspath(name)
  found = re.fullmatch(r"(.+)@(\d+)", name)
  if not found or reach(name).exists() or not (reach(found[1]) / "checkpoints").is_dir():
    return name, None
  return found[1], int(found[2])
