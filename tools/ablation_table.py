"""What tools.ablations found: a file of numbers, and tables made of it."""

import json
import math
import pathlib
import statistics
from collections.abc import Sequence

from scipy.stats import ttest_1samp

from tools import sweep_plan
from tools.ablation_plan import COMPARISONS, PRETRAINING, TASKS, Arm, Comparison, Measure, Needs
from tools.sweep_plan import Run
from tools.sweep_table import ASIDE

_FLAGS = ("steps", "vocab_size")  # what of the scale the command line says


class Results:
  """The last evaluation of every finished run, in a file: {"scale": …, "arms": {arm: {what: {seed: {metric: value}}}}}.

  Args:
    path: the file, which need not be there.
    scale: as ablation_plan.scale returns it.

  Raises:
    ValueError: the file is of another scale, or none of these.
  """

  def __init__(self, path: pathlib.Path, scale: dict):
    self._path = path
    self.values = {"scale": scale, "arms": {}}
    if path.exists():
      try:
        self.values = json.loads(path.read_text(encoding="utf-8"))
        before = dict(self.values["scale"])
        for of in self.values["arms"].values():
          for by_seed in of.values():
            for seed, metrics in by_seed.items():
              int(seed), metrics.items()
      except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} is no file of tools.ablations; delete it, or use another --output") from None
      if differ := [name for name in scale if before.get(name) != scale[name]]:
        name = differ[0]
        if name in _FLAGS and name in before:
          raise ValueError(f"{path} is of --{name}={before[name]}; use that, or another --output")
        raise ValueError(f"{path} is of another small scale, whose {name!r} differ from today's; use another --output")

  def of(self, arm: Arm, what: str, seed: int) -> dict[str, float] | None:
    return self.values["arms"].get(arm.name, {}).get(what, {}).get(str(seed))

  def missing_runs(self, need: Needs) -> list[Run]:
    """Returns the runs whose numbers are not there; the pretraining, too, where another needs its weights."""
    seed = need.pretraining.seed
    runs = [run for what, run in need.after.items() if self.of(need.arm, what, seed) is None]
    here = self.of(need.arm, PRETRAINING, seed) and (not runs or sweep_plan.is_finished(need.pretraining))
    return runs if here else [need.pretraining, *runs]

  def missing(self, need: Needs) -> bool:
    return bool(self.missing_runs(need))

  def take_finished(self, need: Needs) -> None:
    """Takes the numbers of runs that were finished when nobody looked."""
    for what, run in {PRETRAINING: need.pretraining, **need.after}.items():
      if self.of(need.arm, what, run.seed) is None and sweep_plan.is_finished(run):
        self.take(need, run)

  def take(self, need: Needs, run: Run) -> str:
    """Takes a finished run's numbers, and says the main ones."""
    what = next(what for what, one in {PRETRAINING: need.pretraining, **need.after}.items() if one == run)
    # A question is asked of the weights as they were; its one step learns nothing.
    record = sweep_plan.evaluations(run)[-1]
    found = {name: value for name, value in record.items() if name not in ASIDE}
    self.values["arms"].setdefault(need.arm.name, {}).setdefault(what, {})[str(run.seed)] = found
    asked = {m.metric for c in COMPARISONS.values() if need.arm in c.arms for m in c.measures if m.of == what}
    return "  ".join(f"{name} {found[name]:.4f}" for name in sorted(asked & found.keys()))

  def write(self) -> None:
    """Writes the file, if there are numbers."""
    if not self.values["arms"]:
      return
    self._path.parent.mkdir(parents=True, exist_ok=True)
    sweep_plan.write(self._path, json.dumps(self.values, indent=1))

  def series(self, arm: Arm, measure: Measure) -> dict[int, float]:
    """Returns a measure by seed."""
    by_seed = self.values["arms"].get(arm.name, {}).get(measure.of, {})
    return {int(seed): values[measure.metric] for seed, values in sorted(by_seed.items()) if measure.metric in values}


def text(names: Sequence[str], results: Results) -> str:
  """Returns a Markdown table for each comparison, and whether the paper's order is there."""
  return "\n\n".join(_table(COMPARISONS[name], results) for name in names)


def _table(comparison: Comparison, results: Results) -> str:
  measures = comparison.measures
  head = ["", "seeds", *(m.title + (" (less is better)" if m.lower else "") for m in measures), "wall, min"]
  rows = [head, ["---"] * len(head)]
  for arm in comparison.arms:
    series = [results.series(arm, m) for m in measures]
    counts = sorted({len(some) for some in series})
    wall = list(results.series(arm, Measure(PRETRAINING, "wall_s")).values())
    minutes = f"{statistics.mean(wall) / 60:.1f}" if wall else ""
    rows.append([arm.row, " to ".join(map(str, dict.fromkeys((counts[0], counts[-1])))), *map(_mean, series), minutes])
  first = comparison.arms[0]
  for arm in comparison.arms[1:]:
    differences = [_difference(results.series(arm, m), results.series(first, m)) for m in measures]
    rows.append([f"{arm.row} - {first.row}", "", *map(_shown_difference, differences), ""])
  lines = [f"**{comparison.title}**", "", *(f"| {' | '.join(row)} |" for row in rows), ""]
  return "\n".join([*lines, f"{comparison.said}. {_verdict(comparison, results)}"])


def _mean(series: dict[int, float]) -> str:
  values = list(series.values())
  if not values:
    return ""
  return f"{statistics.mean(values):.3f}" + (f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else "")


def _difference(series: dict[int, float], other: dict[int, float]) -> list[float]:
  """Differences over the seeds that both have."""
  return [series[seed] - other[seed] for seed in series.keys() & other.keys()]


def _shown_difference(found: list[float]) -> str:
  if not found:
    return ""
  return f"{statistics.mean(found):+.3f}" + (f" ± {_error(found):.3f}" if len(found) > 1 else "")


def _shown_p(p: float) -> str:
  return f"p {p:.2f}" if p >= 0.01 else "p < 0.01"


def _error(values: list[float]) -> float:
  """The standard error of the mean."""
  return statistics.stdev(values) / math.sqrt(len(values))


def _verdict(comparison: Comparison, results: Results) -> str:
  """Says for each of the paper's pairs and each task in how many seeds its order is there, and how likely chance is."""
  arms = {arm.row: arm for arm in comparison.arms}
  said = []
  for better, worse in comparison.paper:
    for measure in (one for one in comparison.measures if one.of in TASKS):
      found = _difference(results.series(arms[better], measure), results.series(arms[worse], measure))
      if found:
        p = f", {_shown_p(ttest_1samp(found, 0).pvalue)}" if len(found) > 1 and _error(found) else ""
        said.append(f"{better} over {worse} on {measure.title} in {sum(x > 0 for x in found)} of {len(found)} seeds{p}")
  return ("Here: " + "; ".join(said) + ".") if said else "Here: nothing yet."
