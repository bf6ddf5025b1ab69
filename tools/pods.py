"""Compiles the papers' runs for the papers' machines and for today's, one after another, and prints one table.

    python -m tools.pods --results=runs/pods.jsonl

Each row is `python -m tools.compile` with the arguments that the table shows; finished ones are kept in --results, and
the same command goes on. A row takes minutes and some gigabytes of this host's memory; it needs libtpu (pip install -r
requirements-compile.txt).
"""

import json
import os
import subprocess
import sys
from typing import NamedTuple

from tools import cli


class Row(NamedTuple):
  """One run on one machine.

  Attributes:
    name: in words.
    machine: in words.
    arguments: of tools.compile.
  """

  name: str
  machine: str
  arguments: tuple[str, ...]


BERT_BASE = "configs/bert.py:base", "--stage=1", "--config.batch_size=256"
BERT_LARGE = "configs/bert.py:large", "--stage=1", "--config.batch_size=256"
SMALL_BATCH = "configs/bert.py:large", "--stage=1", "--config.batch_size=64"
BOTH = "--config.mesh.fsdp=4", "--config.mesh.tensor=2"
LAMB_LARGE = "configs/bert.py:large", "--stage=0", "--config.batch_size=32768", "--config.optimizer.name=lamb"
ALBERT = ("configs/albert.py:xxlarge",)
XLNET = ("configs/xlnet.py:large",)
FULL = "--config.model.remat=full"


def _row(name: str, machine: str, topology: str, run: tuple[str, ...], *more: str) -> Row:
  return Row(name, machine, (f"--config={run[0]}", f"--topology={topology}", *run[1:], *more))


ROWS = (
  _row("BERT-base, 256 × 512", "16 v3 chips", "v3:4x4", BERT_BASE),
  _row("BERT-large, 256 × 512", "64 v3 chips", "v3:8x8", BERT_LARGE),
  _row("LAMB BERT-large, 32,768 × 128", "1,024 v3 chips", "v3:32x32", LAMB_LARGE),
  _row("ALBERT-xxlarge, 4,096 × 512", "512 v3 chips", "v3:16x32", ALBERT, "--config.accumulate=2"),
  _row("XLNet-large, 8,192 × 512, memory 384", "512 v3 chips", "v3:16x32", XLNET, FULL),
  _row("BERT-large, 64 × 512, fsdp 8", "16 v3 chips", "v3:4x4", SMALL_BATCH, "--config.mesh.fsdp=8"),
  _row("BERT-large, 64 × 512, fsdp 4, tensor 2", "16 v3 chips", "v3:4x4", SMALL_BATCH, *BOTH),
  _row("BERT-base, 256 × 512", "16 v6e chips", "v6e:4x4", BERT_BASE),
  _row("BERT-large, 256 × 512", "64 v6e chips", "v6e:8x8", BERT_LARGE),
  _row("BERT-base, 256 × 512", "16 v5e chips", "v5e:4x4", BERT_BASE),
  _row("BERT-large, 256 × 512", "64 v5e chips", "v5e:8x8", BERT_LARGE),
  _row("BERT-large, 256 × 512", "64 v6e chips in two slices", "v6e:4x8", BERT_LARGE, "--slices=2"),
  _row("LAMB BERT-large, 32,768 × 128", "256 v5e chips", "v5e:16x16", LAMB_LARGE, "--config.accumulate=8"),
  _row("LAMB BERT-large, 32,768 × 128", "256 v6e chips", "v6e:16x16", LAMB_LARGE, "--config.accumulate=4"),
  _row("ALBERT-xxlarge, 4,096 × 512", "256 v5e chips", "v5e:16x16", ALBERT, "--config.accumulate=4"),
  _row("ALBERT-xxlarge, 4,096 × 512", "256 v6e chips", "v6e:16x16", ALBERT, "--config.accumulate=2"),
  _row("XLNet-large, 8,192 × 512, memory 384", "256 v5e chips", "v5e:16x16", XLNET, FULL, "--config.accumulate=4"),
  _row("XLNet-large, 8,192 × 512, memory 384", "256 v6e chips", "v6e:16x16", XLNET, FULL),
)


def main() -> None:
  """The command line."""
  parser = cli.parser(__doc__)
  parser.add_argument("--results", required=True, help="JSON lines, one a row")
  parser.add_argument("--only", default="", help="only rows whose machine's name has this in it")
  parser.add_argument("--print", action="store_true", help="compile nothing, print what is there")
  args = parser.parse_args()
  results = read(args.results)
  for row in ROWS:
    if args.only in row.machine and row.arguments not in results and not args.print:
      if (found := compile_row(row)) is None:
        continue
      os.makedirs(os.path.dirname(os.path.abspath(args.results)), exist_ok=True)
      with open(args.results, "a", encoding="utf-8") as file:
        file.write(json.dumps({"arguments": row.arguments} | found) + "\n")
      results = read(args.results)
  print(table(results))


def read(path: str) -> dict[tuple[str, ...], dict]:
  """Returns the results so far, by arguments."""
  if not os.path.exists(path):
    return {}
  with open(path, encoding="utf-8") as file:
    return {tuple(result["arguments"]): result for result in map(json.loads, file)}


def compile_row(row: Row) -> dict | None:
  """Returns what tools.compile says, in a process of its own; None if it failed, which it then says itself."""
  print(f"{row.name} on {row.machine}: tools.compile {' '.join(row.arguments)}", file=sys.stderr, flush=True)
  command = [sys.executable, "-m", "tools.compile", *row.arguments, "--json"]
  ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
  return json.loads(ended.stdout) if ended.returncode in (0, 2) else None  # 2: it does not fit


def table(results: dict[tuple[str, ...], dict]) -> str:
  """Returns the rows that there are as Markdown."""
  lines = [
    "| run | machine | rows a device | memory, GiB of | fits | products over the model's | sent a step, MiB | "
    "compiled in, s | arguments of `tools.compile` |",
    "|---|---|---|---|---|---|---|---|---|",
  ]
  for row in ROWS:
    if (found := results.get(row.arguments)) is None:
      continue
    total = found["bytes_per_device"]["total"] / 2**30
    flops = found["flops_per_device"]
    products = "" if flops is None else f"{flops / found['model_flops_per_device']:.3f}"
    sent = "; ".join(
      f"{one['kind']} {one['bytes'] / 2**20:,.0f}" + " between slices" * (one.get("between") == "slices")
      for one in found["collectives"]
      if one["bytes"] > 2**16
    )
    cells = [
      row.name,
      row.machine,
      f"{found['batch_size'] / found['devices']:g}",
      f"{total:.1f} of {found['hbm_bytes'] / 2**30:.2f}",
      "yes" if found["fits"] else "no",
      products,
      sent,
      f"{found['compile_s']:.0f}",
      f"`{' '.join(row.arguments)}`",
    ]
    lines.append(f"| {' | '.join(cells)} |")
  return "\n".join(lines)


if __name__ == "__main__":
  cli.run(main)
