"""launch.tpu against a stand-in for gcloud, which writes down what it is asked and answers from a script."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from launch import pods, tpu, watching
from launch.advice import advice
from launch.pods import Pod
from launch.shell import Failure, Runner
from tests.launch.scripts import checked

FLAGS = ["--name=albert", "--type=v3-32", "--zone=europe-west4-a", "--project=mine", "--spot"]
RUN = ["--workdir=gs://mine/albert", "--stage=data.corpus=gs://mine/corpus", "--config=configs/albert.py:base"]
NONE = "ERROR: (gcloud.compute.tpus.queued-resources.describe) NOT_FOUND: Resource 'albert' was not found"

# Answers by the verb that is asked, in turn, the last one again and again: (status, stdout, stderr).
GCLOUD = """#!{python} -IS
import json, pathlib, sys
folder = pathlib.Path({folder!r})
with open(folder / "asked", "a") as file:
  file.write(json.dumps(["gcloud", *sys.argv[1:]]) + "\\n")
answers = json.loads((folder / "answers").read_text())
verb = sys.argv[4] if sys.argv[1] == "compute" else "storage"
if verb == "ssh" and "status.sh" in " ".join(sys.argv):
  verb = "status"
turn = answers.get(verb, [[0, "", ""]])
status, out, err = turn.pop(0) if len(turn) > 1 else turn[0]
(folder / "answers").write_text(json.dumps(answers))
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(status)
"""


def described(state: str, **more) -> list:
  return [0, json.dumps({"name": "albert", "state": {"state": state} | more}), ""]


def hosts(*states: str) -> list:
  return [0, "".join(f"launch: t1v-{i} {state} -: step {i}\n" for i, state in enumerate(states)), ""]


@pytest.fixture
def gcloud(tmp_path, monkeypatch):
  """Puts a stand-in on PATH; returns the function that sets its answers."""
  stub = tmp_path / "bin" / "gcloud"
  stub.parent.mkdir()
  stub.write_text(GCLOUD.format(python=sys.executable, folder=str(tmp_path)))
  stub.chmod(0o755)
  (tmp_path / "answers").write_text("{}")
  monkeypatch.setenv("PATH", f"{stub.parent}:{os.environ['PATH']}")
  monkeypatch.setattr(watching, "PAUSE", 0.0)
  return lambda **answers: (tmp_path / "answers").write_text(json.dumps(answers))


def asked(folder: pathlib.Path) -> list[list[str]]:
  file = folder / "asked"
  return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def call(monkeypatch, *arguments: str) -> None:
  monkeypatch.setattr(sys, "argv", ["launch.tpu", *arguments])
  tpu.main()


# -------------------------------------------------------------------- what is asked


@pytest.mark.parametrize("verb", tpu.VERBS)
def test_a_dry_run_prints_what_gcloud_gets_and_asks_nothing(verb, gcloud, tmp_path, monkeypatch, capsys):
  to = f"--to={tmp_path / 'fetched'}"
  call(monkeypatch, verb, *FLAGS, *RUN, to, "--dry-run")
  planned = [shlex.split(line) for line in checked(capsys.readouterr().out).splitlines()]
  assert planned
  assert asked(tmp_path) == []
  assert not (tmp_path / "fetched").exists()
  first = [described("ACTIVE")] if verb == "status" else [[1, "", NONE], described("ACTIVE")]
  gcloud(describe=first, status=[hosts(*["absent"] * 4), hosts(*["finished"] * 4)])
  call(monkeypatch, verb, *FLAGS, *RUN, to)
  assert asked(tmp_path) == [command for command in planned if command[0] == "gcloud"]


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
  command = pods.create(Pod("a", "us-east5-b", **fields))
  assert set(flags) <= set(command)
  assert ("--spot" in command) == fields.get("spot", False)
  assert ("--node-id=a" in command) == (fields.get("slices", 1) == 1)


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


# -------------------------------------------------------------------- watching


def verbs(folder: pathlib.Path) -> list[str]:
  """What gcloud was asked, in a word each."""
  script = lambda command: next((s for s in ("status", "install", "stage", "run") if f"/{s}.sh" in command[-2]), "?")
  return [script(command) if command[4] == "ssh" else command[4] for command in asked(folder)]


def test_watch_waits_for_room_and_goes_from_nothing_to_the_end(gcloud, tmp_path, monkeypatch, capsys):
  waiting = [described("WAITING_FOR_RESOURCES"), described("PROVISIONING")]
  gcloud(
    describe=[[1, "", NONE], *waiting, described("ACTIVE")],
    status=[
      hosts(*["absent"] * 4),
      hosts(*["running"] * 4),
      hosts("running", *["finished"] * 3),
      hosts(*["finished"] * 4),
    ],
  )
  call(monkeypatch, "watch", *FLAGS, *RUN)
  assert verbs(tmp_path) == [
    *["describe", "create", "describe", "describe"],
    *["describe", "status", "scp", "install", "stage", "run"],
    *["describe", "status"] * 3,
  ]
  assert "the run is finished; `fetch` brings its workdir" in capsys.readouterr().err


def test_watch_makes_a_pod_again_that_was_taken_away(gcloud, tmp_path, monkeypatch):
  gcloud(
    describe=[described("ACTIVE"), described("SUSPENDING"), described("SUSPENDED"), [1, "", NONE], described("ACTIVE")],
    status=[hosts(*["running"] * 4), hosts(*["absent"] * 4), hosts(*["finished"] * 4)],
  )
  call(monkeypatch, "watch", *FLAGS, *RUN)
  assert verbs(tmp_path) == [
    *["describe", "status", "describe", "describe", "delete", "describe", "create"],
    *["describe", "status", "scp", "install", "stage", "run", "describe", "status"],
  ]


def test_watch_makes_a_pod_again_of_which_a_worker_stays_silent(gcloud, tmp_path, monkeypatch, capsys):
  silent = [255, "", "##### Command execution on worker 2 failed with exit status 255. Continuing.\n"]
  gcloud(
    describe=[described("ACTIVE")] * 6 + [[1, "", NONE], described("ACTIVE")],
    status=[silent, hosts(*["running"] * 3), *[silent] * 3, hosts(*["finished"] * 4)],
  )
  call(monkeypatch, "watch", *FLAGS, *RUN)
  assert verbs(tmp_path)[:11] == ["describe", "status"] * 5 + ["delete"]
  said = capsys.readouterr().err
  assert "1 of 5: worker 2 does not answer\n" in said
  assert "2 of 5: 3 of 4 hosts have answered" in said


def test_watch_asks_again_where_there_is_no_room_and_ends_where_there_is_no_quota(gcloud, tmp_path, monkeypatch):
  failed = lambda message: described("FAILED", failedData={"error": {"code": 8, "message": message}})
  gcloud(
    describe=[
      failed('There is no more capacity in the zone "europe-west4-a"; you can try in another zone'),
      [1, "", NONE],
      failed("Quota limit 'TPUV3PreemptiblePodPerProject' has been exceeded. Limit: 0 in region europe-west4."),
    ]
  )
  with pytest.raises(ValueError, match=r"^the project's spot quota for v3-32 in europe-west4-a is used up, or 0; ask"):
    call(monkeypatch, "watch", *FLAGS, *RUN)
  assert verbs(tmp_path) == ["describe", "delete", "describe", "create", "describe"]


@pytest.mark.parametrize(
  ("states", "said"),
  [
    (("running", "failed", "running", "running"), r"^the run has failed on t1v-1: step 1 \(the pod is there still"),
    (("stopped",) * 4, r"^the run was stopped; `run` lets it go on"),
  ],
)
def test_watch_ends_where_only_a_person_can_go_on(gcloud, monkeypatch, states, said):
  gcloud(describe=[described("ACTIVE")], status=[hosts(*states)])
  with pytest.raises(ValueError, match=said):
    call(monkeypatch, "watch", *FLAGS, *RUN)


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
    ("stop", "user@10.0.0.2: Permission denied (publickey).", "do not take your ssh key"),
    ("run", "launch: nothing is installed on t1v-0; install first", "on t1v-0; install first: run `install`"),
    ("stage", "launch: gs://mine/corpus is empty, or no such folder", "no such folder; look at --stage"),
    ("fetch", "ERROR: (gcloud.storage.rsync) gs://mine/albert not found: 404.", "the bucket cannot be used"),
    ("create", "something new", "ended with status 1: something new"),
  ],
)
def test_a_failure_ends_in_one_line_that_says_what_to_do(gcloud, tmp_path, monkeypatch, verb, output, said):
  asks = {"create": "create", "delete": "delete", "fetch": "storage"}.get(verb, "ssh")
  gcloud(**{asks: [[1, "", output + "\n"]]})
  with pytest.raises(Failure) as raised:
    call(monkeypatch, verb, *FLAGS, *RUN, f"--to={tmp_path / 'to'}")
  assert said in str(raised.value)
  assert len(str(raised.value).splitlines()) == 1


def test_slices_that_gcloud_passes_over_are_a_failure_although_it_ends_well(gcloud, monkeypatch):
  gcloud(ssh=[[0, "", "WARNING: Could not prepare all 2 nodes, attempting to ssh into the rest.\n"]])
  with pytest.raises(Failure, match="a worker does not answer"):
    call(monkeypatch, "stop", *FLAGS, "--slices=2")


def test_words_of_a_run_on_a_host_are_not_taken_for_googles():
  facts = {"name": "a", "zone": "z", "type": "t", "tier": "spot", "project": ""}
  assert advice("pip: 403 Forbidden, no permission; quota exceeded", facts, reaching=True) is None


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
  assert asked(tmp_path) == []


def test_a_recipe_that_is_not_committed_never_reaches_a_host(gcloud, tmp_path, monkeypatch):
  recipe = tmp_path / "mine.py"
  recipe.write_text("from configs.quickstart import get_config\n")
  with pytest.raises(ValueError, match="is no file of the commit that the hosts get; commit it"):
    call(monkeypatch, "run", *FLAGS, "--workdir=gs://a/b", f"--config={recipe}:bert")
  assert asked(tmp_path) == []


def test_without_gcloud_the_line_says_how_to_get_it(monkeypatch, tmp_path):
  monkeypatch.setenv("PATH", str(tmp_path))
  with pytest.raises(ValueError, match=r"^gcloud is not installed; see https://cloud.google.com/sdk/docs/install"):
    call(monkeypatch, "status", *FLAGS)


def test_a_command_line_ends_with_status_1_and_one_line(gcloud, tmp_path):
  gcloud(describe=[[1, "", "ERROR: You do not currently have an active account selected.\n"]])
  command = [sys.executable, "-m", "launch.tpu", "status", *FLAGS]
  done = subprocess.run(command, capture_output=True, text=True)
  assert done.returncode == 1
  assert done.stderr == "error: gcloud is not logged in; run `gcloud auth login`, then the same command\n"


def test_output_of_a_command_is_shown_as_it_comes(gcloud, capsys):
  gcloud(ssh=[[0, "line\n", "more\n"]])
  pod = Pod("albert", "europe-west4-a")
  assert Runner(pod).run(pods.script(pod, "logs", ["5"], worker=1)) == "line\n"
  shown = capsys.readouterr()
  assert shown.out == "line\n"
  assert shown.err.splitlines()[1:] == ["more"]
  assert "--worker=1 --node=0" in shown.err
