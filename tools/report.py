"""A report of one or many runs: one HTML page that needs no network, and its charts as PNG files.

  python -m tools.report runs/mrpc-sweep runs/quickstart-bert --output=report \\
      --fill "The city is the capital [MASK] the country." --attention "The city is the capital of the country."

Each folder is a workdir of train.py, or holds workdirs (a sweep's output). Workdirs whose config.json differ in nothing
but the seed and paths are one group, named by the fields in which groups differ, or by folder where these are many. The
page has

  - the last and the best held-out value of each metric, mean ± sample deviation over seeds, beside what needs no model;
  - curves of held-out and training values with a band of one deviation over seeds;
  - speed, and the fields in which the configs differ;
  - with --fill, blanks as the first model of each group fills them, and with --attention where its heads attend.

A torn last line of a log is ignored, and a run may still be going. --json prints the table instead.
"""

import argparse
import json
import pathlib
import re
from collections.abc import Sequence

from tqdm import tqdm

from tools import cli, report_charts, report_looks, report_numbers, report_page, report_runs
from tools.report_charts import Curve
from tools.report_looks import Attention, Looks
from tools.report_runs import Group
from tools.report_tables import Chart

_ON_PAGE, _ALONE = (3.9, 2.5), (6.4, 4.4)  # sizes of a chart in inches


def main() -> None:
  args = _parse()
  groups = report_runs.group([report_runs.read(one) for one in report_runs.find(args.workdirs)], args.names)
  if args.json:
    print(json.dumps(report_numbers.as_json(groups), indent=2, ensure_ascii=False, allow_nan=False))
  if args.output is None:
    return
  report_charts.check()
  asked = args.fill or args.attention
  looks = report_looks.look(groups, args.fill, args.attention, args.top_k) if asked else []
  title = args.title or (groups[0].name if len(groups) == 1 else "Runs side by side")
  written = write(args.output, title, groups, args.fill, args.attention, looks)
  for group in groups:
    for run in group.runs:
      if run.left_out > 1:
        print(f"note: {run.workdir}: {run.left_out} lines of the log, behind a damaged one, are left out")
  if not args.json:
    print(f"{written[0]}: {report_page.counted(groups)}; {len(written) - 1} PNG files beside it")


def write(
  output: pathlib.Path,
  title: str,
  groups: Sequence[Group],
  texts: Sequence[str],
  sentence: str,
  looks: Sequence[Looks],
) -> list[pathlib.Path]:
  """Writes index.html and the PNG files; returns their paths, the page first."""
  cli.make_folder(output)
  files, charts = {}, []
  for metric in tqdm(report_numbers.metrics_of(groups), desc="charts", unit="chart", disable=None):
    some = [
      Curve(number, group.name, report_numbers.held_out(group, metric), report_numbers.training(group, metric))
      for number, group in enumerate(groups)
    ]
    scored = [report_numbers.scored(group, metric) for group in groups]
    beside = sorted({round(one.baseline.mean, 4) for one in scored if one and one.baseline})
    draw = lambda theme, size, legend: report_charts.curves(metric, some, beside, theme, size, legend)  # noqa: B023
    charts.append(Chart(metric, scored, report_charts.as_svg(draw(report_charts.PAGE, _ON_PAGE, False), metric)))
    files[f"{_in_a_path(metric)}.png"] = draw(report_charts.PICTURE, _ALONE, True)
  for group, look in zip(groups, looks, strict=bool(looks)):
    if isinstance(look.attention, Attention):
      files[f"attention-{_in_a_path(group.name)}.png"] = report_charts.attention_grid(group.name, *look.attention)
  for name, figure in files.items():
    (output / name).write_bytes(report_charts.as_png(figure))
  index = output / "index.html"
  index.write_text(report_page.page(title, groups, charts, texts, sentence, looks), encoding="utf-8")
  return [index, *(output / name for name in files)]


def _in_a_path(text: str) -> str:
  return re.sub(r"[^\w.=+-]+", "_", text)[:100]


def _parse() -> argparse.Namespace:
  parser = cli.parser(__doc__)
  add = parser.add_argument
  add("workdirs", nargs="+", metavar="DIR", help="a workdir, or a folder with workdirs in it")
  add("--output", type=pathlib.Path, metavar="DIR", help="where index.html and the PNG files go")
  add("--names", nargs="+", default=[], metavar="NAME", help="what to call the groups, in the order they are found")
  add("--title", default="", help="the page's heading")
  add("--fill", action="append", default=[], metavar="TEXT", help='a text with "[MASK]" in it; repeatable')
  add("--top_k", type=int, default=5, help="how many pieces a blank [%(default)s]")
  add("--attention", default="", metavar="TEXT", help="a sentence to show the attention of")
  add("--json", action="store_true", help="print the table as JSON; with --output besides the page, else alone")
  args = parser.parse_args()
  if args.output is None and not args.json:
    raise ValueError("--output=DIR is missing: where the page goes (--json alone prints the table)")
  if args.top_k < 1:
    raise ValueError(f"--top_k={args.top_k} must be at least 1")
  return args


if __name__ == "__main__":
  cli.run(main)
