"""What a sweep found: a mean and a deviation over seeds for each cell, the best cell, and the best run."""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from tools.sweep_plan import Run

ASIDE = ("step", "split")  # of a record, what is no metric
OTHERS = 3  # metrics that the table shows besides the main one; sweep.json has all


@dataclasses.dataclass(frozen=True)
class Wanted:
  """What counts.

  Attributes:
    metric: the metric that runs are compared by.
    lower: whether less of it is better.
    pick: "last" or "best": which of a run's evaluations counts.
    split: what it is measured on, in words.
  """

  metric: str
  lower: bool
  pick: str
  split: str

  def rank(self, value: float) -> float:
    """Returns what is greater for the better value, and least for one that is no number."""
    return -math.inf if math.isnan(value) else -value if self.lower else value


@dataclasses.dataclass(frozen=True)
class Result:
  """The evaluation of a finished run that counts: its step and its metrics; and the steps of the run's checkpoints."""

  run: Run
  step: int
  metrics: dict[str, float]
  kept: Sequence[int]

  @property
  def checkpoint(self) -> str | None:
    """What names the weights that were evaluated (training.saved.at_step); None if the run has not kept them."""
    return f"{self.run.workdir}@{self.step}" if self.step in self.kept else None

  def value(self, metric: str) -> float:
    return self.metrics.get(metric, math.nan)


@dataclasses.dataclass(frozen=True)
class CellResult:
  """The finished runs of a cell.

  Attributes:
    name: "" without a grid.
    fields: the grid's fields and their values.
    planned: seeds that the sweep has.
    results: by seed.
    mean: by metric; no number if a run's is none.
    deviation: by metric, of the sample (n - 1); None for a single run.
    best: the best run; None if none has a number.
  """

  name: str
  fields: dict
  planned: int
  results: list[Result]
  mean: dict[str, float]
  deviation: dict[str, float | None]
  best: Result | None

  def value(self, metric: str) -> float:
    return self.mean.get(metric, math.nan)


def result(run: Run, evaluations: Sequence[dict], kept: Sequence[int], wanted: Wanted) -> Result:
  """Returns what counts of a finished run. The evaluation before the first step is never the best one; of equal ones
  that is whose step is among the `kept` checkpoints'."""
  record = evaluations[-1]
  if wanted.pick == "best":
    trained = [one for one in evaluations if one["step"]]
    record = max(trained, key=lambda one: (wanted.rank(one.get(wanted.metric, math.nan)), one["step"] in kept))
  return Result(run, record["step"], {name: float(value) for name, value in record.items() if name not in ASIDE}, kept)


def check_metric(results: Sequence[Result], wanted: Wanted) -> None:
  """Raises ValueError if no run has the metric."""
  if all(wanted.metric not in one.metrics for one in results):
    known = ", ".join(name for name in results[0].metrics if name != "wall_s")
    raise ValueError(f"no evaluation has a metric {wanted.metric!r}; --metric takes one of {known}")


def cells(runs: Iterable[Run], results: Mapping[str, Result], wanted: Wanted) -> list[CellResult]:
  """Returns a result for each cell, in the runs' order.

  Args:
    runs: all of the sweep.
    results: of the finished ones, by name.
    wanted: what counts.
  """
  by_cell: dict[str, list[Run]] = {}
  for run in runs:
    by_cell.setdefault(run.cell, []).append(run)
  return [_cell(name, some, results, wanted) for name, some in by_cell.items()]


def _cell(name: str, runs: list[Run], results: Mapping[str, Result], wanted: Wanted) -> CellResult:
  found = [results[run.name] for run in runs if run.name in results]
  names = [metric for metric in found[0].metrics if all(metric in one.metrics for one in found)] if found else []
  values = {metric: [one.metrics[metric] for one in found] for metric in names}
  return CellResult(
    name,
    runs[0].fields,
    len(runs),
    found,
    {metric: _mean(some) for metric, some in values.items()},
    {metric: _deviation(some) for metric, some in values.items()},
    _best(found, wanted),
  )


def _mean(values: Sequence[float]) -> float:
  return math.fsum(values) / len(values) if all(map(math.isfinite, values)) else math.nan


def _deviation(values: Sequence[float]) -> float | None:
  if len(values) < 2:
    return None
  return statistics.stdev(values) if all(map(math.isfinite, values)) else math.nan


def _best(some: Iterable, wanted: Wanted):
  """Returns the best of some results, the first among equals; None if none has a number."""
  numbered = [one for one in some if one and not math.isnan(one.value(wanted.metric))]
  return max(numbered, key=lambda one: wanted.rank(one.value(wanted.metric)), default=None)


def best_cell(found: Iterable[CellResult], wanted: Wanted) -> CellResult | None:
  """Returns the cell with the best mean of the wanted metric; None if none has a number."""
  return _best(found, wanted)


def best_run(found: Iterable[CellResult], wanted: Wanted) -> Result | None:
  """Returns the run with the best value of the wanted metric; None if none has a number."""
  return _best((one.best for one in found), wanted)


def text(found: Sequence[CellResult], wanted: Wanted) -> str:
  """Returns the table, a line a cell, and the best cell and run below."""
  names = next((one.mean for one in found if one.results), {})
  others = [name for name in names if name not in (wanted.metric, "wall_s")][:OTHERS]
  columns = [wanted.metric, *others]
  rows = [["", "runs", *columns, "best seed"]]
  for one in found:
    runs = f"{len(one.results)}" if len(one.results) == one.planned else f"{len(one.results)} of {one.planned}"
    numbers = [shown_number(one.mean[x], one.deviation[x]) if x in one.mean else "" for x in columns]
    rows.append([one.name or "all", runs, *numbers, f"{one.best.run.seed}" if one.best else ""])
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  lines = ["   ".join(x.ljust(width) for x, width in zip(row, widths, strict=True)).rstrip() for row in rows]
  return "\n".join([*lines, *_verdict(found, wanted)])


def _verdict(found: Sequence[CellResult], wanted: Wanted) -> list[str]:
  by = f"{wanted.metric} on {wanted.split}"
  cell, run = best_cell(found, wanted), best_run(found, wanted)
  lines = []
  if cell and len(found) > 1:
    mean = shown_number(cell.value(wanted.metric), cell.deviation[wanted.metric])
    lines.append(f"best cell by mean {by}: {cell.name}  {mean}, {len(cell.results)} of {cell.planned} runs")
  if run:
    value = shown_number(run.value(wanted.metric))
    if run.checkpoint:
      lines.append(f"best run by {by}: {run.checkpoint}  {value}")
    else:
      kept = f"it keeps those of {', '.join(map(str, run.kept))}" if run.kept else "it keeps none"
      said = f"whose checkpoint is not kept ({kept}; config.keep_best, config.checkpoint_every)"
      lines.append(f"best run by {by}: {run.run.workdir}  {value} at step {run.step}, {said}")
  return lines or [f"no run has a number for {by}"]


def shown_number(mean: float, deviation: float | None = None) -> str:
  """Returns a mean, and its deviation, with four digits behind the point, or two from 10 on."""
  digits = 4 if not abs(mean) >= 10 else 2
  return f"{mean:.{digits}f}" + ("" if deviation is None else f" ± {deviation:.{digits}f}")


def as_json(found: Sequence[CellResult], wanted: Wanted) -> dict:
  """Returns the cells, the best cell's name and the best run as JSON values; what is no number is null."""
  cell, run = best_cell(found, wanted), best_run(found, wanted)
  best = run and {
    "name": run.run.name,
    "workdir": str(run.run.workdir),
    "step": run.step,
    "checkpoint": run.checkpoint,
  }
  return {
    "metric": wanted.metric,
    "lower": wanted.lower,
    "pick": wanted.pick,
    "split": wanted.split,
    "cells": [
      {
        "name": one.name,
        "fields": one.fields,
        "planned": one.planned,
        "runs": len(one.results),
        "mean": numbers(one.mean),
        "deviation": numbers(one.deviation),
        "best_seed": one.best.run.seed if one.best else None,
      }
      for one in found
    ],
    "best_cell": cell.name if cell else None,
    "best_run": best and best | numbers({wanted.metric: run.value(wanted.metric)}),
  }


def numbers(values: Mapping[str, float | None]) -> dict[str, float | None]:
  """Returns values as JSON can hold them: None for what is not finite."""
  return {name: value if value is not None and math.isfinite(value) else None for name, value in values.items()}
