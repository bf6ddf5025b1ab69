"""Where a model's vectors lie, and what its objectives leave out: four measures for any checkpoint.

  python -m tools.geometry --checkpoint=runs/bert --stsb=GLUE --corpus=runs/corpus --text "[New York] is a city"

The checkpoint is a workdir, a folder in Hugging Face layout, hf:ORG/NAME, or a TF1 checkpoint of the originals. What is
measured, unless --measures names some of it, is all that model and data allow; what is left out is said with its
reason:

  anisotropy  by layer, the mean cosine of any two tokens in different lines of text, of two [CLS] vectors, and of one
              piece in two lines (Ethayarajh 2019): 0 where vectors point everywhere, 1 where all point one way. Over
              all pairs; errors by the jackknife over a hundred groups of lines. The lines are --input's, else the
              sentences of STS-B.
  pooling     by layer, how well the cosine of two sentences goes with people's score on STS-B dev: of [CLS], of the
              mean and of the maximum over all tokens, and of the pooler's output.
  overlap     the accuracy of the head for pairs (NSP, SOP) on held-out pairs, by quartiles of the overlap of their
              pieces (Jaccard's; equal ones stay together): is it topic that is told? A workdir says what its pairs
              were; --pair says it for others.
  joint       a span's words predicted each by itself, all hidden, as BERT does, and one after another, as XLNet's
              factorisation orders do; the gap is what each word tells of the next, in nats.

An XLNet's [CLS] is its <cls>, and its vectors are the content stream's.
"""

import argparse
import json
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from data.tasks import readers, table
from pretrained.load import Pretrained, load
from tools import (
  cli,
  features,
  geometry_charts,
  geometry_joint,
  geometry_pairs,
  geometry_tables,
  geometry_vectors,
  report_charts,
)
from tools.extract_features import read_lines
from tools.families import family_of

_EXAMPLE = "[New York] is a city"


class Given(NamedTuple):
  """What there is to measure."""

  args: argparse.Namespace
  model: Pretrained


class Measure(NamedTuple):
  """One of the four.

  Attributes:
    lacks: why it cannot be taken; "" if it can.
    take: returns its numbers, as JSON has them.
    table: these as text.
    chart: these as a picture.
  """

  lacks: Callable[[Given], str]
  take: Callable[[Given], dict]
  table: Callable[[dict], str]
  chart: Callable[[dict], Any]


def rows_of(given: Given, texts: list[list[str]], where: str) -> list[features.Row]:
  """Returns a row for each text; raises ValueError as `features.make_rows`, with `where` before it."""
  config, args = given.model.config, given.args
  try:
    return features.make_rows(
      given.model.tokenizer,
      texts,
      features.longest_row(config, args.max_length),
      truncate=args.truncate,
      cls_last=family_of(config).cls_last,
    )
  except ValueError as error:
    raise ValueError(f"{where}, {error}") from None


def sentence_pairs(given: Given) -> tuple[list[features.Row], np.ndarray]:
  """Returns the rows of STS-B dev's sentences, those of a pair one after the other, and the pairs' scores."""
  examples = readers.read(table.find_task("stsb"), given.args.stsb, "dev")
  texts = [[text] for example in examples for text in example.texts]
  where = f"{given.args.stsb}, the sentences of STS-B dev as lines"
  return rows_of(given, texts, where), np.array([example.label for example in examples])


def _no_text(given: Given) -> str:
  return "" if given.args.input or given.args.stsb else "needs lines of text: --input=LINES.txt, or --stsb=GLUE"


def anisotropy(given: Given) -> dict:
  """Returns how alike the vectors of --input's lines, or of STS-B's sentences, are (`geometry_vectors.anisotropy`)."""
  if given.args.input:
    try:
      lines = list(read_lines(given.args.input))
    except ValueError as error:
      raise ValueError(f"{given.args.input}, {error}") from None
    rows = rows_of(given, lines, given.args.input)
  else:
    rows, _ = sentence_pairs(given)
  return geometry_vectors.anisotropy(given.model, rows, given.args.seed)


def _no_pairs(given: Given) -> str:
  return "" if given.args.stsb else "needs the files of STS-B: --stsb=GLUE"


def recipe(given: Given) -> geometry_pairs.Recipe:
  """Returns what the model's pairs are, as the command line says, or else the workdir."""
  found = geometry_pairs.recipe_of(given.args.checkpoint)
  asked = {"pair": given.args.pair, "length": given.args.max_length}
  found = found._replace(**{name: value for name, value in asked.items() if value})
  longest = family_of(given.model.config).longest(given.model.config)
  return found._replace(length=min(found.length, longest or found.length))


def _no_corpus(given: Given) -> str:
  if not {"pooler", "pair_head"} <= given.model.params.keys():
    return "the model has no head that tells pairs (pooler and pair_head)"
  if (pair := recipe(given).pair) not in geometry_pairs.PAIRS:
    why = "the run had no pairs" if pair else "nothing says what the pairs were"
    return f"{why}: --pair=nsp or --pair=sop"
  return "" if given.args.corpus else "needs a prepared corpus of the model's vocabulary: --corpus=FOLDER"


def _no_blanks(given: Given) -> str:
  config = given.model.config
  family = family_of(config)
  if family.head not in given.model.params:
    return f"the model has no head that predicts words ({family.head})"
  if getattr(config, "causal", False):
    return "a left-to-right model has met no blank, and has one order only"
  for text in given.args.text:  # a mistake in it is said before anything is measured
    geometry_joint.find_span(text, given.model.tokenizer, family.cls_last)
  if given.args.text:
    return ""
  try:
    geometry_joint.find_span(_EXAMPLE, given.model.tokenizer, family.cls_last)
  except ValueError as error:
    return f"{error}; give a --text"
  return ""


MEASURES = {
  "anisotropy": Measure(_no_text, anisotropy, geometry_tables.anisotropy, geometry_charts.anisotropy),
  "pooling": Measure(
    _no_pairs,
    lambda given: geometry_vectors.pooling(given.model, *sentence_pairs(given)),
    geometry_tables.pooling,
    geometry_charts.pooling,
  ),
  "overlap": Measure(
    _no_corpus,
    lambda given: geometry_pairs.overlap(given.model, given.args.corpus, recipe(given), given.args.pairs),
    geometry_tables.overlap,
    geometry_charts.overlap,
  ),
  "joint": Measure(
    _no_blanks,
    lambda given: {"texts": [geometry_joint.joint(given.model, text) for text in given.args.text or [_EXAMPLE]]},
    geometry_tables.joint,
    geometry_charts.joint,
  ),
}


def main() -> None:
  args = _parse()
  if args.output:
    report_charts.check()
    cli.make_folder(args.output)
  given = Given(args, load(args.checkpoint))
  lacking = {name: why for name in args.measures or MEASURES if (why := MEASURES[name].lacks(given))}
  if args.measures and lacking:
    raise ValueError("; ".join(f"--measures={name}: {why}" for name, why in lacking.items()))
  if len(lacking) == len(MEASURES):
    raise ValueError("nothing can be measured: " + "; ".join(f"{name}: {why}" for name, why in lacking.items()))
  found = {}
  for name in args.measures or MEASURES:
    if name in lacking:
      continue
    found[name] = MEASURES[name].take(given)
    if not args.json:
      print(MEASURES[name].table(found[name]), end="\n\n", flush=True)
  if args.json:
    print(json.dumps({"checkpoint": args.checkpoint, **found, "left_out": lacking}, indent=1, allow_nan=False))
  else:
    print("".join(f"left out: {name}: {why}\n" for name, why in lacking.items()), end="")
  if args.output:
    for name, values in found.items():
      (args.output / f"{name}.png").write_bytes(report_charts.as_png(MEASURES[name].chart(values)))


def _parse() -> argparse.Namespace:
  parser = cli.parser(__doc__)
  add = parser.add_argument
  add("--checkpoint", required=True, help="WORKDIR[@STEP], model folder, hf:ORG/NAME or TF1 checkpoint")
  add("--measures", default="", help=f"of {', '.join(MEASURES)}, with commas between [all that can be taken]")
  add("--input", metavar="LINES.txt", help="UTF-8 text, a line a text; local or remote")
  add("--stsb", type=pathlib.Path, metavar="GLUE", help="the folder over STS-B, that folder, or a file of it")
  add("--corpus", metavar="FOLDER", help="a corpus that tools.prepare_corpus wrote, with a held-out split")
  add("--text", action="append", default=[], help=f'with a span in brackets; repeatable ["{_EXAMPLE}"]')
  add("--pair", choices=geometry_pairs.PAIRS, help="what the head for pairs was trained to tell [as the workdir says]")
  add("--pairs", type=int, default=2048, help="how many pairs, at most those of an epoch [%(default)s]")
  add("--max_length", type=int, help="tokens of a row [the model's; of a pair the workdir's, or 128]")
  add("--truncate", action="store_true", help="cut longer texts off; without it they are a mistake")
  add("--seed", type=int, default=0, help="which 500 pieces, where more are met in five lines [%(default)s]")
  add("--json", action="store_true", help="print a JSON object instead of tables")
  add("--output", type=pathlib.Path, metavar="DIR", help="where a PNG file a measure goes")
  args = parser.parse_args()
  args.measures = args.measures.split(",") if args.measures else []
  for name in args.measures:
    if name not in MEASURES:
      raise ValueError(f"--measures={name} is unknown; use of {', '.join(MEASURES)}")
  if args.pairs < 1:
    raise ValueError(f"--pairs={args.pairs} must be at least 1")
  return args


if __name__ == "__main__":
  cli.run(main)
