"""Scores of fine-tuning beside another library's own training loop: same weights, examples and hyper-parameters.

    python -m benchmarks.fine_tuning --checkpoint=MODEL --glue=GLUE --conll=CONLL --output=runs/fine-tuning

MODEL is a BERT's folder in Hugging Face layout, GLUE the folder over the tasks' folders, CONLL that of CoNLL-2003. Each
task is learned with each seed by `train.py` and by `transformers.Trainer`, and both are scored by `scores/` on the dev
set. Runs that OUTPUT/results.jsonl has are not run again. The table has means with standard errors over the seeds, and
the paired difference with the p of a t-test.
"""

import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from scipy import stats

from data.tasks import table
from tools import cli


class Setting(NamedTuple):
  """How a task is learned by both: sized for two cores, not for the best score."""

  learning_rate: float
  batch_size: int
  epochs: int
  examples: int = 0  # the first so many; 0 = all
  length: int = 128


SETTINGS = {
  "sst2": Setting(5e-5, 32, 1, examples=8000),
  "rte": Setting(1e-4, 16, 1),
  "mrpc": Setting(1e-4, 16, 1),
  "stsb": Setting(1e-4, 16, 1, examples=3000),
  "conll2003": Setting(1e-4, 16, 1, examples=3000),
  "cola": Setting(1e-4, 16, 2),
}
ALIKE = {"b1": 0.9, "b2": 0.999, "eps": 1e-6, "weight_decay": 0.01, "clip": 1.0, "warmup_rate": 0.1}


class Run(NamedTuple):
  """A line of results.jsonl; `seconds`: theirs of training alone, ours of the whole command."""

  task: str
  seed: int
  side: str
  score: float
  seconds: float


def ours(task: str, source: str, checkpoint: str, seed: int, workdir: pathlib.Path) -> tuple[float, float]:
  """Returns (main score, seconds) of a run of train.py."""
  setting = SETTINGS[task]
  fields = {
    "init_from": checkpoint,
    "seed": seed,
    "data.task": task,
    "data.source": source,
    "data.train_examples": setting.examples,
    "length": setting.length,
    "batch_size": setting.batch_size,
    "epochs": float(setting.epochs),
    "optimizer.name": "adamw",
    "optimizer.learning_rate": setting.learning_rate,
    "model.unroll": 0,
    "optimizer.shifted": True,  # its linear decay begins where warm-up ends
    **{f"optimizer.{name}": value for name, value in ALIKE.items()},
  }
  flags = [f"--config.{name}={value}" for name, value in fields.items()]
  command = [sys.executable, "train.py", "--config=configs/base.py:task", f"--workdir={workdir}", *flags]
  environment = {"JAX_COMPILATION_CACHE_DIR": str(workdir.parent / "cache"), **os.environ}
  began = time.perf_counter()
  done = subprocess.run(command, capture_output=True, text=True, env=environment)
  if done.returncode:
    raise ValueError(f"{task} with seed {seed}: {done.stderr.strip().splitlines()[-1]}")
  records = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
  last = [record for record in records if record["split"] == "eval"][-1]
  return last[table.find_task(task).main_score], time.perf_counter() - began


def theirs(task: str, source: str, checkpoint: str, seed: int, workdir: pathlib.Path) -> tuple[float, float]:
  """Returns (main score, seconds) of `transformers.Trainer`."""
  from benchmarks import fine_tuning_transformers

  return fine_tuning_transformers.run(task, source, checkpoint, seed, SETTINGS[task], ALIKE, workdir)


SIDES = {"ours": ours, "theirs": theirs}


def summary(runs: Iterable[Run]) -> list[dict]:
  """Returns a row a task: both sides' means and standard errors over the seeds that both have, and the difference's."""
  runs, rows = list(runs), []
  for task in dict.fromkeys(run.task for run in runs):
    found = {side: {run.seed: run for run in runs if (run.task, run.side) == (task, side)} for side in SIDES}
    seeds = sorted(found["ours"].keys() & found["theirs"].keys())
    if not seeds:
      continue
    row = {"task": task, "metric": table.find_task(task).main_score, "seeds": len(seeds)}
    scores = {side: np.array([found[side][seed].score for seed in seeds]) for side in SIDES}
    for name, values in {**scores, "difference": scores["ours"] - scores["theirs"]}.items():
      row[name] = float(values.mean())
      row[f"{name}_error"] = float(stats.sem(values)) if len(seeds) > 1 else None
    row["p"] = float(stats.ttest_rel(scores["ours"], scores["theirs"]).pvalue) if len(seeds) > 1 else None
    rows.append(row)
  return rows


def show(rows: list[dict]) -> str:
  """Returns the summary as a table in Markdown."""
  lines = ["| task | metric | seeds | ours | transformers | difference | p |", "|---|---|---|---|---|---|---|"]
  for row in rows:
    cell = lambda name, row=row: (
      f"{row[name]:.3f}" + ("" if row[f"{name}_error"] is None else f" ± {row[f'{name}_error']:.3f}")
    )
    p = "" if row["p"] is None else f"{row['p']:.2f}"
    cells = [row["task"], row["metric"], str(row["seeds"]), *map(cell, ("ours", "theirs", "difference")), p]
    lines.append("| " + " | ".join(cells) + " |")
  return "\n".join(lines)


def main() -> None:
  parser = cli.parser(__doc__)
  parser.add_argument("--checkpoint", required=True, help="a BERT in Hugging Face layout")
  parser.add_argument("--glue", help="the folder over GLUE's folders")
  parser.add_argument("--conll", help="the folder with CoNLL-2003's train.txt and valid.txt")
  parser.add_argument("--tasks", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
  parser.add_argument("--seeds", type=int, default=3, help="how many (default: 3)")
  parser.add_argument("--output", required=True, type=pathlib.Path)
  parser.add_argument("--json", action="store_true", help="print JSON")
  flags = parser.parse_args()

  sources = {task: flags.conll if task == "conll2003" else flags.glue for task in flags.tasks}
  if missing := [task for task, source in sources.items() if not source]:
    raise ValueError(f"{missing[0]} needs {'--conll' if missing[0] == 'conll2003' else '--glue'}")
  flags.output.mkdir(parents=True, exist_ok=True)
  results = flags.output / "results.jsonl"
  runs = [Run(**json.loads(line)) for line in results.read_text().splitlines()] if results.exists() else []
  done = {(run.task, run.seed, run.side) for run in runs}
  for seed in range(flags.seeds):
    for task, source in sources.items():
      for side, run in SIDES.items():
        if (task, seed, side) in done:
          continue
        workdir = flags.output / f"{task}-{side}-{seed}"
        found = Run(task, seed, side, *run(task, source, flags.checkpoint, seed, workdir))
        runs.append(found)
        with open(results, "a") as file:
          file.write(json.dumps(found._asdict()) + "\n")
        print(f"{task} seed {seed} {side}: {found.score:.4f} in {found.seconds:.0f} s", file=sys.stderr)
  rows = summary(run for run in runs if run.task in flags.tasks)
  print(json.dumps(rows) if flags.json else show(rows))


if __name__ == "__main__":
  cli.run(main)
