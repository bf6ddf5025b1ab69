"""launch.tpu against a stand-in for gcloud: what it asks, what it says of failures, and how it ends."""

import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

from launch import command, hosts, pods, tpu, watching
from launch.advice import ASKING, COMMON, REACHING, advice
from launch.pods import Pod
from launch.shell import Failure, Runner
from tests.launch.gcloud import (
  BLOCKED,
  FLAGS,
  NONE,
  OFFLINE,
  OUT,
  PLACE,
  RATE,
  RUN,
  TRAIN,
  answer,
  call,
  described,
)
from tests.launch.scripts import checked

# -------------------------------------------------------------------- what is asked


@pytest.mark.parametrize("verb", tpu.VERBS)
def test_a_dry_run_prints_what_gcloud_gets_and_asks_nothing(verb, gcloud, tmp_path, monkeypatch, capsys):
  to = f"--to={tmp_path / 'fetched'}"
  call(monkeypatch, verb, *FLAGS, *RUN, to, "--dry-run")
  planned = [shlex.split(line) for line in checked(capsys.readouterr().out).splitlines()]
  assert planned
  assert gcloud.asked == []
  assert not (tmp_path / "fetched").exists()
  first = [described("ACTIVE")] if verb == "status" else [[1, "", NONE], described("ACTIVE")]
  ours = hosts.identity(command.commit()[0], TRAIN)
  gcloud(describe=first, status=[answer(*["absent"] * 4, run="-"), answer(*["finished"] * 4, run=ours)])
  call(monkeypatch, verb, *FLAGS, *RUN, to)
  assert gcloud.asked == [words for words in planned if words[0] == "gcloud"]


def test_everything_is_asked_for_the_same_pod_and_never_asks_back(gcloud, monkeypatch, capsys):
  call(monkeypatch, "watch", *FLAGS, *RUN, "--dry-run")
  lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("gcloud compute")]
  assert all("--zone=europe-west4-a --project=mine" in line for line in lines)
  assert all("--quiet" in line or "describe" in line for line in lines)
  assert all("--worker=all --node=all" in line for line in lines if " ssh " in line or " scp " in line)


@pytest.mark.parametrize(
  ("fields", "flags"),
  [
    ({"type": "v3-32"}, ["--node-id=a", "--accelerator-type=v3-32", "--runtime-version=tpu-ubuntu2204-base"]),
    ({"type": "v5litepod-64", "spot": True}, ["--runtime-version=v2-alpha-tpuv5-lite", "--spot"]),
    ({"type": "v6e-256", "slices": 2}, ["--node-count=2", "--node-prefix=a", "--runtime-version=v2-alpha-tpuv6e"]),
    ({"type": "v4-8", "version": "mine", "reserved": True}, ["--runtime-version=mine", "--reserved"]),
    ({"type": "v5p-8", "also": ("--network=net",)}, ["--runtime-version=v2-alpha-tpuv5", "--network=net"]),
  ],
)
def test_a_pod_is_a_queued_resource(fields, flags):
  words = pods.create(Pod("a", "us-east5-b", **fields))
  assert set(flags) <= set(words)
  assert ("--spot" in words) == fields.get("spot", False)
  assert ("--node-id=a" in words) == (fields.get("slices", 1) == 1)


@pytest.mark.parametrize(
  ("type", "slices", "count"),
  [
    *[("v2-8", 1, 1), ("v3-32", 1, 4), ("v3-512", 1, 64), ("v4-8", 1, 1), ("v4-32", 1, 4), ("v5p-16", 1, 2)],
    *[("v5litepod-8", 1, 1), ("v5litepod-16", 1, 4), ("v6e-8", 1, 1), ("v6e-256", 1, 64), ("v6e-16", 2, 8)],
  ],
)
def test_hosts_are_counted_as_cloud_tpu_builds_them(type, slices, count):
  assert Pod("a", "us-east5-b", type=type, slices=slices).hosts == count


def test_flags_may_stand_in_a_file(gcloud, tmp_path, monkeypatch, capsys):
  file = tmp_path / "pod.txt"
  file.write_text("\n".join(["# a comment", *FLAGS, "  # an indented one", " ", *RUN]) + "\n")
  for arguments in ([f"@{file}", "--dry-run"], [*FLAGS, *RUN, "--dry-run"]):
    call(monkeypatch, "watch", *arguments)
  lines = capsys.readouterr().out.splitlines()
  assert lines[: len(lines) // 2] == lines[len(lines) // 2 :]


def test_a_value_with_spaces_and_quotes_arrives_as_it_was(gcloud, monkeypatch, capsys):
  call(monkeypatch, "run", *FLAGS, *RUN, "--config.stages=({'steps': 5},)", "--dry-run")
  (line,) = capsys.readouterr().out.splitlines()
  (remote,) = [word.removeprefix("--command=") for word in shlex.split(line) if word.startswith("--command=")]
  assert "--config.stages=({'steps': 5},)" in shlex.split(checked(remote))
  assert " ".join(remote.split(" ")) == remote  # gcloud cuts it at spaces, and ssh joins it again


# -------------------------------------------------------------------- failures


CREATE = "ERROR: (gcloud.compute.tpus.queued-resources.create) "


@pytest.mark.parametrize(
  ("verb", "output", "said"),
  [
    ("create", CREATE + "You do not currently have an active account selected.", "run `gcloud auth login`"),
    ("create", CREATE + "Reauthentication failed. cannot prompt during non-interactive", "run `gcloud auth login`"),
    ("create", CREATE + "unrecognized arguments: --spott", "run `gcloud components update`"),
    ("create", CREATE + "Failed to find attribute [project].", "add --project=PROJECT"),
    (
      "create",
      CREATE + "PERMISSION_DENIED: Cloud TPU API has not been used in project 1 before or it is disabled.",
      "run `gcloud services enable tpu.googleapis.com --project=mine`",
    ),
    ("create", CREATE + "PERMISSION_DENIED: Permission 'tpu.nodes.create' denied", "it needs roles/tpu.admin"),
    (
      "create",
      CREATE + "RESOURCE_EXHAUSTED: Quota limit 'TPUV6EPerProject' has been exceeded. Limit: 0 in region us-east5.",
      "quota for v3-32 in europe-west4-a is used up, or 0",
    ),
    ("create", CREATE + 'There is no more capacity in the zone "europe-west4-a"', "has no room for v3-32 now"),
    ("create", CREATE + "Insufficient reserved capacity. Contact customer support", "has no room for v3-32 now"),
    ("create", CREATE + "ALREADY_EXISTS: Resource 'albert' already exists", "there is a pod albert"),
    (
      "create",
      CREATE + "Cloud TPU received a bad request. the accelerator v3-32 was not found in zone europe-west4-a",
      "see `gcloud compute tpus accelerator-types list --zone=europe-west4-a --project=mine`",
    ),
    ("create", CREATE + "INVALID_ARGUMENT: runtimeVersion x is not valid", "tpu-vm versions list"),
    ("create", CREATE + "Location europe-west9-z is not found or access is unauthorized.", "tpus locations list"),
    ("delete", NONE.replace("describe", "delete"), "there is no pod albert in europe-west4-a; `create` it"),
    ("stop", 'SSH Key is not present in the SSH agent. Please run "ssh-add x"', "ssh-add ~/.ssh/google_compute_engine"),
    (
      "stop",
      "##### Command execution on worker 3 failed with exit status 255. Continuing.",
      "worker 3 does not answer",
    ),
    ("stop", "ssh: connect to host 10.0.0.2 port 22: Connection timed out", "a worker does not answer"),
    ("stop", "##### Command execution on worker 3 failed with exit status 1. Continuing.", "`logs --worker=3` shows"),
    ("stop", 'This TPU has terminal state "PREEMPTED", so it cannot be used anymore.', "`watch` makes it again"),
    ("stop", "user@10.0.0.2: Permission denied (publickey).\n" + BLOCKED[2], "do not take your ssh key"),
    ("stop", BLOCKED[2], "a worker does not answer"),
    ("stop", 'This TPU has state "REPAIRING", so it cannot be currently connected to.', "the pod is REPAIRING"),
    (
      "install",
      "E: no lock\n##### Command execution on worker 3 failed with return code 100.",
      "failed with status 100",
    ),
    (
      "stage",
      "ERROR: (gcloud.storage.rsync) HTTPError 403: 1@a.com does not have storage.objects.list access"
      "\n##### Command execution on worker 3 failed with exit status 1. Continuing.",
      "give their service account roles/storage.objectAdmin",
    ),
    ("create", RATE, "more often than it may in a minute"),
    ("create", OUT, "out of order for a moment"),
    ("run", "launch: nothing is installed on t1v-0; install first", "on t1v-0; install first: run `install`"),
    ("stage", "launch: gs://mine/corpus is empty, or no such folder", "no such folder; look at --stage"),
    ("fetch", "ERROR: (gcloud.storage.rsync) gs://mine/albert not found: 404.", "the bucket cannot be used"),
    ("create", "something new", "ended with status 1: something new"),
  ],
)
def test_a_failure_ends_in_one_line_that_says_what_to_do(gcloud, tmp_path, monkeypatch, verb, output, said):
  asks = {"create": "create", "delete": "delete", "fetch": "storage", "install": "scp"}.get(verb, "ssh")
  gcloud(**{asks: [[1, "", output + "\n"]]})
  with pytest.raises(Failure) as raised:
    call(monkeypatch, verb, *FLAGS, *RUN, f"--to={tmp_path / 'to'}")
  assert said in str(raised.value)
  assert len(str(raised.value).splitlines()) == 1


def test_slices_that_gcloud_passes_over_are_a_failure_although_it_ends_well(gcloud, monkeypatch):
  gcloud(ssh=[[0, "", "WARNING: Could not prepare all 2 nodes, attempting to ssh into the rest.\n"]])
  with pytest.raises(Failure, match=r"a worker does not answer"):
    call(monkeypatch, "stop", *FLAGS, "--slices=2")


FACTS = {"name": "a", "zone": "z", "type": "t", "tier": "spot", "project": ""}
FAILED = "\n##### Command execution on worker 3 failed with exit status 1. Continuing.\n"


@pytest.mark.parametrize(
  "words",
  [
    "pip: 403 Forbidden, no permission; quota exceeded",
    "pip: Failed to establish a new connection: [Errno 101] Network is unreachable",
    "HTTP error 404 while getting https://pypi.org/simple/uv",
    "ERROR: (gcloud.storage.rsync) Max retries exceeded with url",
    "error: unrecognized arguments: --x",
    "Rate limit: 5 requests per minute",
    "Resource 'x' was not found",
  ],
)
@pytest.mark.parametrize("failed", ["", FAILED])
def test_words_of_a_host_are_not_taken_for_gclouds(words, failed):
  """On a single host gcloud does not even say that the command has failed there."""
  found = advice(words + failed, FACTS, reaching=True)
  assert found == advice(failed, FACTS, reaching=True)
  assert not failed or found.line.startswith("worker 3 failed with status 1; its lines above say why")


def test_gclouds_own_words_are_its_own_where_the_command_has_not_come_to_a_host():
  error = "Retrying\nERROR: (gcloud.compute.tpus.queued-resources.ssh) "
  for words, kind in ((NONE, "none"), (error + "Reauthentication failed. cannot prompt", "mend"), (OFFLINE, "later")):
    assert advice(words, FACTS, reaching=True).kind == kind


@pytest.mark.parametrize("collection", ["queuedResources", "nodes"])
@pytest.mark.parametrize("verb", ["describe", "delete", "ssh"])
@pytest.mark.parametrize("service", ["queued-resources", "tpu-vm"])
def test_no_pod_is_what_gcloud_says_of_it_and_of_its_nodes(collection, verb, service):
  words = f"ERROR: (gcloud.compute.tpus.{service}.{verb}) NOT_FOUND: Resource '{PLACE}/{collection}/a' was not found"
  assert advice(words, FACTS, reaching=verb == "ssh").kind == "none"


@pytest.mark.parametrize(
  "words",
  [
    "NOT_FOUND: Resource 'projects/mine/locations/europe-west4-a' was not found",
    "NOT_FOUND: Resource 'projects/mine/locations/europe-west4-a/acceleratorTypes/v3-32' was not found",
    "NOT_FOUND: The resource 'projects/mine/global/networks/net' was not found",
    "PERMISSION_DENIED: Permission denied on 'locations/me-central2' (or it may not exist).",
  ],
)
def test_that_something_else_is_missing_is_not_that_there_is_no_pod(words):
  """Else `watch` would ask for one."""
  assert advice("ERROR: (gcloud.compute.tpus.queued-resources.describe) " + words, FACTS, reaching=False).kind == "mend"


def test_every_row_is_of_a_kind_that_watch_knows():
  kinds = {row[0] for row in (*COMMON, *ASKING, *REACHING)}
  assert kinds <= {*watching.PATIENCE, "mend", "full"}
  assert set(watching.MADE_AGAIN) <= kinds


@pytest.mark.parametrize(
  ("arguments", "said"),
  [
    (["create", "--name=A", "--zone=europe-west4-a", "--type=v3-8"], "--name=A must be small letters"),
    (["create", "--name=a", "--zone=europe-west4", "--type=v3-8"], "--zone=europe-west4 is no zone"),
    (["create", "--name=a", "--zone=europe-west4-a"], "create needs --type"),
    (["create", "--name=a", "--zone=europe-west4-a", "--type=v5e-16"], "e.g. v5litepod-16"),
    (["create", "--name=a", "--zone=europe-west4-a", "--type=v9-16"], "--type=v9-16 is none of v2, v3"),
    (["create", *FLAGS, "--type=v3-33"], "--type=v3-33 is no size that v3 has, which are 8, 32, 64"),
    (["create", *FLAGS, "--type=v3-\u00b2"], "--type=v3-\u00b2 is none of v2, v3"),
    (["create", *FLAGS, "--type=v3-999999999"], "--type=v3-999999999 is none of v2, v3"),
    (["create", *FLAGS, "--type=v3-032"], "--type=v3-032 is none of v2, v3"),
    (["create", *FLAGS, "--type=v6e-3"], "--type=v6e-3 is no size that v6e has, which are 1, 4, 8, 16"),
    (["create", *FLAGS, "--type=v4-20"], "--type=v4-20 is no size that v4 has, which are multiples of 8 up to 8192"),
    (["create", *FLAGS, "--slices=0"], "--slices=0 must be at least 1"),
    (["create", *FLAGS, "--reserved"], "--spot and --reserved exclude each other"),
    (["create", *FLAGS, "--steps=3"], "--steps=3 is no flag of launch.tpu"),
    (["run", *FLAGS, "--config=configs/albert.py:base"], "run needs --workdir"),
    (["run", *FLAGS, "--config=configs/albert.py:base", "--workdir=runs/a"], "another folder on each of the 4 hosts"),
    (["run", *FLAGS, *RUN, "--type=v3-8", "--workdir=a"], "on a single host runs/NAME"),
    (["run", *FLAGS, *RUN, "--config.stps=3"], "'stps'"),
    (["watch", *FLAGS, *RUN, "--stage=corpus"], "--stage=corpus must be FIELD=gs://BUCKET/FOLDER"),
    (["watch", *FLAGS, *RUN, "--stage=data.corpus=gs://b/c"], "--stage=data.corpus=… is given twice"),
    *[
      (["watch", *FLAGS, *RUN, f"--workdir={workdir}"], f"--workdir={workdir} must name a folder of a bucket")
      for workdir in ("gs://", "gs://mine", "gs://mine/", "gs:///a", "gs:/a")
    ],
    (["logs", *FLAGS, "--worker=-1"], "--worker=-1 must be 0 to 3"),
    (["logs", *FLAGS, "--worker=4"], "--worker=4 must be 0 to 3"),
    (["logs", "--name=a", "--zone=europe-west4-a", "--worker=-1"], "--worker=-1 must be 0 to the last one"),
    (["logs", *FLAGS, "--slices=2", "--worker=4"], "--worker=4 must be 0 to 3"),
    (["run", *FLAGS, "--workdir=gs://a/b", "--config=tests/launch/none.py"], "none.py"),
  ],
)
def test_a_mistake_is_found_before_anything_is_asked(gcloud, tmp_path, monkeypatch, arguments, said):
  with pytest.raises(ValueError, match=re.escape(said)):
    call(monkeypatch, *arguments)
  assert gcloud.asked == []


def test_a_recipe_that_is_not_committed_never_reaches_a_host(gcloud, tmp_path, monkeypatch):
  recipe = tmp_path / "mine.py"
  recipe.write_text("from configs.quickstart import get_config\n")
  with pytest.raises(ValueError, match="is no file of the commit that the hosts get; commit it"):
    call(monkeypatch, "run", *FLAGS, "--workdir=gs://a/b", f"--config={recipe}:bert")
  assert gcloud.asked == []


def test_without_gcloud_the_line_says_how_to_get_it(monkeypatch, tmp_path):
  monkeypatch.setenv("PATH", str(tmp_path))
  with pytest.raises(ValueError, match=r"^gcloud is not installed; see https://cloud.google.com/sdk/docs/install"):
    call(monkeypatch, "status", *FLAGS)


def test_a_command_line_ends_with_status_1_and_one_line(program):
  program("echo 'ERROR: You do not currently have an active account selected.' >&2; exit 1")
  words = [sys.executable, "-m", "launch.tpu", "status", *FLAGS]
  done = subprocess.run(words, capture_output=True, text=True)
  assert done.returncode == 1
  assert done.stderr == "error: gcloud is not logged in; run `gcloud auth login`, then the same command\n"


def test_output_of_a_command_is_shown_as_it_comes(program, capsys):
  program("echo line; echo more >&2")
  pod = Pod("albert", "europe-west4-a")
  assert Runner(pod).run(pods.script(pod, "logs", ["5"], worker=1)) == "line\n"
  shown = capsys.readouterr()
  assert shown.out == "line\n"
  assert shown.err.splitlines()[1:] == ["more"]
  assert "--worker=1 --node=0" in shown.err


# gcloud, and the ssh that it starts, which keeps its pipes open.
HANGS = 'sleep 300 &\necho "$!" > "$(dirname "$0")/ssh"\necho "$$" > "$(dirname "$0")/pid"\necho begun\nwait'


def alive(file: pathlib.Path) -> bool:
  """Whether a process goes on, which a signal may reach a little later."""
  deadline = time.monotonic() + 10
  while time.monotonic() < deadline:
    try:
      if pathlib.Path(f"/proc/{file.read_text().strip()}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
        return False
    except (FileNotFoundError, ProcessLookupError):
      return False
    time.sleep(0.02)
  return True


@pytest.mark.parametrize("unattended", [True, False])
def test_ctrl_c_ends_a_command_that_hangs_at_once(program, tmp_path, unattended):
  program(HANGS)
  text = (
    "from launch.pods import Pod; from launch.shell import Runner; from tools import cli\n"
    f"runner = Runner(Pod('a', 'europe-west4-a')); runner.unattended = {unattended}\n"
    "cli.run(lambda: runner.run(['gcloud'], limit=300))"
  )
  process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
  assert process.stdout.readline() == "begun\n"
  began = time.monotonic()
  process.send_signal(signal.SIGINT)
  assert process.wait(timeout=60) == 130
  assert time.monotonic() - began < 10
  assert not alive(tmp_path / "bin" / "pid")
  ssh = tmp_path / "bin" / "ssh"
  if unattended:
    assert not alive(ssh)
  else:  # a terminal's Ctrl-C goes to it, too; the test's does not
    os.kill(int(ssh.read_text()), signal.SIGKILL)
  process.communicate()


def test_a_limit_ends_a_command_with_all_that_it_has_started(program, tmp_path):
  program(HANGS)
  runner = Runner(Pod("a", "europe-west4-a"))
  runner.unattended = True
  with pytest.raises(Failure, match=r"was not done after 0\.005 minutes") as raised:
    runner.run(["gcloud", "compute"], limit=0.3)
  assert raised.value.kind == "late"
  assert raised.value.written == "begun\n"
  assert not any(alive(tmp_path / "bin" / name) for name in ("pid", "ssh"))
