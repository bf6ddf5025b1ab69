"""Whether a host keeps up with its chips: what a step takes of it at half the machine's peak, and what one core makes.

  taskset -c 1 python -m benchmarks.host --rounds=7
  python -m benchmarks.host --only=v6e --json

The rows are those of `tools.pods`. At 50 % MFU a step lasts as long as the model's own products take at half the peak
of all chips, and in that time a host, of four chips, must make its rows of the batch. One core makes them of a corpus
of random tokens shaped like Wikipedia (`benchmarks.pipeline`), by the run's own reader at its length and batch; its
seconds are those that it worked for it (CPU time), and the best round counts, for other work on the machine can but
take away. Padding counts on both sides. Rows that are read alike are measured once, and all alternate. `cores` is the
first over the second: a run reads in one thread, so that a host keeps up where it is below 1.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import tempfile
import time
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from benchmarks import pipeline
from data import corpus
from parts import pretraining
from tools import cli, pods
from tools.compile import chosen, read_config
from training.hardware import TPUS
from training.stages import Stage

MFU = 0.5
CHIPS = 4  # of a host, in slices of several hosts
CORES = {"v2": 2, "v3": 2}  # of a chip, each of them a device; one on later ones


class Need(NamedTuple):
  """What a run takes of each host.

  Attributes:
    name, machine: in words.
    config, stage: what is run.
    hosts: of the machine.
    rows: of a batch, on one host.
    step_s: a step's time at 50 % MFU.
  """

  name: str
  machine: str
  config: ConfigDict
  stage: Stage
  hosts: int
  rows: int
  step_s: float

  @property
  def tokens_per_s(self) -> float:
    """Of one host, with padding."""
    return self.rows * self.stage.length / self.step_s

  @property
  def reader(self) -> tuple:
    """What decides how fast its rows are read."""
    data = json.dumps([self.config.family, self.config.objective.get("pair"), self.config.data.to_dict()], default=str)
    return data, self.stage.length, self.stage.batch_size, self.rows


def need(row: pods.Row) -> Need:
  """Returns what one of the table's runs takes of each host of its machine."""
  parser = argparse.ArgumentParser(allow_abbrev=False)
  for name in ("--config", "--topology"):
    parser.add_argument(name)
  parser.add_argument("--stage", type=int, default=-1)
  parser.add_argument("--slices", type=int, default=1)
  args, fields = parser.parse_known_args(row.arguments)
  config = read_config([f"--config={args.config}", *fields])
  plan = pretraining.plan(config)
  stage = chosen(plan.stages, args.stage)[0]
  generation, _, shape = args.topology.partition(":")
  chips = args.slices * math.prod(map(int, shape.split("x")))
  peak = chips * CORES.get(generation, 1) * TPUS[generation].peak_flops
  flops = plan.flops(stage.batch_size, stage.length)
  hosts = chips // CHIPS
  return Need(row.name, row.machine, config, stage, hosts, stage.batch_size // hosts, flops / (MFU * peak))


def measure(needs: list[Need], opened: corpus.Corpus, rounds: int, seconds: float) -> list[dict[str, Any]]:
  """Returns a result for each of `needs`, read from a corpus in rounds of so many seconds."""
  readers = {one.reader: one for one in needs}
  sources = {
    key: pretraining.described(one.config).rows(opened, pipeline.Tokenizer(), one.stage, 0, one.stage.index)
    for key, one in readers.items()
  }
  rates = {key: [] for key in readers}
  for number in range(rounds):
    for key, one in readers.items():
      rows, start = np.arange(one.rows), 1000 * number
      _, made = pipeline.speed(sources[key], one.stage.batch_size, start, seconds, rows, time.process_time)
      rates[key].append(made)
  return [
    {
      "run": one.name,
      "machine": one.machine,
      "hosts": one.hosts,
      "rows": one.rows,
      "step_s": one.step_s,
      "takes": one.tokens_per_s,
      "makes": max(rates[one.reader]),
      "makes_median": statistics.median(rates[one.reader]),
      "cores": one.tokens_per_s / max(rates[one.reader]),
    }
    for one in needs
  ]


def main() -> None:
  parser = cli.parser(__doc__)
  parser.add_argument("--tokens", type=int, default=50_000_000, help="in the corpus (default: %(default)s)")
  parser.add_argument("--rounds", type=int, default=5, help="alternating (default: %(default)s)")
  parser.add_argument("--seconds", type=float, default=2.0, help="of a round (default: %(default)s)")
  parser.add_argument("--only", default="", help="only rows whose machine's name has this in it")
  parser.add_argument("--json", action="store_true", help="print one JSON object")
  args = parser.parse_args()
  if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
  needs = [need(row) for row in pods.ROWS if args.only in row.machine]
  with tempfile.TemporaryDirectory() as folder:
    pipeline.write_corpus(pathlib.Path(folder), args.tokens)
    results = measure(needs, corpus.Corpus.open(folder, "train"), args.rounds, args.seconds)
  print(json.dumps(results) if args.json else table(results))


def table(results: list[dict[str, Any]]) -> str:
  """Returns the results as Markdown."""
  lines = [
    "| run | machine | hosts | rows of a host | step, ms | a host takes, tokens/s | a core makes, tokens/s | cores |",
    "|---|---|---|---|---|---|---|---|",
  ]
  for one in results:
    of_step = f"{one['hosts']} | {one['rows']} | {1000 * one['step_s']:,.0f} | {one['takes']:,.0f}"
    lines.append(f"| {one['run']} | {one['machine']} | {of_step} | {one['makes']:,.0f} | {one['cores']:.3f} |")
  return "\n".join(lines)


if __name__ == "__main__":
  cli.run(main)
