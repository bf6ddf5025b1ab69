"""Runs on TPU VMs and pods: from nothing to a run at work, through preemption, and back.

  python -m launch.tpu watch --name=albert --type=v3-32 --zone=europe-west4-a --spot \\
      --stage=data.corpus=gs://BUCKET/corpus --workdir=gs://BUCKET/albert --config=configs/albert.py:base

  create   asks for the pod; the request waits in a queue
  status   says how the pod stands, and the run on each host
  install  copies the checkout at the present commit to every host, with Python and all packages
  stage    copies the folders named by --stage from a bucket to every host's disk
  run      starts train.py on every host as a service, which outlives ssh; a run that is there goes on
  watch    all of the above as needed, until the run is finished: also again, after the pod was taken away
  logs     prints the end of a host's log
  fetch    copies the workdir (its checkpoints by --checkpoints) and the log to --to
  stop     saves and stops the run on every host
  delete   gives the pod back, with its hosts and their disks

Flags may stand in a file, one a line, the same file for every verb: python -m launch.tpu run @pod.txt. What begins with
--config goes to train.py. --dry-run prints every command as it would run, and runs none. launch/README.md has the whole
way.
"""

import argparse
import dataclasses
import re
import shutil
import sys
from collections.abc import Sequence

from launch import shell, verbs, watching
from launch.pods import Pod
from launch.verbs import Job
from tools import cli

# Verb → what does it, and which flags it cannot do without.
VERBS = {
  "create": (verbs.create, ("type",)),
  "status": (verbs.status, ()),
  "install": (verbs.install, ()),
  "stage": (verbs.stage, ("stage",)),
  "run": (verbs.run, ("type", "workdir")),
  "watch": (watching.watch, ("type", "workdir")),
  "logs": (verbs.logs, ()),
  "fetch": (verbs.fetch, ("workdir",)),
  "stop": (verbs.stop, ()),
  "delete": (verbs.delete, ()),
}


def main() -> None:
  args, train = parse(sys.argv[1:])
  act, needed = VERBS[args.verb]
  for name in needed:
    if not getattr(args, name):
      raise ValueError(f"{args.verb} needs --{name}; --help has an example")
  fields = {field.name: getattr(args, field.name) for field in dataclasses.fields(Pod)}
  pod = Pod(**fields | {"also": tuple(args.also), "ssh": tuple(args.ssh)})
  if not args.dry_run and not shutil.which("gcloud"):
    raise ValueError(
      "gcloud is not installed; see https://cloud.google.com/sdk/docs/install, then run `gcloud auth login`"
    )
  runner = shell.Runner(pod, dry=args.dry_run)
  act(
    Job(pod, tuple(args.stage), args.workdir, tuple(train), args.worker, args.follow, args.to, args.checkpoints), runner
  )


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
  """Returns the flags, and those that are train.py's.

  Raises:
    ValueError: a flag that is neither's.
  """
  parser = cli.parser(__doc__)
  parser.fromfile_prefix_chars = "@"
  parser.convert_arg_line_to_args = lambda line: [line.strip()] if not re.match(r"\s*(#|$)", line) else []
  add = parser.add_argument
  add("verb", choices=VERBS, metavar="VERB", help="one of those above")
  add("--name", required=True, help="the pod's")
  add("--zone", required=True, help="e.g. europe-west4-a")
  add("--project", default="", help="default: gcloud's own setting")
  add("--type", default="", help="accelerator type of a slice: v3-32, v5litepod-64, v6e-256 …")
  add("--version", default="", help="software of the hosts (default: what Cloud TPU recommends for the type)")
  add("--slices", type=int, default=1, help="slices, joined by the data-center network")
  add("--spot", action="store_true", help="at a lower price, until somebody pays the full one")
  add("--reserved", action="store_true", help="from the project's reservation")
  add(
    "--also",
    action="append",
    default=[],
    metavar="FLAG",
    help="a further flag of gcloud's create, e.g. --also=--network=NET",
  )
  add(
    "--ssh",
    action="append",
    default=[],
    metavar="FLAG",
    help="a further flag of gcloud's ssh and scp, e.g. --ssh=--tunnel-through-iap",
  )
  add(
    "--stage",
    action="append",
    default=[],
    metavar="FIELD=gs://…",
    help="a folder for every host's disk, and the config's field that names it",
  )
  add("--workdir", default="", help="train.py's; of several hosts it lies in a bucket")
  add("--worker", type=int, default=0, help="whose log (default: 0, which reports)")
  add("--follow", action="store_true", help="logs: go on printing")
  add("--to", default="", help="fetch: a folder here (default: runs/NAME)")
  add("--checkpoints", action="store_true", help="fetch: with them")
  add("--dry-run", action="store_true", help="print the commands, run none")
  args, rest = parser.parse_known_args(argv)
  train = [argument for argument in rest if argument != "--"]
  for argument in train:
    if not argument.startswith("--config"):
      raise ValueError(f"{argument} is no flag of launch.tpu, nor a --config… of train.py; see --help")
  return args, train


if __name__ == "__main__":
  cli.run(main)
