"""What each verb of launch.tpu but `watch` does: a command or a few in their order."""

import collections
import dataclasses
import json
import os
import re
import sys
import tempfile

from launch import command, pods
from launch.pods import Pod
from launch.shell import Failure, Runner

# Seconds that a command may take where nobody looks.
SHORT, LONG, COPYING = 600.0, 3600.0, 6 * 3600.0


@dataclasses.dataclass(frozen=True)
class Job:
  """A run on a pod, and what a verb may be told besides; see launch.tpu's flags."""

  pod: Pod
  stage: tuple[str, ...] = ()
  workdir: str = ""
  train: tuple[str, ...] = ()
  worker: int = 0
  follow: bool = False
  to: str = ""
  checkpoints: bool = False

  def __post_init__(self):
    for pair in self.stage:
      if not re.fullmatch(r"[a-z_]+(\.[a-z_]+)*=gs://[^/\s]+/\S+", pair):
        raise ValueError(f"--stage={pair} must be FIELD=gs://BUCKET/FOLDER, e.g. data.corpus=gs://mine/corpus")
    twice = [name for name, count in collections.Counter(self.staged).items() if count > 1]
    if twice:
      raise ValueError(f"--stage={twice[0]}=… is given twice, and the host has one folder for it")
    if self.workdir.startswith("gs:") and not re.fullmatch(r"gs://[^/\s]+/[^/\s]\S*", self.workdir):
      raise ValueError(f"--workdir={self.workdir} must name a folder of a bucket, gs://BUCKET/RUN")
    last = self.pod.hosts // self.pod.slices - 1 if self.pod.type else max(0, self.worker)
    if not 0 <= self.worker <= last:
      raise ValueError(f"--worker={self.worker} must be 0 to {last if self.pod.type else 'the last one'}")

  @property
  def staged(self) -> list[str]:
    """The config's fields that name folders on the hosts' disks."""
    return [pair.partition("=")[0] for pair in self.stage]

  @property
  def arguments(self) -> list[str]:
    """train.py's, as it gets them on each host."""
    staged = [f"--config.{field}=../staged/{field}" for field in self.staged]  # from the checkout's folder
    return [*self.train, f"--workdir={self.workdir}", *staged]


def say(line: str) -> None:
  """Prints a line to stderr, marked as this launcher's."""
  print(f"launch: {line}", file=sys.stderr, flush=True)


# ---------------------------------------------------------------------- the pod


def create(job: Job, runner: Runner) -> None:
  """Asks Cloud TPU for the pod; it may come later."""
  pod = job.pod
  say(f"asking for {pod.slices} × {pod.type} in {pod.zone}: {pod.hosts} host{'s' * (pod.hosts > 1)}")
  runner.run(pods.create(pod), limit=SHORT)


def delete(job: Job, runner: Runner) -> None:
  """Gives the pod back."""
  runner.run(pods.delete(job.pod), limit=LONG)


def state(job: Job, runner: Runner, planned: str = "ACTIVE") -> tuple[str, str]:
  """Returns the request's state, "" where there is none, and what Cloud TPU says of a failure.

  Raises:
    ValueError: the pod is of another type than --type says; its hosts would be miscounted.
    Failure: it cannot be asked.
  """
  planned = json.dumps({"state": {"state": planned}})
  try:
    text = runner.run(pods.describe(job.pod), planned=planned, quiet=True, limit=SHORT)
  except Failure as failure:
    if failure.kind == "none":
      return "", ""
    raise
  try:
    described = json.loads(text)
    found = described["state"]
    error = (found.get("failedData") or {}).get("error") or {}
    answer = found["state"], error.get("message", "")
    nodes = [spec.get("node") or {} for spec in (described.get("tpu") or {}).get("nodeSpec") or ()]
    types = {node["acceleratorType"].rpartition("/")[2] for node in nodes if node.get("acceleratorType")}
  except (ValueError, KeyError, TypeError, AttributeError):
    raise Failure(f"gcloud describes the pod in words that are not understood: {text.strip()[:200]!r}") from None
  if job.pod.type and types and job.pod.type not in types:
    raise ValueError(f"{job.pod.name} is a {min(types)}, not --type={job.pod.type}; name its type, or another --name")
  return answer


def status(job: Job, runner: Runner) -> None:
  """Says the pod's state and, of one that is there, what its hosts do."""
  found, error = state(job, runner)
  say(f"{job.pod.name} is {found or 'not there'}{error and ': ' + error}")
  if found == "ACTIVE":
    runner.run(pods.status(job.pod))


# ---------------------------------------------------------------------- the hosts


def install(job: Job, runner: Runner, commit: str = "") -> None:
  """Copies a commit of the checkout, by default the present one, to every host and sets it up there."""
  present, changed = command.commit()
  commit = commit or present
  if changed:
    say(f"note: files here differ from commit {commit[:12]}, which is what the hosts get ({changed[0]} …)")
  file = os.path.join(tempfile.gettempdir(), f"bidir-{commit[:12]}.tar.gz")
  runner.run(pods.archive(command.ROOT, commit, file))
  runner.run(pods.copy_up(job.pod, file), limit=LONG)
  runner.run(pods.install(job.pod, commit), limit=LONG)


def stage(job: Job, runner: Runner) -> None:
  """Copies the staged folders from their buckets to every host's disk."""
  runner.run(pods.script(job.pod, "stage", job.stage), limit=COPYING)


def run(job: Job, runner: Runner) -> None:
  """Checks the arguments, then starts train.py on every host."""
  check(job)
  start(job, runner)


def start(job: Job, runner: Runner) -> None:
  """Starts train.py on every host, unchecked."""
  runner.run(pods.script(job.pod, "run", job.arguments), limit=SHORT)


def check(job: Job) -> None:
  """Raises ValueError if train.py would refuse its arguments, or the run could not work on these hosts."""
  if not job.workdir.startswith("gs://"):
    if job.pod.hosts > 1:
      raise ValueError(
        f"--workdir={job.workdir} would be another folder on each of the {job.pod.hosts} hosts; use one in a bucket, "
        "gs://BUCKET/RUN"
      )
    if not job.workdir.startswith(("runs/", "/")):
      raise ValueError(
        f"--workdir={job.workdir} must be gs://BUCKET/RUN, or on a single host runs/NAME, which it keeps"
      )
    say("note: the workdir is on the host's own disk and goes with it, when it is deleted or taken away")
  for line in command.check(job.arguments):
    say(line)
  command.check_committed(job.train)


def logs(job: Job, runner: Runner) -> None:
  """Prints the last 100 lines of a host's log, and with --follow what comes after."""
  runner.run(pods.script(job.pod, "logs", ["100", *["--follow"] * job.follow], job.worker))


def stop(job: Job, runner: Runner) -> None:
  """Has train.py save and end on every host."""
  runner.run(pods.script(job.pod, "stop"))


def fetch(job: Job, runner: Runner) -> None:
  """Copies the workdir and the log here: to --to, by default runs/NAME."""
  to = job.to or os.path.join("runs", job.pod.name)
  runner.run(["mkdir", "-p", to])
  if job.workdir.startswith("gs://"):
    runner.run(pods.download(job.workdir, to, job.checkpoints))
  else:
    runner.run(pods.copy_down(job.pod, os.path.join("bidir", job.workdir), to))
  runner.run(pods.copy_down(job.pod, "bidir/train.log", to))
