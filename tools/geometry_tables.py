"""What tools.geometry prints: a table a measure."""

from collections.abc import Sequence

from tools.geometry_joint import ORDERS
from tools.geometry_vectors import POOLING

SAID = {"cls": "[CLS]", "mean": "mean", "max": "maximum", "tokens": "tokens", "same_piece": "same piece"}
KINDS = {"nsp": ("next", "random"), "sop": ("in order", "swapped")}  # of pairs, by label


def order_name(name: str, words: Sequence[str] = ()) -> str:
  """ "each by itself", "left to right" …; of two words "New, then York"."""
  if name == "independent":
    return "each by itself"
  return ", then ".join(words[:: ORDERS[name]]) if len(words) == 2 else name.replace("_", " ")


def anisotropy(found: dict) -> str:
  """Returns the mean cosines, a line a layer."""
  names = ("tokens", "cls", "same_piece")
  rows = [["layer", *(SAID[name] for name in names), "above tokens"]]
  for layer in found["layers"]:
    piece, tokens = layer["same_piece"], layer["tokens"]
    above = f"{piece[0] - tokens[0]:.3f}" if piece and tokens else "-"
    rows.append([str(layer["layer"]), *(_with_error(layer[name]) for name in names), above])
  return (
    f"anisotropy: mean cosines over {found['token_pairs']:,} pairs of tokens in different lines and "
    f"{found['cls_pairs']:,} of [CLS];\n"
    f"{found['lines']:,} lines, {found['tokens']:,} tokens; same piece: one piece in two lines, {found['pieces']} "
    f"pieces of at least five lines\n{_columns(rows)}"
  )


def pooling(found: dict) -> str:
  """Returns the correlations with people's score, a line a layer, two columns a way to pool."""
  measures = ("pearson", "spearman")
  rows = [["layer", *(f"{SAID[name]}: r" if m == "pearson" else "rho" for name in POOLING for m in measures)]]
  for layer in found["layers"]:
    rows.append([str(layer["layer"]), *(_decimal(layer[name][m]) for name in POOLING for m in measures)])
  if head := found["pooler"]:
    rows.append(["pooler", *(_decimal(head[m]) for m in measures), *[""] * 4])
  return (
    f"pooling: Pearson's r and Spearman's rho of the cosine with people's score, {found['pairs']:,} pairs of STS-B\n"
    f"{_columns(rows)}"
  )


def overlap(found: dict) -> str:
  """Returns the accuracy on pairs by how many pieces they share, a line a quartile."""
  true, false = KINDS[found["pair"]]
  rows = [["overlap", "pairs", true, "accuracy", f"of {true}", f"of {false}"]]
  for one in found["quartiles"]:
    span = "{:.3f} to {:.3f}".format(*one["overlap"]) if one["overlap"] else "-"
    share = f"{one['true'][0]:.3f}" if one["true"] else "-"
    rates = (_with_error(one[name]) for name in ("all", "true_pairs", "false_pairs"))
    rows.append([span, str(one["pairs"]), share, *rates])
  rates = (_with_error(found[name]) for name in ("accuracy", "true_pairs", "false_pairs"))
  rows.append(["all", str(found["pairs"]), "", *rates])
  return (
    f"overlap: {found['pair'].upper()} by the Jaccard overlap of the segments' pieces, rows of {found['length']} "
    f"tokens\n{_columns(rows)}\n"
    f"area under the ROC curve: {_decimal(found['area_of_model'])} by the model, {_decimal(found['area_of_overlap'])} "
    f"by the overlap alone; Spearman's rho of the two {_decimal(found['spearman'])}"
  )


def joint(found: dict) -> str:
  """Returns the log-probabilities of each text's span, a line an order of its words."""
  parts = ["joint: log-probabilities in nats; gap: what knowing the words before adds"]
  for one in found["texts"]:
    words = one["words"]
    rows = [["", *words, "joint", "gap"]]
    for name in ("independent", *ORDERS):
      of, gap = one[name], one[name].get("gap")
      values = [f"{x:.2f}" for x in (*of["by_word"], of["joint"])]
      rows.append([order_name(name, words), *values, "" if gap is None else f"{gap:+.2f}"])
    pieces = "" if len(one["pieces"]) == len(words) else f"  (pieces: {' '.join(one['pieces'])})"
    parts.append(f"{one['text']}{pieces}\n{_columns(rows)}")
  return "\n".join(parts)


def _with_error(pair: Sequence[float] | None) -> str:
  if not pair:
    return "-"
  return f"{pair[0]:.3f}" + ("" if pair[1] is None else f" ± {pair[1]:.3f}")


def _decimal(value: float | None) -> str:
  return "-" if value is None else f"{value:.3f}"


def _columns(rows: Sequence[Sequence[str]]) -> str:
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  first, *others = widths
  return "\n".join(
    "  ".join([row[0].ljust(first), *(x.rjust(n) for x, n in zip(row[1:], others, strict=True))]).rstrip()
    for row in rows
  )
