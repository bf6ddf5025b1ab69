"""The page of a report: one HTML file that fetches nothing, neither fonts nor scripts nor pictures."""

import pathlib
from collections.abc import Sequence

from data.wordpiece import MASK
from tools import cli, report_charts, report_tables
from tools import report_html as h
from tools.report_attention import attention
from tools.report_looks import Filled, Looks
from tools.report_numbers import TRAIN
from tools.report_runs import Group
from tools.report_tables import Chart, baselines
from tools.sweep_plan import is_lower_better

_READING = (
  "Values are means over the seeds of a group ± the sample deviation (n − 1). “Last” is each run’s last evaluation; "
  "“best” is the best one behind step 0, of each metric and run by itself: picked on what it is measured on, it "
  "flatters. Runs are one group if their configs differ in nothing but the seed and paths."
)


def page(
  title: str,
  groups: Sequence[Group],
  charts: Sequence[Chart],
  texts: Sequence[str],
  sentence: str,
  looks: Sequence[Looks],
) -> str:
  """Returns the page.

  Args:
    title: its heading.
    groups: the runs.
    charts: by metric.
    texts: whose blanks are filled.
    sentence: whose attention is shown; "" = none.
    looks: what the groups' models do of both; () if nothing is asked.
  """
  sections = {
    "scores": ("Held-out scores", report_tables.scores(groups, charts)),
    "curves": ("Curves", _curves(groups, charts)),
    "speed": ("Speed", report_tables.speed(groups)),
    "configs": ("Configs", report_tables.configs(groups)),
  }
  if texts:
    sections["blanks"] = ("Blanks", _blanks(groups, texts, looks))
  if sentence:
    names = [h.name(*one) for one in enumerate(groups)]
    sections["attention"] = ("Attention", attention(names, sentence, [one.attention for one in looks]))
  links = "".join(f'<a href="#{name}">{heading}</a>' for name, (heading, _) in sections.items())
  body = "\n".join(f'<section id="{name}"><h2>{head}</h2>{inner}</section>' for name, (head, inner) in sections.items())
  style = pathlib.Path(__file__).with_name("report.css").read_text(encoding="utf-8")
  return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{h.text(title)}</title>
<style>
{style}</style></head>
<body><main>
<header><h1>{h.text(title)}</h1><p class="soft">{h.text(counted(groups))}</p>
{_legend(groups)}<nav>{links}</nav></header>
{body}
<footer>{_READING}</footer>
</main></body></html>
"""


def counted(groups: Sequence[Group]) -> str:
  """Returns how many runs, groups and seeds there are, in words."""
  runs = [run for group in groups for run in group.runs]
  seeds = sorted({len(group.runs) for group in groups})
  of = cli.counted(seeds[0], "seed") if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
  each = " each" if len(groups) > 1 else ""
  unfinished = sum(not run.is_finished for run in runs)
  left = f"; {unfinished} not finished" if unfinished else ""
  return f"{cli.counted(len(runs), 'run')} in {cli.counted(len(groups), 'group')}, {of}{each}{left}"


def _legend(groups: Sequence[Group]) -> str:
  items = "".join(f"<li>{h.name(*one)}</li>" for one in enumerate(groups))
  return f'<ul class="groups">{items}</ul>' if len(groups) > 1 else ""


def _curves(groups: Sequence[Group], charts: Sequence[Chart]) -> str:
  line = lambda style: f'<svg viewBox="0 0 30 10"><path d="M0 5H30" style="stroke:var(--soft);{style}"/></svg>'
  band = '<svg viewBox="0 0 30 10"><path d="M0 0H30V10H0z" style="fill:var(--soft);opacity:.25"/></svg>'
  key = [line("stroke-width:2") + "held-out"]
  if any(run.of(TRAIN) for group in groups for run in group.runs):
    key.append(line("stroke-width:1;stroke-dasharray:3 2") + "training")
  if any(len(group.runs) > 1 for group in groups):
    key.append(band + "± one deviation over seeds")
  if any(map(baselines, charts)):
    key.append(line("stroke-width:1;stroke-dasharray:1 2.5") + "without a model")
  cards = "".join(_card(groups, chart) for chart in charts)
  return (
    h.note("What happens in the first tenth of the steps may run off the axis of values.")
    + f'<p class="key">{"".join(f"<span>{one}</span>" for one in key)}</p><div class="cards">{cards}</div>'
  )


def _card(groups: Sequence[Group], chart: Chart) -> str:
  """The curves of a metric, and below them its best values."""
  best = [one and one.best for one in chart.scored]
  first, rows = h.best_of(chart.metric, best), []
  for number, (group, one) in enumerate(zip(groups, chart.scored, strict=True)):
    if one:
      steps = dict.fromkeys(report_charts.steps_text(step) for step in (min(one.best_steps), max(one.best_steps)))
      rows.append(h.row(h.name(number, group), [h.value(one.best, first == number), "–".join(steps)]))
  if values := baselines(chart):
    said = next(one.baseline_name for one in chart.scored if one and one.baseline)
    rows.append(h.row(h.text(said), [h.around(values), ""], "beside"))
  better = "less is better" if is_lower_better(chart.metric) else "more is better"
  head = f'<div class="head"><h3>{h.code(chart.metric)}</h3><span class="soft">{better}</span></div>'
  table = h.table(["", "best", "at step"], rows) if rows else ""
  return f'<article class="card">{head}<div class="chart">{chart.svg}</div>{table}</article>'


def _blanks(groups: Sequence[Group], texts: Sequence[str], looks: Sequence[Looks]) -> str:
  said = "The likeliest pieces by the first seed of each group. Of several blanks, one is filled at a time."
  parts = [h.note(said)]
  for index, text in enumerate(texts):
    marked = h.text(text).replace(h.text(MASK), f'<span class="blank">{MASK}</span>')
    parts.append(f'<p class="text-of">{marked}</p><div class="cards few">')
    for number, (group, look) in enumerate(zip(groups, looks, strict=True)):
      inner = h.note(look.filled) if isinstance(look.filled, str) else _filled(look.filled[index])
      parts.append(f'<article class="card"><h3>{h.name(number, group)}</h3>{inner}</article>')
    parts.append("</div>")
  return "".join(parts)


def _filled(blanks: Filled) -> str:
  lists = []
  for number, pieces in enumerate(blanks, 1):
    items = "".join(
      f"<li><b>{h.text(piece)}</b><span>{p:.3f}</span>"
      f'<span class="bar"><i style="width:{100 * p:.1f}%"></i></span></li>'
      for piece, p in pieces
    )
    title = f'<p class="which-blank">blank {number}</p>' if len(blanks) > 1 else ""
    lists.append(f'{title}<ol class="pieces">{items}</ol>')
  return "".join(lists)
