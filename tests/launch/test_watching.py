"""What `launch.tpu watch` does about whatever becomes of a pod, against a stand-in for gcloud."""

import json
import re

import pytest

from launch import command, hosts
from launch.shell import Runner
from tests.launch.gcloud import (
  ABSENT,
  ACTIVE,
  BLOCKED,
  COMMIT,
  FINISHED,
  FLAGS,
  LIMIT,
  LOOK,
  NONE,
  OFFLINE,
  OURS,
  OUT,
  RATE,
  ROOM,
  RUN,
  RUNNING,
  SILENT,
  START,
  TRAIN,
  answer,
  call,
  described,
  failed,
)


def watch(monkeypatch, *more: str) -> None:
  call(monkeypatch, "watch", *FLAGS, *RUN, *more)


def test_watch_waits_for_room_and_goes_from_nothing_to_the_end(gcloud, monkeypatch, capsys):
  waiting = [described("WAITING_FOR_RESOURCES"), described("PROVISIONING")]
  ours = hosts.identity(command.commit()[0], TRAIN)
  gcloud(
    describe=[[1, "", NONE], *waiting, ACTIVE],
    status=[
      answer(*["absent"] * 4, run="-"),
      answer(*["running"] * 4, run=ours),
      answer("running", *["finished"] * 3, run=ours),
      answer(*["finished"] * 4, run=ours),
    ],
  )
  watch(monkeypatch)
  assert gcloud.verbs == ["describe", "create", "describe", "describe", *LOOK, *START, *LOOK * 3]
  assert all(gcloud.limits.values())  # nothing may hang for ever
  assert "the run is finished; `fetch` brings its workdir" in capsys.readouterr().err


def test_watch_makes_a_pod_again_that_was_taken_away(pod, monkeypatch):
  pod(
    describe=[ACTIVE, described("SUSPENDING"), described("SUSPENDED"), [1, "", NONE], ACTIVE],
    status=[RUNNING, ABSENT, FINISHED],
  )
  watch(monkeypatch)
  assert pod.verbs == [*LOOK, "describe", "describe", "delete", "describe", "create", *LOOK, *START, *LOOK]


def test_watch_makes_a_pod_again_of_which_a_worker_stays_silent(pod, monkeypatch, capsys):
  three = answer(*["running"] * 3)
  pod(describe=[ACTIVE] * 6 + [[1, "", NONE], ACTIVE], status=[SILENT, three, *[SILENT] * 3, FINISHED])
  watch(monkeypatch)
  assert pod.verbs == [*LOOK * 5, "describe", "delete", "describe", "create", *LOOK]
  said = capsys.readouterr().err
  assert "1 of 5: worker 2 does not answer; a young pod needs a minute" in said
  assert "2 of 5: 3 of 4 hosts have answered" in said
  assert "5 of 5: worker 2 does not answer\n" in said  # the advice was given


def test_watch_never_deletes_a_pod_that_it_has_not_reached_yet(pod, monkeypatch, capsys):
  """Else a firewall would have healthy pods made again for ever."""
  pod(describe=[ACTIVE], status=[BLOCKED])
  with pytest.raises(ValueError, match=r"a worker does not answer; .* add --ssh=--tunnel-through-iap; .*ssh-add"):
    watch(monkeypatch)
  assert pod.verbs == LOOK * 5
  assert capsys.readouterr().err.count("--tunnel-through-iap") == 1


def test_the_pod_after_one_that_has_answered_must_answer_first_too(pod, monkeypatch):
  pod(describe=[ACTIVE] * 7 + [[1, "", NONE], ACTIVE], status=[RUNNING, BLOCKED])
  with pytest.raises(ValueError, match=r"a worker does not answer; .* add --ssh=--tunnel-through-iap"):
    watch(monkeypatch)
  assert pod.verbs == [*LOOK * 6, "describe", "delete", "describe", "create", *LOOK * 5]


@pytest.mark.parametrize("type", ["v3-8", "projects/mine/locations/europe-west4-a/acceleratorTypes/v3-8"])
def test_a_pod_of_another_type_is_left_alone(pod, monkeypatch, type):
  """Of fewer hosts than are waited for, it would seem silent."""
  found = {"state": {"state": "ACTIVE"}, "tpu": {"nodeSpec": [{"node": {"acceleratorType": type}}]}}
  pod(describe=[[0, json.dumps(found), ""]])
  with pytest.raises(ValueError, match="albert is a v3-8, not --type=v3-32; name its type, or another --name"):
    watch(monkeypatch)
  assert pod.verbs == ["describe"]


def test_failures_are_counted_anew_after_a_look_that_has_succeeded(pod, monkeypatch):
  pod(describe=[ACTIVE], status=[*[RUNNING, SILENT, SILENT, [1, "", "new words"]] * 10, FINISHED])
  watch(monkeypatch)
  assert pod.verbs == LOOK * 41


def test_a_pod_that_is_gone_when_it_is_deleted_has_been_deleted(pod, monkeypatch, capsys):
  pod(describe=[described("SUSPENDED"), [1, "", NONE], ACTIVE], delete=[[1, "", NONE]], status=[FINISHED])
  watch(monkeypatch)
  assert "1 of 5" not in capsys.readouterr().err


def test_hosts_that_hang_do_not_answer(pod, monkeypatch):
  pod(describe=[ACTIVE] * 6 + [[1, "", NONE], ACTIVE], status=[RUNNING, *[[None, "", ""]] * 5, FINISHED])
  pod.answers["describe"].insert(0, ACTIVE)
  watch(monkeypatch)
  assert pod.verbs == [*LOOK * 6, "describe", "delete", "describe", "create", *LOOK]


@pytest.mark.parametrize("text", [OUT, OFFLINE + "establish a new connection: [Errno -3]", RATE, "new words"])
@pytest.mark.parametrize("verb", ["describe", "delete", "create", "status", "scp", "install", "stage", "run"])
def test_one_failure_of_any_command_is_borne(pod, monkeypatch, capsys, verb, text):
  """The next look tries again, and the run comes to its end."""
  state = {"pod": "SUSPENDED", "hosts": ABSENT, "failing": True}

  def execute(runner, command, quiet, limit):
    if command[0] != "gcloud":
      return 0, "", ""
    pod.asked.append(command)
    now = pod.verb(command)
    if now == verb and state["failing"]:
      state["failing"] = False
      return 1, "", text
    if now == "describe":
      return described(state["pod"]) if state["pod"] else [1, "", NONE]
    state.update({"delete": {"pod": ""}, "create": {"pod": "ACTIVE"}, "run": {"hosts": FINISHED}}.get(now, {}))
    return state["hosts"] if now == "status" else (0, "", "")

  monkeypatch.setattr(Runner, "execute", execute)
  watch(monkeypatch)
  assert not state["failing"]
  way = ["describe", "delete", "describe", "create", *LOOK, *START, *LOOK]
  at = way.index(verb)
  again = LOOK + START[: START.index(verb)] if verb in START else way[(at - 1 if at % 2 else at) : at]
  assert pod.verbs == [*way[: at + 1], *again, *way[at:]]
  said = capsys.readouterr().err
  assert re.search(r"launch: 1 of \d+: ", said)
  assert "used up" not in said


@pytest.mark.parametrize(
  "text", [OUT, OFFLINE + "establish a new connection: [Errno -3]", RATE, "new words", "{not json"]
)
def test_what_does_not_pass_ends_the_watch_and_deletes_nothing(pod, monkeypatch, text):
  pod(describe=[[0, text, ""] if text == "{not json" else [1, "", text]])
  with pytest.raises(ValueError, match=r"nothing has worked in (5|30) looks: "):
    watch(monkeypatch)
  assert set(pod.verbs) == {"describe"}


@pytest.mark.parametrize(
  ("verb", "text", "said"),
  [
    ("describe", "ERROR: (gcloud.x) You do not currently have an active account selected.", "gcloud auth login"),
    (
      "describe",
      "ERROR: (gcloud.x) PERMISSION_DENIED: Permission 'tpu.nodes.get' denied on resource",
      "roles/tpu.admin",
    ),
    ("create", "ERROR: (gcloud.x) INVALID_ARGUMENT: invalid accelerator type", "accelerator-types list"),
    ("create", "ERROR: (gcloud.x) Location europe-west4-a is not found or access is unauthorized.", "locations list"),
    ("create", "ERROR: (gcloud.x) RESOURCE_EXHAUSTED: " + LIMIT, "quota for v3-32 in europe-west4-a is used up, or 0"),
    ("stage", "launch: gs://mine/corpus is empty, or no such folder\nworker 2 failed with exit status 1", "--stage"),
  ],
)
def test_what_waiting_cannot_mend_ends_the_watch_at_once(pod, monkeypatch, verb, text, said):
  pod(describe=[ACTIVE if verb == "stage" else [1, "", NONE]], status=[ABSENT])
  pod.answers[verb] = [[1, "", text]]
  with pytest.raises(ValueError, match=re.escape(said)):
    watch(monkeypatch)
  assert pod.verbs.count(verb) == 1


def test_watch_asks_again_where_there_is_no_room_and_ends_where_there_is_no_quota(pod, monkeypatch, capsys):
  full = [1, "", "ERROR: (gcloud.compute.tpus.queued-resources.create) " + ROOM]
  pod(describe=[*[failed(ROOM), [1, "", NONE]] * 20, *[[1, "", NONE]] * 20, failed(LIMIT)], create=[full])
  with pytest.raises(ValueError, match=r"^the project's spot quota for v3-32 in europe-west4-a is used up, or 0; ask"):
    watch(monkeypatch)
  assert pod.verbs == [
    *["describe", "delete", "describe", "create"] * 20,
    *["describe", "create"] * 20,
    "describe",
    "delete",
  ]
  assert " of 5: " not in capsys.readouterr().err


@pytest.mark.parametrize("gone", [described("FAILED"), failed("an internal error"), described("SUSPENDED")])
def test_a_pod_that_comes_to_nothing_is_not_made_again_for_ever(pod, monkeypatch, gone):
  pod(describe=[gone, [1, "", NONE]] * 50)
  with pytest.raises(ValueError, match=r"^albert was made again 5 times in a row, .* albert is (FAILED|SUSPENDED)"):
    watch(monkeypatch)
  assert pod.verbs.count("delete") == 5


def test_a_pod_that_has_come_further_may_be_made_again_as_often_as_it_takes(pod, monkeypatch):
  pod(
    describe=[described("SUSPENDED"), [1, "", NONE], ACTIVE] * 12 + [ACTIVE],
    status=[*(answer(*["running"] * 4, step=i) for i in range(12)), FINISHED],
  )
  watch(monkeypatch)
  assert pod.verbs.count("delete") == 12


@pytest.mark.parametrize(
  ("states", "said"),
  [
    (
      ("running", "failed: error: x", "running", "running"),
      r"^the run has failed on t1v-1: error: x \(.* `run` starts",
    ),
    (("stopped",) * 4, r"^the run was stopped; `run` lets it go on"),
    (("stopped", "finished", "stopped", "stopped"), r"^the run was stopped; `run` lets it go on"),
  ],
)
def test_watch_ends_where_only_a_person_can_go_on(pod, monkeypatch, states, said):
  pod(describe=[ACTIVE], status=[answer(*states)])
  with pytest.raises(ValueError, match=said):
    watch(monkeypatch)
  assert pod.verbs == LOOK


OTHER_COMMIT = "f" + OURS[1:]
OTHER_ARGUMENTS = OURS[:-1] + ("0" if OURS[-1] != "0" else "1")


@pytest.mark.parametrize("run", [OTHER_COMMIT, OTHER_ARGUMENTS, "-"])
@pytest.mark.parametrize("state", ["finished", "stopped", "failed", "absent"])
def test_a_run_at_rest_that_is_another_makes_place(pod, monkeypatch, run, state):
  """So does one that has failed, once it was mended by a commit or by other arguments."""
  pod(describe=[ACTIVE], status=[answer(*[state] * 4, run=run), RUNNING, FINISHED])
  watch(monkeypatch)
  assert pod.verbs == [*LOOK, *START, *LOOK, *LOOK]


@pytest.mark.parametrize(
  ("run", "said"),
  [
    (OTHER_COMMIT, f"commit {OTHER_COMMIT[:12]} instead of {OURS[:12]}; "),
    (OTHER_ARGUMENTS, "other arguments; "),
    (OTHER_COMMIT[:13] + OTHER_ARGUMENTS[13:], f"instead of {OURS[:12]} and other arguments; "),
    ("-", "it has left no name; "),
  ],
)
@pytest.mark.parametrize("state", ["running", "restarting"])
def test_a_run_at_work_that_is_another_is_never_touched(pod, monkeypatch, run, said, state):
  lines = [answer("finished")[1], answer("x", state, run=run)[1].splitlines(keepends=True)[1]]
  pod(describe=[ACTIVE], status=[[0, "".join(lines) * 2, ""]])
  with pytest.raises(ValueError, match=f"^another run is at work on t1v-1: .*{re.escape(said)}"):
    watch(monkeypatch)
  assert pod.verbs == LOOK


def test_a_watch_keeps_to_the_commit_that_it_began_with(pod, monkeypatch):
  commits = iter([COMMIT, *["f" * 40] * 9])
  monkeypatch.setattr(command, "commit", lambda: (next(commits), []))
  pod(describe=[ACTIVE], status=[ABSENT, RUNNING, FINISHED])
  watch(monkeypatch)
  (installed,) = [words for words in pod.asked if pod.verb(words) == "install"]
  assert COMMIT in " ".join(installed)


@pytest.mark.parametrize(
  "looks",
  [
    [("finished", "restarting", "finished", "finished")],
    [("stopped", "running", "stopped", "stopped")],
    [
      ("finished", "restarting", "finished", "finished"),
      ("finished", "running: launch: beginning", "finished", "finished"),
    ],
    [("restarting",) * 4],
  ],
)
def test_hosts_that_never_come_to_one_state_end_the_watch(pod, monkeypatch, looks):
  pod(describe=[ACTIVE], status=[answer(*states) for states in looks * 100])
  with pytest.raises(ValueError, match=r"^the hosts have not come to one state in 30 looks: .*; look at `logs"):
    watch(monkeypatch)
  assert pod.verbs == LOOK * len(pod.verbs[::2])


def test_hosts_that_do_not_keep_what_they_get_are_not_set_up_for_ever(pod, monkeypatch):
  pod(describe=[ACTIVE], status=[answer(*["absent"] * 4, run="-")])
  with pytest.raises(ValueError, match=r"^the hosts have not come to one state in 30 looks"):
    watch(monkeypatch)


def test_hosts_that_work_may_take_their_time(pod, monkeypatch):
  mixed = [answer("running", "restarting", "running", "running", step=i) for i in range(40)]
  pod(describe=[ACTIVE], status=[*[RUNNING] * 40, *mixed, FINISHED])
  watch(monkeypatch)
  assert pod.verbs == LOOK * 81
