"""The tables of a report: held-out scores, speed, and how the configs differ."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from tools import report_html as h
from tools import report_numbers, report_runs
from tools.report_numbers import Scored, Spread
from tools.report_runs import Group, shown
from tools.sweep_plan import is_lower_better


class Chart(NamedTuple):
  """A metric, its values by group, and its curves as an SVG element."""

  metric: str
  scored: list[Scored | None]
  svg: str


def scores(groups: Sequence[Group], charts: Sequence[Chart]) -> str:
  """A row a group, a column a metric: the last evaluation."""
  charts = [chart for chart in charts if any(chart.scored)]
  if not charts:
    return h.note("No run has an evaluation yet.")
  last = {chart.metric: [one and one.last for one in chart.scored] for chart in charts}
  best = {metric: h.best_of(metric, values) for metric, values in last.items()}
  rows = []
  for number, group in enumerate(groups):
    values = [h.value(some[number], best[metric] == number) for metric, some in last.items()]
    mark = "" if all(run.is_finished for run in group.runs) else " †"
    rows.append(h.row(h.name(number, group), [f"{len(group.runs)}{mark}", *values]))
  beside = [baselines(chart) for chart in charts]
  if any(beside):
    rows.append(h.row("without a model", ["", *map(h.around, beside)], "beside"))
  heads = [f"{h.code(metric)} {'↓' if is_lower_better(metric) else '↑'}" for metric in last]
  said = "Mean ± deviation of the last evaluation; the best mean of a column is bold. ↓ less is better, ↑ more is."
  if not all(run.is_finished for group in groups for run in group.runs):
    said += " † a run is not finished: its last evaluation is an earlier one."
  return h.note(said) + h.wide(h.table(["", "n", *heads], rows))


def baselines(chart: Chart) -> list[float]:
  """Returns the finite baselines of the groups."""
  values = [one.baseline.mean for one in chart.scored if one and one.baseline]
  return [value for value in values if math.isfinite(value)]


# What speed has → head of the column, and a number's text.
_SPEED = {
  "tokens_per_s": ("tokens/s", lambda some: _scaled(some, "{:,.0f}")),
  "step_s": ("a step", h.seconds),
  "data_wait_s": ("waiting for data", h.seconds),
  "mfu": ("MFU", lambda some: _scaled(some, "{:.1f} %", 100)),
  "hbm_peak_bytes": ("device memory", lambda some: _scaled(some, "{:.2f} GiB", 2**-30)),
  "wall_s": ("whole run", h.seconds),
}


def _scaled(some: Spread, form: str, scale: float = 1) -> str:
  beside = "" if some.deviation is None else h.deviation(form.format(some.deviation * scale))
  return form.format(some.mean * scale) + beside


def speed(groups: Sequence[Group]) -> str:
  """A row a group; the bar below tokens/s is its share of the fastest."""
  found = [report_numbers.speed(group) for group in groups]
  known = [name for name in _SPEED if any(name in one for one in found)]
  if not known:
    return h.note("No log says how fast its run was.")
  fastest = max((one["tokens_per_s"].mean for one in found if "tokens_per_s" in one), default=0)
  rows = []
  for number, (group, one) in enumerate(zip(groups, found, strict=True)):
    cells = [_SPEED[name][1](one[name]) if name in one else h.NOTHING for name in known]
    if "tokens_per_s" in one and len(groups) > 1:
      cells[0] += f'<span class="bar"><i style="width:{100 * one["tokens_per_s"].mean / fastest:.1f}%"></i></span>'
    rows.append(h.row(h.name(number, group), cells))
  said = "Medians over the training records of a run, then mean ± deviation over seeds. Tokens are without padding; "
  said += "the whole run is with compiling, evaluations and checkpoints."
  return h.note(said) + h.wide(h.table(["", *(_SPEED[name][0] for name in known)], rows))


def configs(groups: Sequence[Group]) -> str:
  """What differs, a row a field; folded away, what does not, and the runs."""
  if fields := list(groups[0].fields):
    rows = [h.row(h.code(name), [h.code(shown(group.fields[name])) for group in groups]) for name in fields]
    parts = [h.wide(h.table(["", *(h.name(*one) for one in enumerate(groups))], rows, "dense"))]
  else:
    parts = [h.note("There is one config; its runs differ in nothing but the seed and paths.")]
  same = report_runs.common(groups)
  entries = "".join(
    f'<div>{h.code(name)}<span class="field value soft">{h.text(shown(value))}</span></div>'
    for name, value in sorted(same.items())
  )
  summary = f"{len(same)} fields that all have alike" if fields else f"All {len(same)} fields"
  parts.append(f'<details><summary>{summary}</summary><div class="common">{entries}</div></details>')
  parts.append(f"<details><summary>The runs</summary>{h.wide(_runs(groups))}</details>")
  return "".join(parts)


def _runs(groups: Sequence[Group]) -> str:
  rows = []
  for number, group in enumerate(groups):
    for run in group.runs:
      said = [] if run.is_finished else ["not finished"]
      if run.left_out > 1:
        said.append(f"{run.left_out} lines of the log behind a damaged one are left out")
      wall = h.seconds(report_numbers.spread([max(record.get("wall_s", 0.0) for record in run.records)]))
      steps = f"{run.reached:,} of {run.config['steps']:,}"
      cells = [str(run.seed), steps, wall, h.code(run.workdir), h.text("; ".join(said))]
      rows.append(h.row(h.name(number, group), cells))
  return h.table(["group", "seed", "steps", "time", "workdir", ""], rows, "text")
