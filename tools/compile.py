"""Compiles a run's own training step for a described pod, on this CPU, and says whether it fits and what it does.

    python -m tools.compile --config=configs/bert.py:large --topology=v3:8x8 --config.batch_size=256
    python -m tools.compile --config=configs/xlnet.py:large --topology=v3:16x32 --config.model.remat=full --json
    python -m tools.compile --config=configs/bert.py:base --topology=v5e:4x4 --search

Nothing runs, and pretraining needs no text: a vocabulary of config.model.vocab_size pieces is assumed. (Fine-tuning
reads its checkpoint and its task.) For each stage: memory of a device by kind against its HBM, matrix-product FLOPs of
a device, loops counted, over the model's own count, and what devices send each other. Exits with status 2 if a stage
does not fit. Topologies are v2, v3, v4, v5e, v5p and v6e with chips along each axis (v3:8x8 has 128 cores), for which
libtpu is needed (pip install -r requirements-compile.txt), and cpu:8, eight devices on this host.
"""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # libtpu would look for a TPU

import dataclasses
import json
import math
from collections.abc import Sequence

import jax
from absl import logging
from jax.sharding import Mesh
from ml_collections import ConfigDict

import parts
from parts import Parts, Plan
from tools import cli, compiled
from tools.compiled import Report
from tools.topology import Topology, describe
from training import optimizer, programs, run_flags, settings, sharding
from training.stages import Stage

_GUESSES = 6  # sizes that are tried before their range is halved


def main() -> None:
  """The command line."""
  parser = cli.parser(__doc__)
  parser.add_argument("--config", required=True, help="FILE.py[:VARIANT]; its fields follow as --config.FIELD=VALUE")
  parser.add_argument("--topology", required=True, help="e.g. v3:8x8")
  parser.add_argument("--slices", type=int, default=1, help="so many of them, joined by a data-centre network")
  parser.add_argument("--stage", type=int, default=-1, help="one stage alone, counted from 0")
  parser.add_argument("--step", choices=("train", "eval"), default="train", help="which step")
  parser.add_argument("--search", action="store_true", help="also find the largest batch that fits")
  parser.add_argument("--json", action="store_true", help="print JSON")
  args, fields = parser.parse_known_args()
  logging.set_verbosity(logging.ERROR)
  config = read_config([f"--config={args.config}", *fields])
  topology = describe(args.topology, args.slices)
  stages = chosen(planned(config, topology).stages, args.stage)
  reports = [compile_stage(config, stage.index, topology, args.step) for stage in stages]
  worst = max(reports, key=lambda report: report.bytes_per_device["total"])
  summary = {"topology": topology.name, "slices": args.slices} | dataclasses.asdict(worst)
  if len(reports) > 1:
    summary["stages"] = [dataclasses.asdict(report) for report in reports]
  if args.search:
    summary["largest_batch"] = {
      report.stage: largest_batch(config, report.stage, topology, args.step, report) for report in reports
    }
  if args.json:
    print(json.dumps(summary))
  else:
    for report in reports:
      print(compiled.table(report))
      if args.search:
        found = summary["largest_batch"][report.stage]
        print(f"largest batch that fits: {found or 'none'} rows (config.accumulate={config.accumulate})")
      elif report.fits is False:
        print(compiled.advice(report, config))
  if not all(report.fits in (True, None) for report in reports):
    raise SystemExit(2)


def read_config(arguments: list[str]) -> ConfigDict:
  """Returns the config that train.py would read from this command line.

  Raises:
    ValueError: a mistake in it, as train.py says it.
  """
  _, config = run_flags.parsed(["--workdir=-", *arguments])
  settings.check(config)
  return config


def planned(config: ConfigDict, topology: Topology) -> Plan:
  """Returns what a run on these devices compiles."""
  return parts.plan(config, sharding.row_parts(_mesh(config, topology)))


def _mesh(config: ConfigDict, topology: Topology) -> Mesh:
  return sharding.make_mesh(sharding.MeshConfig(**config.mesh), topology.devices)


def chosen(stages: Sequence[Stage], number: int) -> Sequence[Stage]:
  """Returns the stages to compile: all (-1), or the one of this number."""
  if not -1 <= number < len(stages):
    raise ValueError(f"--stage={number}: the run has {len(stages)} stages, from 0 (-1 = all)")
  return stages if number < 0 else [stages[number]]


def with_batch(config: ConfigDict, index: int, rows: int) -> ConfigDict:
  """Returns the config with another batch size in one stage."""
  config = config.copy_and_resolve_references()
  if len(config.get("stages", ())) > index:
    config.stages = tuple(
      dict(stage) | {"batch_size": rows} if at == index else stage for at, stage in enumerate(config.stages)
    )
  else:
    config.batch_size = rows
  return config


def compile_stage(config: ConfigDict, index: int, topology: Topology, which: str = "train") -> Report:
  """Returns what the compiled step of a stage needs and does; of several shapes, the largest.

  Raises:
    ValueError: fields that do not fit together, or do not fit the topology.
  """
  mesh = _mesh(config, topology)
  plan = planned(config, topology)
  stage = plan.stages[index]
  resolved = settings.with_facts(config, plan.facts if isinstance(plan, Parts) else {})
  sharding.check_model(resolved.model.num_heads, resolved.model.intermediate_size, mesh)
  train_shapes, eval_shapes = plan.shapes(stage)
  shapes = (train_shapes if which == "train" else eval_shapes or train_shapes)[-1]
  rows, length = shapes["sequence_ids"].shape
  sharding.check_rows("batch_size", rows, mesh, config.accumulate)
  tx, _ = optimizer.make(settings.optimizer_config(resolved.optimizer, resolved.steps), resolved.steps)
  steps = programs.lower_stage(
    plan.objective, tx, stage.batch_size, mesh, seed=config.seed, accumulate=config.accumulate
  )
  return compiled.report(
    lower=lambda: (steps.train if which == "train" else steps.eval)(shapes),
    held=compiled.held_bytes(steps.state, shapes, mesh, which),
    hbm_bytes=topology.hbm_bytes,
    peak_flops=topology.peak_flops,
    model_flops=plan.flops(rows, length) / (1 if which == "train" else 3) / mesh.size,
    facts={
      "step": which,
      "stage": index,
      "batch_size": rows,
      "length": length,
      "devices": mesh.size,
      "mesh": dict(mesh.shape),
    },
  )


def largest_batch(config: ConfigDict, index: int, topology: Topology, which: str, first: Report) -> int:
  """Returns the largest batch of a stage that fits, in steps of a row for each device and micro-batch; 0 = none does.

  The memory of two sizes says where to look next.
  """
  if topology.hbm_bytes is None:
    raise ValueError(f"--search: the memory of {topology.name} is not known")
  mesh = _mesh(config, topology)
  unit = sharding.row_parts(mesh) * config.accumulate
  tried = {first.batch_size // unit: first.fits}
  needs = {first.batch_size // unit: first.bytes_per_device["total"]}

  def fits(units: int) -> bool:
    if units not in tried:
      report = compile_stage(with_batch(config, index, units * unit), index, topology, which)
      tried[units], needs[units] = report.fits, report.bytes_per_device["total"]
    return tried[units]

  low, high = 0, math.inf  # fits, does not
  guess = first.batch_size // unit
  while True:
    low, high = (guess, high) if fits(guess) else (low, guess)
    if high - low <= 1:
      break
    if len(needs) > 1 and len(needs) < _GUESSES:
      (a, at_a), (b, at_b) = sorted(needs.items())[-2:]
      guess = int(a + (topology.hbm_bytes - at_a) * (b - a) / max(at_b - at_a, 1))  # as if memory grew evenly
    else:
      guess = 2 * low if high == math.inf else (low + high) // 2
    guess = max(low + 1, min(guess, high - 1, 4 * low or high - 1))
  return low * unit


if __name__ == "__main__":
  jax.config.update("jax_enable_compilation_cache", False)  # what comes from a cache says nothing of how it was made
  cli.run(main)
