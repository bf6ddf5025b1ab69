"""The pictures of tools.geometry: a chart a measure, drawn as a report's."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tools.geometry_joint import ORDERS
from tools.geometry_tables import KINDS, SAID, order_name
from tools.geometry_vectors import POOLING
from tools.report_charts import COLOURS, INK, LINE, MARKERS, SOFT

if TYPE_CHECKING:
  from matplotlib.figure import Figure

_SIZE = (6.4, 4.2)  # inches
_LETTER = 0.015  # of the longest bar, about
_CORRELATIONS = {"pearson": "Pearson's r", "spearman": "Spearman's ρ"}


def anisotropy(found: dict) -> "Figure":
  """Draws the mean cosines by layer, with two standard errors."""
  figure, (axes,) = _figure("Mean cosine of vectors in different texts", "layer", "mean cosine")
  for number, name in enumerate(("tokens", "cls", "same_piece")):
    some = [(one["layer"], *one[name]) for one in found["layers"] if one[name]]
    if some:
      layers, means, errors = zip(*some, strict=True)
      errors = [2 * error if error is not None else 0 for error in errors]
      _line(axes, number, layers, means, SAID[name], errors)
  axes.axhline(0, color=SOFT, linewidth=1)
  _finish(figure, axes, "bars: two standard errors")
  return figure


def pooling(found: dict) -> "Figure":
  """Draws the correlations with people's score by layer, a panel a coefficient."""
  figure, both = _figure("Cosine of two sentences against people's score, STS-B", "layer", "", _CORRELATIONS.values())
  for axes, measure in zip(both, _CORRELATIONS, strict=True):
    for number, name in enumerate(POOLING):
      some = [(one["layer"], one[name][measure]) for one in found["layers"] if one[name][measure] is not None]
      if some:
        _line(axes, number, *zip(*some, strict=True), SAID[name])
    if found["pooler"]:
      last = found["layers"][-1]["layer"]
      _line(axes, len(POOLING), [last], [found["pooler"][measure]], "pooler's output")
  _finish(figure, both[0])
  return figure


def overlap(found: dict) -> "Figure":
  """Draws the accuracy on pairs by quartile of the pieces they share, with two standard errors."""
  true, false = KINDS[found["pair"]]
  title = f"{found['pair'].upper()} by how many pieces the segments share"
  figure, (axes,) = _figure(title, "quartile of the overlap", "accuracy")
  names = {"all": "all pairs", "true_pairs": true, "false_pairs": false}
  for number, (name, said) in enumerate(names.items()):
    some = [(i, *one[name]) for i, one in enumerate(found["quartiles"]) if one[name]]
    if some:
      places, means, errors = zip(*some, strict=True)
      _line(axes, number, places, means, said, [2 * error for error in errors])
  spans = [one["overlap"] for one in found["quartiles"]]
  axes.set_xticks(range(4), ["{:.2f} to {:.2f}".format(*span) if span else "none" for span in spans])
  axes.axhline(0.5, color=SOFT, linewidth=1, linestyle=(0, (1, 2)))
  _finish(figure, axes, "bars: two standard errors")
  return figure


def joint(found: dict) -> "Figure":
  """A bar a way to predict the span, as long as -log P, in parts by word; the shorter the better."""
  texts = found["texts"]
  ways = ("independent", *ORDERS)
  figure, (axes,) = _figure(
    "The words of a span, each by itself and one after another", "", "", size=(7.2, 1.4 + 1.15 * len(texts))
  )
  widest = max(-one[name]["joint"] for one in texts for name in ways)
  places, labels = [], []
  for place, one in enumerate(texts):
    for way, name in enumerate(ways):
      at = place * (len(ways) + 1) + way
      start = 0.0
      for number, value in enumerate(one[name]["by_word"]):
        colour = COLOURS[number % len(COLOURS)]
        axes.barh(at, -value, left=start, color=colour, edgecolor="white", linewidth=1.5, height=0.8)
        if -value > _LETTER * widest * len(one["words"][number]):
          axes.text(start - value / 2, at, one["words"][number], color="white", ha="center", va="center", fontsize=9)
        start -= value
      axes.text(start, at, f" {start:.1f}", color=INK, ha="left", va="center", fontsize=9)
      places.append(at)
      labels.append(order_name(name, one["words"]))
    axes.text(0, place * (len(ways) + 1) - 0.62, one["text"], color=INK, ha="left", va="bottom", fontsize=10)
  axes.set_yticks(places, labels)
  axes.set_ylim(len(texts) * (len(ways) + 1) - 1.3, -1.5)
  axes.set_xlabel("-log P, nats", color=SOFT, loc="right")
  axes.grid(visible=False, axis="y")
  axes.grid(axis="x", color=LINE, linewidth=0.8)
  axes.margins(x=0.08)
  return figure


def _figure(
  title: str, across: str, up: str, panels: Sequence[str] = ("",), size: tuple[float, float] = _SIZE
) -> tuple["Figure", list]:
  from matplotlib.figure import Figure

  panels = list(panels)
  figure = Figure(figsize=(size[0] * (1 + 0.45 * (len(panels) - 1)), size[1]), layout="constrained")
  figure.suptitle(title, color=INK, x=0.012, ha="left", fontsize=13, fontweight="bold")
  every = list(figure.subplots(1, len(panels), sharey=True, squeeze=False)[0])
  for axes, name in zip(every, panels, strict=True):
    axes.grid(axis="y", color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
      spine.set_visible(side == "bottom")
      spine.set_color(LINE)
    axes.tick_params(colors=SOFT, length=0, pad=5, labelsize=10)
    axes.set_title(name, color=SOFT, loc="left", fontsize=11)
    axes.set_xlabel(across, color=SOFT, loc="right", labelpad=1)
    if across == "layer":
      axes.xaxis.get_major_locator().set_params(integer=True)
  every[0].set_ylabel(up, color=SOFT)
  return figure, every


def _line(axes, number: int, x: Sequence, y: Sequence, label: str, errors: Sequence[float] | None = None) -> None:
  style = {"color": COLOURS[number], "marker": MARKERS[number], "markersize": 5, "linewidth": 1.8, "label": label}
  axes.errorbar(x, y, yerr=errors, elinewidth=1.2, capsize=2.5, **style)


def _finish(figure, axes, note: str = "") -> None:
  handles, labels = axes.get_legend_handles_labels()
  figure.legend(
    handles,
    labels,
    loc="outside lower left",
    ncols=len(labels),
    frameon=False,
    labelcolor=INK,
    fontsize=10,
    title=note or None,
    title_fontproperties={"size": 9},
    alignment="left",
  )
