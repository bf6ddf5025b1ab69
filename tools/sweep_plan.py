"""What a sweep runs: grids, seeds, and the workdir, command and state of each run."""

import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
import re
import runpy
from collections.abc import Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict
from ml_collections.config_flags import config_path

from data.tasks import table
from training import metrics, run_flags

RECIPE = "recipe.json"  # in a workdir: what its finished run was asked for, before the data decided the rest


class Axis(NamedTuple):
  """A field of the config, and its values as text."""

  field: str
  texts: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Run:
  """One run of a sweep.

  Attributes:
    cell: name of what it has in common with the runs of other seeds, "" without a grid.
    fields: the grid's fields and their values.
    seed: its seed.
    workdir: where it lives.
    arguments: what follows `train.py`.
    recipe: its config as JSON, before the data decides the rest.
  """

  cell: str
  fields: dict[str, Any]
  seed: int
  workdir: pathlib.Path
  arguments: tuple[str, ...]
  recipe: dict

  @property
  def name(self) -> str:
    return os.path.join(self.cell, f"seed={self.seed}")


def read_config(arguments: Sequence[str]) -> tuple[str, ConfigDict]:
  """Returns the recipe, FILE[:VARIANT], and the config that train.py would read from a command line without --workdir.

  Raises:
    ValueError: a mistake in it, as train.py says it.
  """
  strange = [x for x in arguments if re.match(r"--?(workdir|(no)?distributed)\b", x)]
  if strange:
    raise ValueError(f"{strange[0]} does not go with a sweep, whose runs have workdirs of their own under --output")
  return run_flags.parsed(["--workdir=", *arguments])


def read_seeds(text: str, first: int) -> list[int]:
  """Returns the seeds that --seeds means: a count, from `first` on, or with a comma a list.

  Raises:
    ValueError: it is neither.
  """
  try:
    count_or_list = [int(x) for x in text.split(",") if x]
  except ValueError:
    count_or_list = []
  if not count_or_list or min(count_or_list) < 0 or (count_or_list == [0] and "," not in text):
    raise ValueError(f"--seeds={text} is neither a count nor a list such as 1,2,3 (7, is the one seed 7)")
  if "," not in text:
    return list(range(first, first + count_or_list[0]))
  _refuse_twins("--seeds", count_or_list)
  return count_or_list


def read_grid(items: Sequence[str], recipe: str) -> list[Axis]:
  """Returns the axes that --grid names: FIELD=VALUE,VALUE or a grid of the recipe's file, an entry of its GRIDS.

  Raises:
    ValueError: an item is neither, or names a field again.
  """
  axes = []
  for item in items:
    field, is_axis, texts = item.partition("=")
    if is_axis:  # commas within brackets are a tuple's
      axes.append(Axis(field.removeprefix("--").removeprefix("config."), tuple(re.split(r",(?![^(\[]*[)\]])", texts))))
    else:
      axes += named_grid(item, recipe.split(":")[0])
  for axis in axes:
    if axis.field == "seed":
      raise ValueError("--grid seed: seeds are named by --seeds")
    if "" in axis.texts:
      raise ValueError(f"--grid {axis.field}: an empty value")
  _refuse_twins("--grid", [axis.field for axis in axes])
  return axes


def named_grid(name: str, path: str) -> list[Axis]:
  """Returns the axes of a grid of the file's GRIDS: {name: {field: values}}.

  Raises:
    ValueError: it has no such grid.
  """
  grids = runpy.run_path(path).get("GRIDS", {})
  if name not in grids:
    known = f"its grids are {', '.join(grids)}" if grids else "it names none"
    raise ValueError(f"{path} has no grid {name!r} ({known}); write --grid FIELD=VALUE,VALUE or one of these")
  return [Axis(field, tuple(map(str, values))) for field, values in grids[name].items()]


def plan(arguments: Sequence[str], axes: Sequence[Axis], seeds: Sequence[int], output: pathlib.Path) -> list[Run]:
  """Returns the runs, cell by cell: every combination of the axes' values with every seed.

  Raises:
    ValueError: a field that the config does not have, a value that does not fit it, or the same value twice.
  """
  values = [_values(arguments, axis) for axis in axes]
  last = [axis.field.split(".")[-1] for axis in axes]
  short = [name if last.count(name) == 1 else axis.field for name, axis in zip(last, axes, strict=True)]
  runs = []
  for numbers in itertools.product(*(range(len(axis.texts)) for axis in axes)):
    fields = {axis.field: some[i] for axis, some, i in zip(axes, values, numbers, strict=True)}
    cell = ",".join(f"{name}={in_a_path(x)}" for name, x in zip(short, fields.values(), strict=True))
    changes = [f"--config.{axis.field}={axis.texts[i]}" for axis, i in zip(axes, numbers, strict=True)]
    recipe = json.loads(read_config([*arguments, *changes])[1].to_json_best_effort())
    for seed in seeds:
      workdir = output / cell / f"seed={seed}"
      command = (*arguments, *changes, f"--config.seed={seed}", f"--workdir={workdir}")
      runs.append(Run(cell, fields, seed, workdir, command, recipe | {"seed": seed}))
  return runs


def _values(arguments: Sequence[str], axis: Axis) -> list:
  """Returns the values of an axis as the config has them."""
  values = []
  for text in axis.texts:
    try:
      _, config = read_config([*arguments, f"--config.{axis.field}={text}"])
    except ValueError as error:
      raise ValueError(f"--grid {axis.field}={text}: {error}") from None
    values.append(config_path.get_value(axis.field, config))
  _refuse_twins(f"--grid {axis.field}", values)
  return values


def _refuse_twins(what: str, values: Sequence) -> None:
  if twins := [value for i, value in enumerate(values) if value in values[:i]]:
    raise ValueError(f"{what} has {twins[0]} twice")


def in_a_path(value) -> str:
  """Returns a value's text as a part of a folder's name; of a text that could not be one, its end and a hash."""
  text = str(value)
  if re.fullmatch(r"[\w.+-]{1,60}", text):
    return text
  end = re.sub(r"[^\w.+-]+", "_", pathlib.PurePath(text).name).strip("_")[-40:]
  return f"{end}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def main_metric(config: ConfigDict) -> tuple[str, str]:
  """Returns the metric that a config's runs are compared by, and the name of what it is measured on."""
  if config.family != "task":
    return "loss", "held-out text"
  split = config.data.eval_splits[0] if config.data.eval_splits else "no split"
  if config.data.task == "custom":
    return table.custom(config.data.kind, texts=config.data.texts, scores=config.data.scores).main_score, split
  return table.find_task(config.data.task).main_score, split


def is_lower_better(metric: str) -> bool:
  """Returns whether less of a metric is better; of a loss it is in any part and on any split, "plm_loss_quarter_1"."""
  return metric == "bits_per_byte" or "loss" in metric.split("_")


def asked_steps(run: Run) -> int:
  """Returns the steps that a begun run is to have; the epochs' are in its config.json."""
  return run.recipe["steps"] or (_read(run.workdir / "config.json") or {}).get("steps", 0)


def evaluations(run: Run) -> list[dict]:
  """Returns the records of the run's evaluations, up to now."""
  return [record for record in metrics.read(str(run.workdir / "metrics.jsonl")) if record["split"] == "eval"]


def has_begun(run: Run) -> bool:
  """Returns whether the run's workdir holds a config."""
  return (run.workdir / "config.json").exists()


def is_finished(run: Run) -> bool:
  """Returns whether the workdir holds this very run's last evaluation."""
  return _read(run.workdir / RECIPE) == run.recipe and reached(run) == asked_steps(run)


def reached(run: Run) -> int:
  """Returns the step of the run's last evaluation; -1 of a run without any."""
  return max((record["step"] for record in evaluations(run)), default=-1)


def finish(run: Run) -> None:
  """Notes what the run was asked for, so that the same sweep does not start it again."""
  write(run.workdir / RECIPE, json.dumps(run.recipe, indent=2))


def write(path: pathlib.Path, text: str) -> None:
  """Writes a file of one text, at once or not at all."""
  new = path.with_name(path.name + ".new")
  new.write_text(text + "\n", encoding="utf-8")
  os.replace(new, path)


def check_start(run: Run) -> None:
  """Raises ValueError if the run has begun from other weights: train.py does not ask, for a checkpoint may move."""
  before = (_read(run.workdir / "config.json") or run.recipe).get("init_from", "")
  if before != run.recipe["init_from"]:
    raise ValueError(
      f"{run.workdir} started from config.init_from={before}, and this sweep starts from {run.recipe['init_from']}; "
      "use another --output"
    )


def _read(path: pathlib.Path) -> dict | None:
  try:
    found = json.loads(path.read_text(encoding="utf-8"))
  except (FileNotFoundError, NotADirectoryError, ValueError):
    return None
  return found if isinstance(found, dict) else None
