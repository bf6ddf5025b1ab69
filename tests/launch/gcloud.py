"""A stand-in for gcloud, which writes down what it is asked and answers from a script."""

import json
import sys

from launch import hosts, tpu
from launch.shell import Runner

FLAGS = ["--name=albert", "--type=v3-32", "--zone=europe-west4-a", "--project=mine", "--spot"]
RUN = ["--workdir=gs://mine/albert", "--stage=data.corpus=gs://mine/corpus", "--config=configs/albert.py:base"]
PLACE = "projects/mine/locations/europe-west4-a"
NONE = (
  f"ERROR: (gcloud.compute.tpus.queued-resources.describe) NOT_FOUND: Resource '{PLACE}/queuedResources/albert' was "
  "not found. This command is authenticated as me@mine.org which is the active account specified by the [core/account] "
  "property\n- '@type': type.googleapis.com/google.rpc.ResourceInfo\n"
  f"  resourceName: {PLACE}/queuedResources/albert\n"
)
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TRAIN = ["--config=configs/albert.py:base", "--workdir=gs://mine/albert", "--config.data.corpus=../staged/data.corpus"]
OURS = hosts.identity(COMMIT, TRAIN)
START = ["scp", "install", "stage", "run"]
LOOK = ["describe", "status"]
SILENT = [255, "", "##### Command execution on worker 2 failed with exit status 255. Continuing.\n"]
BLOCKED = [
  1,
  "",
  "ssh: connect to host 10.1.1.1 port 22: Connection timed out\nFailed to execute command on multiple workers. This "
  "may have happened if you have not added "
  'your SSH key to your ssh-agent using "ssh-add ~/.ssh/google_compute_engine".\n'
  "Retrying: SSH command error: [/usr/bin/ssh] exited with return code [255].\n"
  "ERROR: (gcloud.compute.tpus.queued-resources.ssh) [/usr/bin/ssh] exited with return code [255].\n",
]
OUT = "ERROR: (gcloud.compute.tpus.queued-resources.describe) UNAVAILABLE: The service is currently unavailable.\n"
OFFLINE = (
  "ERROR: gcloud crashed (ConnectionError): HTTPSConnectionPool(host='tpu.googleapis.com', port=443): Failed to "
)
RATE = (
  "ERROR: (gcloud.compute.tpus.queued-resources.describe) RESOURCE_EXHAUSTED: Quota exceeded for quota metric 'Read "
  "requests' and limit 'Read requests per minute' of service 'tpu.googleapis.com' for consumer 'project_number:1'.\n"
)
LIMIT = "Quota limit 'TPUV3PreemptiblePodPerProject' has been exceeded. Limit: 0 in region europe-west4."
ROOM = 'There is no more capacity in the zone "europe-west4-a"; you can try in another zone'


def described(state: str, **more) -> list:
  return [0, json.dumps({"name": "albert", "state": {"state": state} | more}), ""]


def failed(message: str) -> list:
  return described("FAILED", failedData={"error": {"code": 8, "message": message}})


def answer(*states: str, run: str = OURS, step: int = 1) -> list:
  """What hosts answer: a state each, or a state and what was said."""
  lines = [state.partition(": ") for state in states]
  return [
    0,
    "".join(f"launch: t1v-{i} {s} {run}: {said or f'step {step}'}\n" for i, (s, _, said) in enumerate(lines)),
    "",
  ]


ACTIVE = described("ACTIVE")
ABSENT, RUNNING, FINISHED = (answer(*[state] * 4) for state in ("absent", "running", "finished"))


class Gcloud:
  """Stands in for every process: writes down what is asked, and answers by the verb, in turn, the last answer again and
  again: (status, stdout, stderr)."""

  def __init__(self):
    self.asked, self.limits, self.answers = [], {}, {}

  def __call__(self, **answers):
    self.answers = answers

  def execute(self, runner: Runner, command: list[str], quiet: bool, limit: float | None):
    if command[0] != "gcloud":
      return 0, "", ""
    assert len(self.asked) < 500, "it does not end"
    self.asked.append(command)
    verb = self.verb(command)
    self.limits[verb] = limit
    turn = self.answers.get(verb, self.answers.get("ssh" if command[4] == "ssh" else verb, [[0, "", ""]]))
    return tuple(turn.pop(0) if len(turn) > 1 else turn[0])

  @staticmethod
  def verb(command: list[str]) -> str:
    if command[1] == "storage":
      return "storage"
    scripts = (name for name in ("status", "install", "stage", "run") if f"/{name}.sh" in command[-2])
    return next(scripts, "ssh") if command[4] == "ssh" else command[4]

  @property
  def verbs(self) -> list[str]:
    """What was asked, in a word each."""
    return [self.verb(command) for command in self.asked]


def call(monkeypatch, *arguments: str) -> None:
  monkeypatch.setattr(sys, "argv", ["launch.tpu", *arguments])
  tpu.main()
