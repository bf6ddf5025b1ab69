"""The notebooks' pictures, drawn by matplotlib: who sees whom, curves, filled blanks, confusions."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, LinearSegmentedColormap, ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

INK, SOFT, LINE, BLUE = "#1f2328", "#59636e", "#d8dee4", "#0072b2"  # as tools.report has them
# What a cell of a mask may be, by its number in `kinds`.
SEEN = {
  "not seen": "#edf0f3",
  "context": "#a9cfe8",
  "a target before it in the order": "#e8923e",
  "itself": "#2f4b63",
  "memory": "#6dbb9b",
}
HIDDEN, CONTEXT, EARLIER, ITSELF, MEMORY = range(len(SEEN))
TARGET = "#a84300"  # the name of a token that is predicted
STYLE = {
  "figure.constrained_layout.use": True,
  "figure.dpi": 110,
  "font.size": 10,
  "axes.titlesize": 11,
  "axes.titlelocation": "left",
  "axes.titleweight": "bold",
  "axes.titlecolor": INK,
  "axes.edgecolor": LINE,
  "axes.labelcolor": SOFT,
  "xtick.color": SOFT,
  "ytick.color": SOFT,
}
_ORANGE = list(SEEN.values())[2]
_FROM_PALE = LinearSegmentedColormap.from_list("from pale", ["#dbeaf5", "#8cbfe0", BLUE, "#0b2b45"])
_BLUES = LinearSegmentedColormap.from_list("blues", ["#ffffff", "#a9cfe8", BLUE, "#0b2b45"])


def kinds(visible: np.ndarray, is_target: np.ndarray, itself: np.ndarray | None = None, memory: int = 0) -> np.ndarray:
  """Returns the numbers of SEEN of a mask's cells, int [rows, columns].

  Args:
    visible: bool [rows, columns], what each row sees.
    is_target: bool [columns], which columns are predicted.
    itself: int [rows], the column that each row stands at; None = there are none.
    memory: so many of the first columns are memory.
  """
  result = np.where(visible, np.where(is_target[None, :], EARLIER, CONTEXT), HIDDEN)
  result[:, :memory] = np.where(visible[:, :memory], MEMORY, HIDDEN)
  if itself is not None:
    rows = np.arange(len(result))
    result[rows, itself] = np.where(visible[rows, itself], ITSELF, HIDDEN)
  return result


def mask(
  axes: Axes,
  cells: np.ndarray,
  rows: Sequence[str],
  columns: Sequence[str],
  *,
  title: str = "",
  rules: Sequence[int] = (),
  row_rules: Sequence[int] = (),
  targets: tuple[Sequence[int], Sequence[int]] = ((), ()),
  size: float = 9,
) -> None:
  """Draws who sees whom: a row looks at the columns.

  Args:
    axes: where.
    cells: int [rows, columns], numbers of SEEN.
    rows, columns: the tokens' names.
    title: of the picture.
    rules, row_rules: columns and rows that a line is drawn before.
    targets: rows and columns whose names are those of targets.
    size: of the names, in points.
  """
  colours = ListedColormap(list(SEEN.values()))
  norm = BoundaryNorm(np.arange(len(SEEN) + 1) - 0.5, len(SEEN))
  _grid(axes, cells, rows, columns, title, targets, size, cmap=colours, norm=norm)
  count_rows, count_columns = cells.shape
  for rule in rules:
    axes.plot([rule - 0.5] * 2, [-0.5, count_rows - 0.5], color=INK, linewidth=1.4, clip_on=False)
  for rule in row_rules:
    axes.plot([-0.5, count_columns - 0.5], [rule - 0.5] * 2, color=INK, linewidth=1.4, clip_on=False)


def magnitudes(
  axes: Axes,
  numbers: np.ndarray,
  rows: Sequence[str],
  columns: Sequence[str],
  *,
  title: str = "",
  targets: tuple[Sequence[int], Sequence[int]] = ((), ()),
  size: float = 9,
  framed: np.ndarray | None = None,
  span: tuple[float, float] = (1e-3, 1e-1),
):
  """Draws numbers ≥ 0 [rows, columns] by their logarithm between the ends of `span`; what is exactly 0 is crossed out,
  and what is `framed` (bool, the same shape) has a frame. Returns what a colour bar needs."""
  norm = LogNorm(*span, clip=True)
  shown = np.ma.masked_equal(numbers, 0)
  mesh = _grid(axes, shown, rows, columns, title, targets, size, cmap=_FROM_PALE, norm=norm)
  for row, column in np.argwhere(framed) if framed is not None else ():
    axes.add_patch(Rectangle((column - 0.43, row - 0.43), 0.86, 0.86, fill=False, color=_ORANGE, linewidth=1.6))
  axes.set_facecolor(SEEN["not seen"])
  zero_rows, zero_columns = np.nonzero(np.asarray(numbers) == 0)
  axes.scatter(zero_columns, zero_rows, marker="x", s=8, linewidths=0.7, color="#b9c1ca")
  return mesh


def _grid(axes: Axes, cells, rows, columns, title, targets, size, **colouring):
  count_rows, count_columns = cells.shape
  edges = np.arange(count_columns + 1) - 0.5, np.arange(count_rows + 1) - 0.5
  gap = 1.6 if max(cells.shape) <= 12 else 0.7
  mesh = axes.pcolormesh(*edges, cells, edgecolors="white", linewidth=gap, **colouring)
  axes.set_aspect("equal")
  axes.invert_yaxis()
  axes.xaxis.tick_top()
  axes.set_xticks(range(count_columns), columns, rotation=90, fontsize=size)
  axes.set_yticks(range(count_rows), rows, fontsize=size)
  axes.tick_params(length=0, pad=3)
  axes.spines[:].set_visible(False)
  for labels, marked in ((axes.get_yticklabels(), targets[0]), (axes.get_xticklabels(), targets[1])):
    for place in marked:
      labels[place].set(color=TARGET, fontweight="bold")
  if title:
    axes.set_title(title, pad=8)
  return mesh


def key(figure: Figure, *cells: np.ndarray, loc: str = "outside lower left", **names: str) -> None:
  """Adds the colours of the kinds that occur in `cells`; `names` has other words for some of them."""
  used = np.unique(np.concatenate([np.ravel(some) for some in cells]))
  entries = [(names.get(name.split()[-1], name), colour) for name, colour in SEEN.items()]
  patches = [Patch(facecolor=entries[i][1], label=entries[i][0]) for i in used]
  figure.legend(handles=patches, loc=loc, ncols=len(patches), frameon=False, fontsize=9, labelcolor=SOFT)


def draws(axes: Axes, chosen: np.ndarray, *, title: str = "", rule: int = 0) -> None:
  """Draws which positions were chosen in many draws: `chosen` int [draws, positions], 0 = not, else 1 … n, the place in
  the order. `rule`: a position that a line is drawn before."""
  colours = ["#edf0f3", *(LinearSegmentedColormap.from_list("", ["#f6c48d", TARGET])(np.linspace(0, 1, chosen.max())))]
  edges = np.arange(chosen.shape[1] + 1) - 0.5, np.arange(chosen.shape[0] + 1) - 0.5
  axes.pcolormesh(*edges, chosen, cmap=ListedColormap(colours), edgecolors="white", linewidth=0.4)
  axes.set_ylim(chosen.shape[0] - 0.5, -0.5)
  axes.tick_params(length=0)
  axes.spines[:].set_visible(False)
  axes.set(xlabel="position", ylabel="draw")
  axes.set_title(title, pad=8)
  if rule:
    axes.axvline(rule - 0.5, color=INK, linewidth=1.4)


def curves(
  axes: Axes,
  records: Sequence[Mapping],
  metric: str,
  *,
  title: str,
  baseline: str = "",
  training: str = "",
  fractions: bool = False,
) -> None:
  """Draws a metric of held-out text by the step, with its last value beside it. A fall from random weights to the
  baseline and below runs off the axis.

  Args:
    axes: where.
    records: of metrics.jsonl.
    metric: its name.
    title: in words.
    baseline: the metric that says what needs no model; "" = there is none.
    training: a metric of the training text to show besides.
    fractions: the metric lies between 0 and 1.
  """

  def of(split: str, name: str) -> tuple[list[int], list[float]]:
    there = [record for record in records if record["split"] == split and name in record]
    return [record["step"] for record in there], [record[name] for record in there]

  steps, values = of("eval", metric)
  if training:
    axes.plot(*of("train", training), color=BLUE, linewidth=1, alpha=0.45, label="training")
  axes.plot(steps, values, color=BLUE, linewidth=2, marker="o", markersize=5, label="held out")
  if baseline:
    level = of("eval", baseline)[1][-1]
    axes.axhline(level, color=SOFT, linewidth=1.1, linestyle=(0, (2, 2)), label="without a model")
  last = f"{values[-1]:.3f}"
  axes.annotate(
    last.lstrip("0") if fractions else last,
    (steps[-1], values[-1]),
    (8, 0),
    textcoords="offset points",
    va="center",
    color=BLUE,
    fontweight="bold",
    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
  )
  axes.set_title(title)
  axes.set_xlabel("step", loc="right")
  axes.grid(axis="y", color=LINE, linewidth=0.8)
  axes.set_axisbelow(True)
  axes.tick_params(length=0)
  axes.spines[["top", "left", "right"]].set_visible(False)
  axes.set_xlim(-0.03 * steps[-1], 1.17 * steps[-1])
  if baseline and values[0] > level and len(values) > 1:
    late = [*values[1:], level]
    margin = 0.12 * (max(late) - min(late))
    axes.set_ylim(min(late) - margin, max(late) + margin)


def bars(axes: Axes, entries: Sequence[tuple[str, float]], *, title: str = "", longest: float = 1.0) -> None:
  """Draws names with probabilities, the first at the top; `longest` is the probability that fills the width."""
  names, values = zip(*entries, strict=True)
  places = range(len(names))
  axes.barh(places, values, color=BLUE, height=0.66)
  axes.set_yticks(places, names, color=INK)
  axes.invert_yaxis()
  for place, value in zip(places, values, strict=True):
    axes.annotate(
      f"{value:.2f}", (value, place), (4, 0), textcoords="offset points", va="center", color=SOFT, fontsize=9
    )
  axes.set_xlim(0, 1.2 * longest)
  axes.set_xticks([])
  axes.tick_params(length=0)
  axes.spines[:].set_visible(False)
  axes.axvline(0, color=LINE, linewidth=1)
  axes.set_title(title, fontweight="normal", fontsize=10)


def confusion(axes: Axes, counts: np.ndarray, labels: Sequence[str], *, title: str = "") -> None:
  """Draws int [true, predicted] with the share of each row as colour."""
  shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
  axes.imshow(shares, cmap=_BLUES, vmin=0, vmax=1.25)
  for row, column in np.ndindex(counts.shape):
    colour = "white" if shares[row, column] > 0.55 else INK
    for text, offset, size in ((counts[row, column], 6, 13), (f"{shares[row, column]:.0%}", -9, 9)):
      axes.annotate(
        text,
        (column, row),
        (0, offset),
        textcoords="offset points",
        ha="center",
        va="center",
        color=colour,
        fontsize=size,
      )
  axes.set_xticks(range(len(labels)), labels)
  axes.set_yticks(range(len(labels)), labels)
  axes.set(xlabel="predicted", ylabel="true")
  axes.tick_params(length=0)
  axes.spines[:].set_visible(False)
  axes.set_title(title, pad=8)


def reliability(axes: Axes, confidence: np.ndarray, correct: np.ndarray, *, title: str = "", bins: int = 8) -> None:
  """Draws how often predictions of each confidence are right, and how many they are; the line is where both agree."""
  low = np.floor(20 * confidence.min()) / 20
  edges = np.linspace(low, 1, bins + 1)
  place = np.clip(np.digitize(confidence, edges) - 1, 0, bins - 1)
  for i in range(bins):
    here = correct[place == i]
    if here.size:
      middle = edges[i : i + 2].mean()
      axes.bar(middle, here.mean(), width=0.86 * (edges[1] - edges[0]), color=SEEN["context"])
      axes.annotate(f"{here.size}", (middle, 0), (0, 5), textcoords="offset points", ha="center", color=INK, fontsize=9)
  axes.plot([low, 1], [low, 1], color=BLUE, linewidth=1.2, linestyle=(0, (3, 2)))
  axes.set(
    xlim=(low - 0.01, 1.01), ylim=(0, 1.1), xlabel="probability of what is predicted", ylabel="share that is right"
  )
  axes.tick_params(length=0)
  axes.spines[["top", "left", "right"]].set_visible(False)
  axes.set_title(title, pad=8)


def use() -> None:
  """Makes the notebooks' style matplotlib's."""
  plt.rcParams.update(STYLE)
