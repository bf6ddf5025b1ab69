"""Small pieces of a report's HTML: text, names of groups, numbers, tables."""

import html
import math
from collections.abc import Sequence

from tools.report_charts import style_of
from tools.report_numbers import Spread
from tools.report_runs import Group
from tools.sweep_plan import is_lower_better

NOTHING = '<span class="soft">–</span>'
_SHAPES = {  # of report_charts.MARKERS, in a square of 12
  "o": '<circle cx="6" cy="6" r="4.6"/>',
  "s": '<rect x="1.8" y="1.8" width="8.4" height="8.4"/>',
  "^": '<path d="M6 .9 11.3 10.6H.7z"/>',
  "D": '<path d="M6 .5 11.5 6 6 11.5.5 6z"/>',
  "v": '<path d="M6 11.1.7 1.4h10.6z"/>',
  "P": '<path d="M4.2.8h3.6v3.4h3.4v3.6H7.8v3.4H4.2V7.8H.8V4.2h3.4z"/>',
  "X": '<path d="M3.2.7 6 3.5 8.8.7l2.5 2.5L8.5 6l2.8 2.8-2.5 2.5L6 8.5l-2.8 2.8L.7 8.8 3.5 6 .7 3.2z"/>',
}


def text(value: object) -> str:
  """Returns a value as HTML text."""
  return html.escape(str(value))


def code(value: object) -> str:
  """Returns a value in the type of code."""
  return f'<span class="field">{text(value)}</span>'


def note(said: str) -> str:
  """Returns a remark."""
  return f'<p class="note">{text(said)}</p>'


def chip(number: int) -> str:
  """Returns the mark of the group of a number, as its curves have it."""
  place, marker = style_of(number)
  colour = f"fill:var(--c{place})"
  return f'<svg class="chip" viewBox="0 0 12 12" style="{colour}" aria-hidden="true">{_SHAPES[marker]}</svg>'


def name(number: int, group: Group) -> str:
  """Returns a group's mark and name, which may break after an equals sign."""
  broken = text(group.name).replace("=", "=<wbr>")
  return f'<span class="name">{chip(number)}<span>{broken}</span></span>'


def table(head: Sequence[str], rows: Sequence[str], kind: str = "") -> str:
  """Returns a table of header cells and `row`s; `kind` is its class."""
  cells = "".join(f"<th>{cell}</th>" for cell in head)
  kind = f' class="{kind}"' if kind else ""
  return f"<table{kind}><thead><tr>{cells}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def row(first: str, cells: Sequence[str], kind: str = "") -> str:
  """Returns a line of a table: its header cell and the others, all HTML already."""
  kind = f' class="{kind}"' if kind else ""
  return f"<tr{kind}><th>{first}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def wide(inner: str) -> str:
  """Returns a box in which a table that is too wide can be moved."""
  return f'<div class="wide" tabindex="0">{inner}</div>'


def value(some: Spread | None, is_best: bool = False) -> str:
  """Returns a mean and its deviation, or what is there of them."""
  if some is None:
    return NOTHING
  if math.isnan(some.mean):
    return '<span class="soft">not a number</span>'
  digits = 4 if abs(some.mean) < 10 else 2
  mean = f'<span class="best">{some.mean:.{digits}f}</span>' if is_best else f"{some.mean:.{digits}f}"
  return mean if some.deviation is None else mean + deviation(f"{some.deviation:.{digits}f}")


def best_of(metric: str, values: Sequence[Spread | None]) -> int | None:
  """Returns the number of the one best mean; None where there is nothing to compare, or several are as good."""
  means = {number: one.mean for number, one in enumerate(values) if one and not math.isnan(one.mean)}
  best = (min if is_lower_better(metric) else max)(means.values(), default=None)
  first = [number for number, mean in means.items() if mean == best]
  return first[0] if len(first) == 1 < len(means) else None


def around(values: Sequence[float]) -> str:
  """Returns one value where all agree to the digits shown, else the least and the greatest."""
  ends = list(dict.fromkeys(f"{one:.4f}" for one in (min(values), max(values)))) if values else []
  return " to ".join(ends)


def seconds(some: Spread) -> str:
  """Returns a time and its deviation in the unit that suits the time: 12 ms, 3.4 s, 5 min 06 s, 2 h 05 min."""
  for below, scale, unit in ((0.0995, 1e3, "ms"), (99.5, 1, "s")):
    if some.mean < below:
      return f"{some.mean * scale:.3g} {unit}{_around(some, scale, unit)}"
  minutes, rest = divmod(round(some.mean), 60)
  if minutes < 60:
    return f"{minutes} min {rest:02d} s{_around(some, 1, 's')}"
  return f"{minutes // 60} h {minutes % 60:02d} min{_around(some, 1 / 60, 'min')}"


def _around(some: Spread, scale: float, unit: str) -> str:
  if some.deviation is None:
    return ""
  scaled = some.deviation * scale
  return deviation(f"{scaled:.1f} {unit}" if scaled >= 1 else f"{scaled:.1g} {unit}")


def deviation(text: str) -> str:
  """Returns a deviation as it stands behind its mean."""
  return f' <span class="sd">± {text}</span>'
