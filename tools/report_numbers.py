"""The numbers of a report: each metric's last and best held-out value over seeds, its curve, and the runs' speed."""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tools.report_runs import Group, Run
from tools.sweep_plan import is_lower_better
from training.report import BASELINES, is_learned

TRAIN = "train"
_MAIN_HELD_OUT = "eval"  # whose metrics carry their bare names
# What a log may say of speed.
SPEED = ("tokens_per_s", "step_s", "data_wait_s", "mfu", "hbm_peak_bytes", "wall_s")
_POINTS = 200  # of a training curve; more are averaged, so many at a time


@dataclasses.dataclass(frozen=True)
class Spread:
  """Values of a group's runs.

  Attributes:
    values: by run; not a number where a run has none.
    mean: not a number if one of them is none.
    deviation: of the sample (n - 1); None for a single run.
  """

  values: tuple[float, ...]
  mean: float
  deviation: float | None


@dataclasses.dataclass(frozen=True)
class Scored:
  """A metric of a group on held-out data.

  Attributes:
    last: values at the last evaluation of each run.
    best: values at the best one behind step 0, each metric's own.
    best_steps: where that was, by run.
    baseline: what needs no model, at the last evaluation; None where the log has none.
    baseline_name: what it is, in words.
  """

  last: Spread
  best: Spread
  best_steps: tuple[int, ...]
  baseline: Spread | None
  baseline_name: str


@dataclasses.dataclass(frozen=True)
class Series:
  """A metric of a group over steps; each array is [points]. The deviation is None for a single run."""

  steps: np.ndarray
  mean: np.ndarray
  deviation: np.ndarray | None


def spread(values: Iterable[float]) -> Spread:
  """Returns the mean and the sample deviation of values; of one that is not finite, nan."""
  values = tuple(map(float, values))
  if not all(map(math.isfinite, values)):
    return Spread(values, math.nan, None if len(values) < 2 else math.nan)
  return Spread(values, math.fsum(values) / len(values), statistics.stdev(values) if len(values) > 1 else None)


def metrics_of(groups: Sequence[Group]) -> list[str]:
  """Returns "loss" and the held-out metrics that any run has, "SPLIT/NAME" of other splits than "eval"."""
  names = dict.fromkeys(
    _full_name(record["split"], name)
    for group in groups
    for run in group.runs
    for record in run.records
    if record["split"] != TRAIN
    for name in record
    if is_learned(name)
  )
  return list({"loss": None} | names)


def _full_name(split: str, metric: str) -> str:
  return metric if split == _MAIN_HELD_OUT else f"{split}/{metric}"


def _parted(name: str) -> tuple[str, str]:
  split, _, metric = name.rpartition("/")
  return split or _MAIN_HELD_OUT, metric


def scored(group: Group, name: str) -> Scored | None:
  """Returns a metric's values; None if no run of the group has it."""
  split, metric = _parted(name)
  records = [[one for one in run.of(split) if metric in one] for run in group.runs]
  if not any(records):
    return None
  last = [some[-1] if some else {} for some in records]
  best = [_best(some, metric) for some in records]
  of = lambda some: spread(one.get(metric, math.nan) for one in some)
  baseline, said = BASELINES.get(metric, (None, ""))
  return Scored(of(last), of(best), tuple(one.get("step", -1) for one in best), _baseline(baseline, last), said)


def _best(records: Sequence[dict], metric: str) -> dict:
  """The first of the best records; that of step 0 only if there is no other."""
  sign = -1 if is_lower_better(metric) else 1
  rank = lambda record: -math.inf if math.isnan(record[metric]) else sign * record[metric]
  return max([one for one in records if one["step"]] or records, key=rank, default={})


def _baseline(baseline: Callable[[dict], float] | None, records: Sequence[dict]) -> Spread | None:
  if baseline is None:
    return None
  try:
    return spread(map(baseline, records))
  except KeyError:
    return None


def series(group: Group, split: str, metric: str, points: int = 0) -> Series | None:
  """Returns the curve of a metric over the steps that all of the group's runs have; None if there are none.

  Args:
    group: the runs.
    split: of which records.
    metric: its name in these.
    points: at most so many; neighbours are averaged within a run, before any mean over runs. 0 = all.
  """
  by_step = [{one["step"]: one[metric] for one in run.of(split) if metric in one} for run in group.runs]
  steps = np.array(sorted(set.intersection(*map(set, by_step))), float)
  if not len(steps):
    return None
  values = np.array([[some[step] for step in steps] for some in by_step], float)
  if points and len(steps) > points:
    bins = np.array_split(np.arange(len(steps)), points)
    steps = np.array([steps[some].mean() for some in bins])
    values = np.stack([values[:, some].mean(axis=1) for some in bins], axis=1)
  deviation = values.std(axis=0, ddof=1) if len(values) > 1 else None
  return Series(steps, values.mean(axis=0), deviation)


def held_out(group: Group, name: str) -> Series | None:
  """Returns the curve of a metric as `metrics_of` names it."""
  return series(group, *_parted(name))


def training(group: Group, name: str) -> Series | None:
  """Returns the curve of the same metric on the training batches."""
  return series(group, TRAIN, name, _POINTS)


def speed(group: Group) -> dict[str, Spread]:
  """Returns how fast a group's runs went, by the names in SPEED, as far as their logs say.

  Of what training records hold it takes each run's median. Where they hold no step_s, that is of the time from one
  record to the next.
  """
  records = [run.of(TRAIN) for run in group.runs]
  found = {name: _medians([[one[name] for one in some if name in one] for some in records]) for name in SPEED}
  found["step_s"] = found["step_s"] or _medians([_intervals(run) for run in group.runs])
  wall = [max((one.get("wall_s", 0.0) for one in run.records), default=0.0) for run in group.runs]
  found["wall_s"] = spread(wall) if all(wall) else None
  return {name: one for name, one in found.items() if one}


def _medians(values: Sequence[Sequence[float]]) -> Spread | None:
  return spread(map(statistics.median, values)) if all(values) else None


def _intervals(run: Run) -> list[float]:
  """Seconds a step between training records that follow one another, with nothing else between if there are such."""
  both = [(a, b) for a, b in itertools.pairwise(run.records) if a["split"] == b["split"] == TRAIN]
  if not both:
    own = run.of(TRAIN)
    both = list(itertools.pairwise(own))
  seconds = [
    (b["wall_s"] - a["wall_s"]) / (b["step"] - a["step"])
    for a, b in both
    if "wall_s" in a and "wall_s" in b and b["step"] > a["step"]
  ]
  return [one for one in seconds if one > 0]


def as_json(groups: Sequence[Group]) -> dict:
  """Returns the tables as JSON values; what is no number is null."""
  return {
    "metrics": metrics_of(groups),
    "differing": list(groups[0].fields),
    "groups": [_group_as_json(group, metrics_of(groups)) for group in groups],
  }


def _group_as_json(group: Group, names: Sequence[str]) -> dict:
  found = {name: one for name in names if (one := scored(group, name))}
  return {
    "name": group.name,
    "fields": group.fields,
    "seeds": group.seeds,
    "workdirs": [str(run.workdir) for run in group.runs],
    "steps": [run.reached for run in group.runs],
    "finished": sum(run.is_finished for run in group.runs),
    "metrics": {
      name: {
        "last": _spread_as_json(one.last),
        "best": _spread_as_json(one.best) | {"steps": list(one.best_steps)},
        "baseline": _spread_as_json(one.baseline) and _spread_as_json(one.baseline) | {"name": one.baseline_name},
      }
      for name, one in found.items()
    },
    "speed": {name: _spread_as_json(one) for name, one in speed(group).items()},
  }


def _spread_as_json(some: Spread | None) -> dict | None:
  number = lambda x: x if x is not None and math.isfinite(x) else None
  return some and {
    "mean": number(some.mean),
    "deviation": number(some.deviation),
    "values": [number(x) for x in some.values],
  }
