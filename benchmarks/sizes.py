"""BERT beside ALBERT: parameters, a training step's time and memory, a checkpoint's size.

    python -m benchmarks.sizes --models bert-base albert-base --json

Steps are those of benchmarks.train_step. The sizes are taken in turn, each in a process of its own, and a step's time
is the median over the rounds. "step memory" is what the compiled step holds at most: state, batch, and what it keeps
for the backward pass. "weights" and "checkpoint" are bytes on disk: the parameters alone, and with them the optimizer's
state.
"""

import json
import multiprocessing
import os
import statistics
import tempfile
import time

import jax
from tqdm import tqdm

from benchmarks.train_step import FAMILIES, pretraining_work
from tools import cli
from training.checkpoint import Checkpoints
from training.memory import keep_freed_memory

MODELS = [f"{family}-{size}" for family, sizes in (("bert", ("base", "large")), ("albert", FAMILIES["albert"].sizes))
          for size in sizes]  # fmt: skip
COLUMNS = ("model", "parameters", "step_s", "step_memory_mb", "weights_mb", "checkpoint_mb")


def measure(pipe, model: str, rows: int, length: int, rounds: int) -> None:
  """Sends one row of the table, as numbers by column."""
  keep_freed_memory()
  family, size = model.split("-")
  work = pretraining_work(family, size, rows, length)
  (program,) = work.program.train.programs.values()
  memory = program.memory_analysis()
  result = {
    "model": model,
    "parameters": sum(x.size for x in jax.tree.leaves(work.state.params)),
    "step_memory_mb": (memory.argument_size_in_bytes + memory.temp_size_in_bytes) / 1e6,
  }
  now, seconds = work.state, []
  for _ in range(rounds + 1):
    began = time.perf_counter()
    now, _ = jax.block_until_ready(work.program.train(now, work.batch))
    seconds.append(time.perf_counter() - began)
  result["step_s"] = statistics.median(seconds[1:])  # the first fills caches
  with tempfile.TemporaryDirectory() as folder:
    checkpoints = Checkpoints(folder, keep_last=1, keep_best=0)
    checkpoints.save(now, None)
    checkpoints.close()
    step = os.path.join(folder, "checkpoints", str(int(now.step)))
    result |= {"weights_mb": bytes_in(os.path.join(step, "params")) / 1e6, "checkpoint_mb": bytes_in(step) / 1e6}
  pipe.send(result)


def bytes_in(folder: str) -> int:
  """Bytes of all files below a folder."""
  return sum(os.path.getsize(os.path.join(path, file)) for path, _, files in os.walk(folder) for file in files)


def main() -> None:
  parser = cli.parser(__doc__)
  parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, metavar="FAMILY-SIZE", help="[all]")
  parser.add_argument("--rows", type=int, default=8, help="[%(default)s]")
  parser.add_argument("--length", type=int, default=128, help="[%(default)s]")
  parser.add_argument("--rounds", type=int, default=3, help="steps timed [%(default)s]")
  parser.add_argument("--json", action="store_true", help="print one JSON object a model")
  flags = parser.parse_args()

  context = multiprocessing.get_context("spawn")
  if not flags.json:
    print("  ".join(f"{name:>14}" for name in COLUMNS))
  for model in tqdm(flags.models, disable=None):
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=measure, args=(sender, model, flags.rows, flags.length, flags.rounds))
    process.start()
    sender.close()  # so that a process that dies ends the wait
    try:
      result = receiver.recv()
    except EOFError:
      raise OSError(f"{model} at {flags.rows} × {flags.length} ended early; is there memory for it?") from None
    process.join()
    tqdm.write(_as_json(result) if flags.json else _as_text(result))


def _as_json(result: dict) -> str:
  return json.dumps({name: round(value, 4) if isinstance(value, float) else value for name, value in result.items()})


def _as_text(result: dict) -> str:
  cells = (
    f"{x:,.2f}" if isinstance(x, float) else f"{x:,}" if isinstance(x, int) else x for x in map(result.get, COLUMNS)
  )
  return "  ".join(f"{cell:>14}" for cell in cells)


if __name__ == "__main__":
  cli.run(main)
