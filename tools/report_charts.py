"""The pictures of a report, drawn by matplotlib: curves with bands, and grids of attention.

A chart is drawn twice: for the page as SVG without fonts and with the page's colours, so that it follows a light or a
dark scheme, and as PNG, complete in itself.
"""

import contextlib
import io
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tools.report_numbers import Series

try:
  import matplotlib
  from matplotlib.colors import LinearSegmentedColormap
  from matplotlib.figure import Figure
  from matplotlib.ticker import FuncFormatter, MaxNLocator
except ImportError:  # said by `check`
  matplotlib = None

# Okabe and Ito's palette, without its yellow and black: told apart with any kind of colour blindness.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#c2649a", "#c98a00", "#3d9dd8", "#6b6b6b")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # as the colours; a second round of groups has them shifted by one
_STEPS = (1, 2, 2.5, 5, 10)  # between ticks, up to a power of ten
INK, SOFT, LINE = "#1f2328", "#59636e", "#d8dee4"
ATTENTION = "#0072b2"
# What stands in an SVG for each colour until the page's variable takes its place.
_VARIABLES = {f"#0a00{i:02x}": f"var(--c{i})" for i in range(len(COLOURS))} | {
  "#0b0001": "var(--ink)",
  "#0b0002": "var(--soft)",
  "#0b0003": "var(--line)",
}


class Theme(NamedTuple):
  """The colours of a chart: of groups, of text, of lesser text, of lines of the grid."""

  groups: tuple[str, ...]
  ink: str
  soft: str
  line: str


PAGE = Theme(*(lambda names: (tuple(names[:-3]), *names[-3:]))(list(_VARIABLES)))
PICTURE = Theme(COLOURS, INK, SOFT, LINE)


class Curve(NamedTuple):
  """A group in a chart."""

  number: int  # of the group; decides colour and marker
  name: str
  held_out: Series | None
  training: Series | None


def check() -> None:
  """Raises ValueError if matplotlib is not there."""
  if matplotlib is None:
    raise ValueError(
      "matplotlib draws the report and is not installed; "
      "pip install -c requirements.lock -r requirements-report.txt (--json needs none)"
    )


def style_of(number: int) -> tuple[int, str]:
  """Returns the colour's place in COLOURS and the marker of the group of a number."""
  round_, place = divmod(number, len(COLOURS))
  return place, MARKERS[(place + round_) % len(MARKERS)]


def curves(
  title: str, some: Sequence[Curve], baselines: Sequence[float], theme: Theme, size: tuple[float, float], legend: bool
) -> "Figure":
  """Returns a chart of a metric: held-out values with markers, those of training thin, one deviation around both.

  The axis of values spans what comes behind the first tenth of the steps, if that is more than two points: the fall
  from random weights runs off it.

  Args:
    title: the metric's name.
    some: a curve a group.
    baselines: values to draw a line at.
    theme: colours.
    size: in inches.
    legend: whether title and names stand in the picture.
  """
  with _settings():
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    for curve in some:
      place, marker = style_of(curve.number)
      colour = theme.groups[place]
      if curve.training:
        _line(axes, curve.training, colour, linewidth=1, alpha=0.55, linestyle=(0, (2, 1.2)), band=0.08)
      if curve.held_out:
        many = len(curve.held_out.steps) > 30
        _line(
          axes,
          curve.held_out,
          colour,
          linewidth=1.8,
          marker=None if many else marker,
          markersize=4.5,
          band=0.2,
          label=curve.name,
        )
    for value in baselines:
      axes.axhline(value, color=theme.soft, linewidth=1, linestyle=(0, (1, 2)), label="_")
    if span := value_span(some, baselines):
      axes.set_ylim(*span)
    _dress(axes, theme)
    if legend:
      axes.set_title(title, loc="left", color=theme.ink)
      _legend(figure, axes, theme, bool(baselines), any(one.training for one in some))
  return figure


def _line(axes, series: Series, colour: str, band: float, **style) -> None:
  axes.plot(series.steps, series.mean, color=colour, **style)
  if series.deviation is not None:
    low, high = series.mean - series.deviation, series.mean + series.deviation
    axes.fill_between(series.steps, low, high, color=colour, alpha=band, linewidth=0)


def value_span(some: Sequence[Curve], baselines: Sequence[float]) -> tuple[float, float] | None:
  """Returns the least and the greatest value to show, with a margin; None if there is no finite one."""
  every = [series for curve in some for series in (curve.held_out, curve.training) if series]
  if not every:
    return None
  start = max(series.steps[-1] for series in every) / 10
  values = list(baselines)
  for series in every:
    late = series.steps >= start
    late = late if late.sum() > 2 else slice(None)
    deviation = 0 if series.deviation is None else series.deviation[late]
    values += [*(series.mean[late] - deviation), *(series.mean[late] + deviation)]
  values = [value for value in values if np.isfinite(value)]
  if not values:
    return None
  margin = 0.06 * (max(values) - min(values)) or 0.05 * abs(max(values)) or 0.1
  return min(values) - margin, max(values) + margin


def _dress(axes, theme: Theme) -> None:
  axes.grid(axis="y", color=theme.line, linewidth=0.8)
  axes.set_axisbelow(True)
  for name, spine in axes.spines.items():
    spine.set_visible(name == "bottom")
    spine.set_color(theme.line)
  axes.tick_params(colors=theme.soft, length=0, pad=5)
  axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=_STEPS))
  axes.yaxis.set_major_locator(MaxNLocator(6, steps=_STEPS, min_n_ticks=3))
  axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: steps_text(step)))
  axes.set_xlabel("step", color=theme.soft, loc="right", labelpad=1)
  axes.margins(x=0.02)


def steps_text(step: float) -> str:
  """Returns a number of steps in four characters or so: 800, 1.5k, 2M."""
  for size, letter in ((1e6, "M"), (1e3, "k")):
    if abs(step) >= size:
      return f"{step / size:.3g}{letter}"
  return f"{step:.3g}"


def _legend(figure, axes, theme: Theme, baselines: bool, training: bool) -> None:
  handles, labels = axes.get_legend_handles_labels()
  line = lambda **style: matplotlib.lines.Line2D([], [], color=theme.soft, **style)
  if training:
    handles, labels = [*handles, line(linewidth=1, linestyle=(0, (2, 1.2)))], [*labels, "training"]
  if baselines:
    handles, labels = [*handles, line(linewidth=1, linestyle=(0, (1, 2)))], [*labels, "without a model"]
  columns = 1 if max(map(len, labels), default=0) > 34 else 2
  figure.legend(
    handles, labels, loc="outside lower left", ncols=columns, frameon=False, labelcolor=theme.ink, fontsize=10
  )


@contextlib.contextmanager
def _settings() -> Iterator[None]:
  with matplotlib.rc_context({"font.size": 11, "axes.titlesize": 13, "axes.titleweight": "bold"}):
    yield


def attention_grid(name: str, pieces: Sequence[str], probabilities: np.ndarray) -> "Figure":
  """Returns a grid of heat maps of a sentence, layers down and heads across; rows of a map look at its columns.

  Args:
    name: whose attention it is.
    pieces: the sentence's n tokens.
    probabilities: float [layers, heads, n, n].
  """
  layers, heads, n, _ = probabilities.shape
  side = min(max(0.14 * n, 1.1), 2.6) if heads <= 4 else 1.0
  colours = LinearSegmentedColormap.from_list("attention", ["#ffffff", ATTENTION])
  with _settings():
    figure = Figure(figsize=(side * heads + 1.4, side * layers + 1.6), layout="constrained")
    figure.suptitle(name, color=INK, x=0.01, ha="left", fontsize=13, fontweight="bold")
    grid = figure.subplots(layers, heads, squeeze=False)
    for layer in range(layers):
      for head in range(heads):
        axes = grid[layer, head]
        axes.imshow(probabilities[layer, head] ** 0.5, cmap=colours, vmin=0, vmax=1, interpolation="nearest")
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
          spine.set_color(LINE)
        if side > 1:
          _label(axes, pieces, head == 0, layer == layers - 1, min(8.0, 60 * side / n))
        if layer == 0:
          axes.set_title(f"head {head + 1}", color=SOFT, fontsize=9, fontweight="normal")
      grid[layer, 0].set_ylabel(f"layer {layer + 1}", color=SOFT, fontsize=9)
  return figure


def _label(axes, pieces: Sequence[str], rows: bool, columns: bool, size: float) -> None:
  """Writes the tokens beside the rows and below the columns, where asked."""
  if columns:
    axes.set_xticks(range(len(pieces)), pieces, rotation=90, fontsize=size, color=SOFT)
  if rows:
    axes.set_yticks(range(len(pieces)), pieces, fontsize=size, color=SOFT)
  axes.tick_params(length=0, pad=2)


def as_svg(figure: "Figure", name: str) -> str:
  """Returns a figure drawn in PAGE as an element of an HTML page, in its colours and fonts; it has no size of its own.

  Args:
    figure: what to write.
    name: told to who does not see it; tells its parts' ids from those of other figures.
  """
  written = io.StringIO()
  with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
    figure.savefig(written, format="svg", transparent=True)
  text = written.getvalue()
  box = re.search(r'viewBox="([^"]*)"', text)[1]
  body = text[text.index("</metadata>") + len("</metadata>") : text.rindex("</svg>")]
  body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
  body = re.sub(r'<g id="[^"]*"', "<g", body).replace("xlink:href=", "href=")
  body = re.sub(r" ?font-family: [^;\"]*;?", "", body)
  body = re.sub(r"#0[ab]00\d\d", lambda match: _VARIABLES[match[0]], body)
  body = re.sub(r"\s*\n\s*", "\n", body).strip()
  return f'<svg viewBox="{box}" role="img"><title>{_escaped(name)}</title>{body}</svg>'


def _escaped(text: str) -> str:
  return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def as_png(figure: "Figure") -> bytes:
  """Returns a figure as the bytes of a PNG file, the same for the same figure."""
  written = io.BytesIO()
  figure.savefig(written, format="png", dpi=160, facecolor="white", metadata={"Software": None})
  return written.getvalue()
