"""Run train.py on a SLURM cluster: print a batch script, or submit it.

  python -m launch.slurm --nodes=4 --gpus=8 --time=24:00:00 -- --config=configs/bert.py:large --workdir=/shared/large
  python -m launch.slurm --nodes=4 --gpus=8 --submit -- --config=configs/bert.py:large --workdir=/shared/large

One process a GPU, or with --gpus=0 one a node on its CPUs; SLURM tells each who it is. The workdir is on a disk that
all nodes see. Two minutes before the time limit, and when the job is preempted, SLURM sends SIGTERM: the run is saved,
and the job goes back into the queue and goes on from there. So it does after a process or its node was lost, or the
network has failed (status 75, or killed by a signal), twenty times at most without a new checkpoint. Any other end is a
mistake, which would be made again: it ends the job, and so does `scancel`.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence

from launch import command
from tools import cli

WARNING = 120  # seconds between SIGTERM and the end
ATTEMPTS = 20  # that are lost one after another, none of which has saved a step
SCRIPT = r"""#!/bin/bash
{directives}

{setup}log={log}
echo "launch: attempt ${{SLURM_RESTART_COUNT:-0}} on $SLURM_JOB_NODELIST" >> "$log"
status=0
# srun asks for its processes' cores itself: it does not take that from sbatch.
srun ${{SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"}} --kill-on-bad-exit=1 \
  --output="$log" --open-mode=append {train} || status=$?

# How this attempt has ended, and how many before it, one after another, were lost with no checkpoint more.
# srun's own lines say which process was the first to end badly; others were killed for it.
read -r end losses < <(awk -v status="$status" '
  /^launch: attempt/ {{ end = first = "" }}
  /^launch: lost/ {{ losses++ }}
  /^continuing from step / {{ if ($4 + 0 > step) losses = 0; step = $4 + 0 }}
  /^stopped by SIGTERM/ {{ end = "stopped"; losses = 0 }}
  /^error: / && !/lost a process|do not meet|may pass/ {{ end = "mistake" }}
  first == "" && /^(srun|slurmstepd): error: .*[Nn][Oo][Dd][Ee] [Ff][Aa][Ii][Ll]/ {{ first = 75 }}
  first == "" && /^srun: error: .*: tasks? / {{
    if (match($0, /Exited with exit code [0-9]+/)) first = substr($0, RSTART + 22, RLENGTH - 22) + 0
    else if (/: Terminated/) first = 143
    else if (/: Interrupt/) first = 130
    else if (/: (Killed|Aborted|Segmentation fault|Bus error|Illegal instruction|Floating point)/) first = 137
  }}
  END {{
    if (first == "") first = status + 0
    if (end == "" && first == 143) end = "stopped" # before it could save, for there was nothing yet
    if (end == "" && (first == 75 || (first > 128 && first != 130))) end = "lost"
    print (end == "" ? "mistake" : end), losses + 0
  }}' "$log")
if test "$end" = stopped; then
  scontrol requeue "$SLURM_JOB_ID" # it was preempted, or its time was up
elif test "$status" != 0 && test "$end" = lost; then
  echo "launch: lost a process or its node, $((losses + 1)) times in a row; {attempts} end the job" >> "$log"
  test "$((losses + 1))" -ge {attempts} || scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
"""
# As sbatch has it: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes:seconds …
TIME = re.compile(r"\d+(:\d\d?){0,2}|\d+-\d\d?(:\d\d?){0,2}|UNLIMITED")


def main() -> None:
  own, train = command.split(sys.argv[1:])
  parser = cli.parser(__doc__)
  add = parser.add_argument
  add("--nodes", type=int, default=1, help="how many")
  add("--gpus", type=int, default=0, help="of each node; 0 = CPUs")
  add("--cpus", type=int, default=8, help="of each process")
  add("--time", default="24:00:00", help="limit of one attempt (default: 24:00:00)")
  add("--name", default="bidir", help="the job's")
  add("--python", default=".venv/bin/python", help="with the packages of requirements.txt, and for GPUs jax[cuda13]")
  add("--sbatch", action="append", default=[], metavar="FLAG", help="a further one, e.g. --sbatch=--partition=long")
  add("--submit", action="store_true", help="submit the script instead of printing it")
  args = parser.parse_args(own)
  for name, least in (("nodes", 1), ("gpus", 0), ("cpus", 1)):
    if getattr(args, name) < least:
      raise ValueError(f"--{name}={getattr(args, name)} must be at least {least}")
  if not re.fullmatch(r"[\w.-]+", args.name):
    raise ValueError(f"--name={args.name!r} must be letters, digits, dots and dashes")
  if not TIME.fullmatch(args.time):
    raise ValueError(
      f"--time={args.time!r} must be as SLURM writes it, e.g. 24:00:00, 2-12 (days-hours) or 90 (minutes)"
    )
  for flag in args.sbatch:
    if not re.fullmatch(r"--?[a-zA-Z].*", flag):
      raise ValueError(f"--sbatch={flag!r} must be a flag in one line, e.g. --sbatch=--partition=long")
  for line in command.check(train):
    print(line, file=sys.stderr)
  text = script(train, args.nodes, args.gpus, args.cpus, args.time, args.name, args.python, args.sbatch)
  if not args.submit:
    print(text, end="")
    return
  try:
    done = subprocess.run(["sbatch"], input=text, text=True, cwd=command.ROOT)
  except FileNotFoundError:
    raise ValueError("there is no sbatch here; submit from a machine of the cluster, or print the script") from None
  if done.returncode:
    raise ValueError("sbatch has refused the job, and says above why; --sbatch adds what a cluster asks for")


def script(
  train: Sequence[str], nodes: int, gpus: int, cpus: int, time: str, name: str, python: str, further: Sequence[str] = ()
) -> str:
  """Returns the text of a batch script.

  Args:
    train: train.py's arguments.
    nodes: how many.
    gpus: of each node, a process each; 0 = one process a node, on its CPUs.
    cpus: of each process.
    time: limit of one attempt, as SLURM writes it.
    name: the job's.
    python: the interpreter, from the checkout's folder.
    further: more flags for sbatch.
  """
  directives = [
    f"--job-name={name}",
    f"--nodes={nodes}",
    f"--ntasks-per-node={gpus or 1}",
    f"--cpus-per-task={cpus}",
    # All of a node's GPUs for each of its processes, of which JAX takes the one that SLURM_LOCALID names.
    *([f"--gpus-per-node={gpus}", "--gpu-bind=none"] if gpus else []),
    f"--time={time}",
    f"--signal=TERM@{WARNING}",
    "--requeue",
    "--open-mode=append",
    f"--output={name}-%j.log",
    f"--chdir={command.ROOT}",
    *further,
  ]
  return SCRIPT.format(
    directives="\n".join(f"#SBATCH {flag}" for flag in directives),
    setup="" if gpus else "export JAX_PLATFORMS=cpu\n",
    log=f'"{name}-$SLURM_JOB_ID.log"',
    attempts=ATTEMPTS,
    train=shlex.join([python, "train.py", "--distributed", *train]),
  )


if __name__ == "__main__":
  cli.run(main)
