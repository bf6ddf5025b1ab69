"""What a compiled step needs and does, as numbers, a table and advice."""

import collections
import contextlib
import dataclasses
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from tools import hlo
from training import sharding
from training.programs import Shapes
from training.state import TrainState

_SCALARS = 1024  # bytes: what is smaller are sums for the log, norms and the like


@dataclasses.dataclass(frozen=True)
class Report:
  """A step on one device.

  Attributes:
    step: "train" or "eval".
    stage: number of the run's stage.
    batch_size, length: rows and tokens of the global batch.
    devices, mesh: of how many it is one, and how they are laid out.
    fits: whether `total` is at most the HBM; None = its size is not known.
    bytes_per_device: memory by kind: parameters, optimizer, memory (XLNet's), batch, padding (of these, by layouts),
      outputs (not written over inputs), temporaries (activations, gradients, what is gathered), program; and `total`,
      the most that is held at once.
    hbm_bytes: what a program may use.
    flops_per_device: matrix products, loops counted.
    model_flops_per_device: by the model's own count.
    kernels: how often kernels run that are written by hand, such as fused attention: their products are not counted.
    collectives: by kind and size of a group, largest first: kind, devices, between ("devices" or, over the data-centre
      network, "slices"), bytes (sent in a step, as whole arrays; between slices by one device), times (executed in a
      step), largest (bytes of the largest at once), source.
    resharding_warnings: XLA's warnings that an array goes whole to every device.
    seconds_at_peak: flops_per_device at the chip's peak rate; None = not known.
    compile_s: seconds.
  """

  step: str
  stage: int
  batch_size: int
  length: int
  devices: int
  mesh: dict[str, int]
  fits: bool | None
  bytes_per_device: dict[str, int]
  hbm_bytes: int | None
  flops_per_device: float | None
  model_flops_per_device: float
  kernels: int
  collectives: list[dict]
  resharding_warnings: list[str]
  seconds_at_peak: float | None
  compile_s: float


def held_bytes(state: TrainState, shapes: Shapes, mesh: Mesh, which: str) -> dict[str, int]:
  """Returns the bytes of a device that the step is given, by kind, without what layouts pad."""
  own = lambda tree: sum(math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(tree))
  by_row = sharding.by_row(mesh)
  batch = sum(math.prod(by_row.shard_shape(x.shape)) * x.dtype.itemsize for x in shapes.values())
  optimizer = own(state.opt_state) if which == "train" else 0
  return {"parameters": own(state.params), "optimizer": optimizer, "memory": own(state.carry), "batch": batch}


def report(
  lower: Callable[[], jax.stages.Lowered],
  held: dict[str, int],
  hbm_bytes: int | None,
  peak_flops: float | None,
  model_flops: float,
  facts: dict,
) -> Report:
  """Compiles and measures; arguments are fields of Report, `facts` those that need no measuring.

  A program that does not fit is not compiled to the end: then only its memory is known, and not by kind.
  """
  began = time.monotonic()
  flops, kernels, collectives = None, 0, []
  with errors_of_the_compiler() as said:
    try:
      program = lower().compile()
    except jax.errors.JaxRuntimeError as error:
      if "RESOURCE_EXHAUSTED" not in str(error):
        raise
      total = demanded(str(error), hbm_bytes)
      kinds = held | {"total": total}
    else:
      kinds = held | by_kind(program, held, on_tpu=hbm_bytes is not None)
  seconds = time.monotonic() - began
  fits = None if hbm_bytes is None else kinds["total"] <= hbm_bytes
  if "temporaries" in kinds:
    read = hlo.read(program.as_text())
    flops, kernels, collectives = read.matrix_flops(), read.kernels(), grouped(read.collectives())
  return Report(
    **facts,
    fits=fits,
    bytes_per_device=kinds,
    hbm_bytes=hbm_bytes,
    flops_per_device=flops,
    model_flops_per_device=model_flops,
    kernels=kernels,
    collectives=collectives,
    resharding_warnings=[line for line in said if "rematerialization" in line],
    seconds_at_peak=flops / peak_flops if flops and peak_flops else None,
    compile_s=round(seconds, 1),
  )


def by_kind(program: jax.stages.Compiled, held: dict[str, int], on_tpu: bool) -> dict[str, int]:
  """Returns the memory of a compiled program beyond what it is given, and the total."""
  stats = program.memory_analysis()
  outputs = stats.output_size_in_bytes - stats.alias_size_in_bytes
  parts = {
    "padding": max(stats.argument_size_in_bytes - sum(held.values()), 0),
    "outputs": max(outputs, 0),
    "temporaries": stats.temp_size_in_bytes,
    "program": stats.generated_code_size_in_bytes,
  }
  whole = stats.argument_size_in_bytes + parts["outputs"] + parts["temporaries"]
  # A TPU's temporaries count some places twice, which its peak does not; a CPU's peak counts no temporaries.
  most = min(whole, stats.peak_memory_in_bytes) if on_tpu else whole
  return parts | {"total": most + parts["program"]}


def demanded(message: str, hbm_bytes: int | None) -> int:
  """Returns the bytes that a program would need, from what the compiler says when it has not got them."""
  scale = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
  sizes = lambda pattern: [float(number) * scale[unit] for number, unit in re.findall(pattern, message)]
  # Whole numbers only: the compiler may repeat itself, cut off ("Total hbm usage >= 16.0...").
  found = sizes(r"(?:Used|required for HLO temporaries \(|Total hbm usage >=) ?(\d+(?:\.\d+)?)([KMGT]?)\b(?!\.)")
  return int(max(found, default=(hbm_bytes or 0) + 1))


def grouped(collectives: list[hlo.Collective]) -> list[dict]:
  """Returns the collectives of a step by kind and group size, those that send most first."""
  groups = collections.defaultdict(list)
  for one in collectives:
    groups[one.kind, one.devices, one.between].append(one)
  rows = []
  for (kind, devices, between), some in groups.items():
    largest = max(some, key=lambda one: one.bytes * one.times)
    rows.append(
      {
        "kind": kind,
        "devices": devices,
        "between": between,
        "bytes": int(sum(one.bytes * one.times for one in some)),
        "times": int(sum(one.times for one in some)),
        "largest": max(one.bytes for one in some),
        "source": largest.source,
      }
    )
  return sorted(rows, key=lambda row: -row["bytes"])


@contextlib.contextmanager
def errors_of_the_compiler() -> Iterator[list[str]]:
  """Yields a list that in the end holds the lines which compilers, not Python, have written to stderr meanwhile."""
  lines = []
  sys.stderr.flush()
  kept = os.dup(2)
  with tempfile.TemporaryFile() as file:
    os.dup2(file.fileno(), 2)
    try:
      yield lines
    finally:
      sys.stderr.flush()
      os.dup2(kept, 2)
      os.close(kept)
      file.seek(0)
      lines += file.read().decode("utf-8", "replace").splitlines()


def table(report: Report) -> str:
  """Returns the report as text."""
  mesh = " × ".join(f"{name} {size}" for name, size in report.mesh.items() if size > 1) or "one device"
  lines = [
    f"stage {report.stage}, {report.step} step: {report.batch_size} rows of {report.length} tokens on {report.devices} "
    f"devices ({mesh}), compiled in {report.compile_s:.0f} s"
  ]
  lines += [f"  {name:<14}{size / 2**20:>12,.1f} MiB" for name, size in report.bytes_per_device.items() if size]
  if report.hbm_bytes:
    share = report.bytes_per_device["total"] / report.hbm_bytes
    lines.append(f"  of HBM        {report.hbm_bytes / 2**20:>12,.1f} MiB: {share:.0%}, it {_fits(report)}")
  if report.flops_per_device is not None:
    ratio = report.flops_per_device / report.model_flops_per_device
    at_peak = f", {report.seconds_at_peak * 1e3:,.1f} ms at peak" if report.seconds_at_peak else ""
    lines.append(
      f"  products      {report.flops_per_device / 1e9:>12,.1f} GFLOP a device, {ratio:.3f} × the model's{at_peak}"
    )
  if report.kernels:
    lines.append(f"  kernels       {report.kernels:>12,} runs of fused attention, whose products are not counted")
  for row in report.collectives:
    if row["bytes"] >= _SCALARS:
      among = f"{row['devices'] or 'all'} {row['between']}"
      lines.append(f"  {row['kind']:<14}{row['bytes'] / 2**20:>12,.1f} MiB in {row['times']} among {among}")
  lines += [f"  warning: {line}" for line in report.resharding_warnings]
  return "\n".join(lines)


def _fits(report: Report) -> str:
  return "fits" if report.fits else "does not fit"


def advice(report: Report, config: ConfigDict) -> str:
  """Returns what to change where a step does not fit."""
  kinds, hbm = report.bytes_per_device, report.hbm_bytes
  ways = []
  state = kinds["parameters"] + kinds["optimizer"]
  parts = report.mesh["data"] * report.mesh["fsdp"]
  if state > 0.4 * hbm and report.mesh["fsdp"] < report.devices:
    ways.append(f"--config.mesh.fsdp={2 * report.mesh['fsdp']} (parameters and optimizer take {state / 2**30:.1f} GiB)")
  if report.step == "train" and state < hbm:
    if config.model.remat != "full":
      ways.append(f"--config.model.remat={'dots' if config.model.remat == 'none' else 'full'}")
    # What is not state is of a micro-batch's rows.
    times = max(2, 2 ** math.ceil(math.log2((kinds["total"] - state) / (hbm - state))))
    if report.batch_size % (times * config.accumulate * parts) == 0:
      ways.append(f"--config.accumulate={times * config.accumulate}")
  if report.batch_size > parts * config.accumulate:
    ways.append("a smaller batch_size (--search finds the largest that fits)")
  elif config.model.get("num_heads", 0) % (2 * report.mesh["tensor"]) == 0:  # a task's are its checkpoint's: unknown
    ways.append(f"--config.mesh.tensor={2 * report.mesh['tensor']}")
  return f"it does not fit; try {', or '.join(ways or ['devices with more memory'])}"
