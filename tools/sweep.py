"""A grid of values and several seeds over any recipe: one train.py a run, then means, deviations and the best.

  python -m tools.sweep --config=configs/finetune/bert.py:mrpc --output=runs/mrpc-sweep --seeds=5 \\
      --grid optimizer.learning_rate=2e-5,3e-5,5e-5 --grid batch_size=16,32 \\
      --config.init_from=CHECKPOINT --config.data.source=GLUE
  python -m tools.sweep --config=configs/finetune/bert.py:rte --output=runs/rte-sweep --seeds=5 --grid=glue \\
      --config.init_from=CHECKPOINT --config.data.source=GLUE --dry_run

The arguments of train.py stand among the sweep's own, or behind --. A run's workdir is named by what it differs in:
OUTPUT/learning_rate=2e-05,batch_size=16/seed=0, with what it printed in sweep.log. The same command continues a sweep:
finished runs stay, begun ones resume. A grid or seeds may grow; another recipe needs another --output. A run that fails
is named, the others go on, and the exit status is 1. Ctrl-C or SIGTERM makes the runs save and stop.

The score is the task's main one (of pretraining: the loss) in a run's last evaluation. Each cell of the grid gets the
mean and the sample deviation over its seeds; the best cell is that of the best mean, the best run that of the best
score. It is named WORKDIR@STEP, which every tool's --checkpoint opens, or it is said that the run has not kept that
checkpoint. (Unless config.keep_last, keep_best or checkpoint_every say otherwise, a run saves one at each evaluation
and keeps the newest two and the best by its main score.) All numbers go into OUTPUT/sweep.json.
"""

import argparse
import functools
import json
import os
import pathlib
import shlex
import signal
import sys
from collections.abc import Sequence

from ml_collections import ConfigDict
from tqdm import tqdm

from tools import cli, sweep_jobs, sweep_plan, sweep_table
from tools.sweep_jobs import Ended
from tools.sweep_plan import Axis, Run
from tools.sweep_table import Result, Wanted
from training.saved import saved_steps

TRAIN = (sys.executable, os.path.relpath(pathlib.Path(__file__).parent.parent / "train.py"))
SUMMARY = "sweep.json"


def main(train: Sequence[str] = TRAIN) -> None:
  """The command line.

  Args:
    train: what starts train.py.
  """
  args, arguments = _parse()
  recipe, config = sweep_plan.read_config(arguments)
  axes = sweep_plan.read_grid(args.grid, recipe)
  runs = sweep_plan.plan(arguments, axes, sweep_plan.read_seeds(args.seeds, config.seed), args.output)
  wanted = _wanted(args, config, axes)
  for run in runs:
    sweep_plan.check_start(run)
  finished = [run for run in runs if sweep_plan.is_finished(run)]
  every = cli.counted(len(runs), "run")
  left = [run for run in runs if run not in finished]
  if args.dry_run:
    for run in left:
      print(shlex.join([*train, *run.arguments]))
    print(f"{every}, {len(finished)} of them finished")
    return

  sweep = Sweep(args, arguments, runs, wanted)
  with cli.claimed(args.output):
    for run in finished:
      sweep.take(run)
    by = sweep.run(left, train)
    sweep.write()
  if by and len(sweep.results) + len(sweep.failed) < len(runs):
    print(f"stopped: {len(sweep.results)} of {every} finished; the same command continues", file=sys.stderr)
    raise SystemExit(0 if by == signal.SIGTERM else 128 + by)  # of SIGTERM as train.py
  if sweep.results:
    sweep_table.check_metric(list(sweep.results.values()), wanted)
  print(json.dumps(sweep.summary(), indent=2, allow_nan=False) if args.json else sweep.table())
  if sweep.failed:
    print(f"error: {len(sweep.failed)} of {every} failed; the same command tries again", file=sys.stderr)
    raise SystemExit(1)


class Sweep:
  """The runs of a sweep as they end: what is said of them, and OUTPUT/sweep.json."""

  def __init__(self, args: argparse.Namespace, arguments: Sequence[str], runs: list[Run], wanted: Wanted):
    self._output, self._arguments, self._runs, self._wanted = args.output, arguments, runs, wanted
    self._jobs, self._lines = args.jobs, sys.stderr if args.json else sys.stdout
    self._number = {run.name: i for i, run in enumerate(runs, 1)}
    self.results: dict[str, Result] = {}
    self.failed: dict[str, str] = {}

  def run(self, left: Sequence[Run], train: Sequence[str]) -> int:
    """Runs those that are left; returns the signal that has stopped them, 0 if none has.

    Raises:
      ValueError: a workdir is another recipe's.
    """
    self._say(f"{cli.counted(len(self._runs), 'run')} in {self._output}, {len(self.results)} of them finished")
    # Those with a workdir come first: if it is of another recipe, nothing new is started under this one.
    begun = [run for run in left if sweep_plan.has_begun(run)]
    with sweep_jobs.Asked().listening() as asked, tqdm(total=len(left), unit="run", disable=None) as bar:
      for some in (begun, [run for run in left if run not in begun]):
        sweep_jobs.execute(some, train, self._jobs, asked, functools.partial(self._ended, bar), self._stopping)
        if refused := [said for said in self.failed.values() if sweep_jobs.REFUSED in said]:
          raise ValueError(f"{refused[0].removeprefix('error: ')} (of a sweep: another --output)")
        if asked.signals:
          break
    return asked.signals[0] if asked.signals else 0

  def take(self, run: Run) -> Result:
    """Takes the numbers of a finished run."""
    kept = saved_steps(run.workdir)
    self.results[run.name] = sweep_table.result(run, sweep_plan.evaluations(run), kept, self._wanted)
    return self.results[run.name]

  def _ended(self, bar: tqdm, run: Run, ended: Ended) -> None:
    bar.update(ended.status != "stopped")
    where = f"[{self._number[run.name]}/{len(self._runs)}] {run.name}"
    if ended.status == "failed":
      self.failed[run.name] = ended.said
      tqdm.write(f"{where}  failed: {ended.said}  (all of it in {run.workdir / sweep_jobs.LOG})", file=sys.stderr)
    elif ended.status == "finished":
      found = self.take(run)
      value = sweep_table.shown_number(found.value(self._wanted.metric))
      self._say(f"{where}  {self._wanted.metric} {value}  {found.metrics.get('wall_s', 0.0):,.0f} s")
    if not any(sweep_jobs.REFUSED in said for said in self.failed.values()):  # else sweep.json is of another recipe
      self.write()

  def _stopping(self, count: int, again: bool) -> None:
    how = "at once" if again else "as soon as saved; once more: at once"
    tqdm.write(f"stopping {cli.counted(count, 'run')} ({how})", file=sys.stderr)

  def _say(self, line: str) -> None:
    tqdm.write(line, file=self._lines)
    self._lines.flush()

  def table(self) -> str:
    return sweep_table.text(self._cells(), self._wanted)

  def summary(self) -> dict:
    """Returns what sweep.json holds."""
    return {
      "arguments": list(self._arguments),
      **sweep_table.as_json(self._cells(), self._wanted),
      "runs": [self._as_json(run) for run in self._runs],
    }

  def write(self) -> None:
    """Writes sweep.json, at once or not at all."""
    sweep_plan.write(self._output / SUMMARY, json.dumps(self.summary(), indent=2, allow_nan=False))

  def _cells(self) -> list[sweep_table.CellResult]:
    return sweep_table.cells(self._runs, self.results, self._wanted)

  def _as_json(self, run: Run) -> dict:
    found = self.results.get(run.name)
    status = "finished" if found else "failed" if run.name in self.failed else "unfinished"
    return {
      "name": run.name,
      "workdir": str(run.workdir),
      "fields": run.fields,
      "seed": run.seed,
      "status": status,
      "said": self.failed.get(run.name),
      "step": found.step if found else None,
      "checkpoint": found.checkpoint if found else None,
      "metrics": sweep_table.numbers(found.metrics) if found else {},
    }


def _wanted(args: argparse.Namespace, config: ConfigDict, axes: Sequence[Axis]) -> Wanted:
  metric, split = sweep_plan.main_metric(config)
  if not args.metric and any(axis.field in ("data.task", "data.kind") for axis in axes):
    raise ValueError("--grid over tasks: they have scores of their own; sweep each task, or name a --metric")
  metric = args.metric or metric
  return Wanted(metric, args.lower or sweep_plan.is_lower_better(metric), args.pick, split)


def _parse() -> tuple[argparse.Namespace, list[str]]:
  """Returns the sweep's own arguments, and those of train.py."""
  parser = cli.parser(__doc__)
  add = parser.add_argument
  add("--config", required=True, metavar="FILE[:VARIANT]", help="the recipe")
  add("--output", required=True, type=pathlib.Path, metavar="DIR", help="where the runs live")
  add(
    "--grid",
    action="extend",
    nargs="+",
    default=[],
    metavar="FIELD=VALUE,VALUE",
    help="values of a field of the config, or the name of a grid in the recipe's file (GRIDS); several are combined",
  )
  add("--seeds", default="1", metavar="N", help="how many, from config.seed on; or a list such as 1,2,3 (default: 1)")
  add("--jobs", type=int, default=1, metavar="N", help="runs at a time, all on the same devices (default: 1)")
  add("--metric", help="what to compare by (default: the task's main score; of pretraining: loss)")
  add("--lower", action="store_true", help="less of the metric is better (of losses: always)")
  add("--pick", choices=["last", "best"], default="last", help="which evaluation of a run counts (default: last)")
  add("--dry_run", action="store_true", help="print the commands of the runs that are left, and start none")
  add("--json", action="store_true", help="print what sweep.json holds instead of the table")
  args, arguments = parser.parse_known_args()
  if args.jobs < 1:
    raise ValueError(f"--jobs={args.jobs} must be at least 1")
  return args, [f"--config={args.config}", *(argument for argument in arguments if argument != "--")]


if __name__ == "__main__":
  cli.run(main)
