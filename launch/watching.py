"""What `watch` does: looks again and again, does what is missing, and bears what passes by itself."""

import collections
import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator

from launch import command, hosts, pods, verbs
from launch.advice import SILENT
from launch.hosts import Host
from launch.shell import Failure, Runner
from launch.verbs import Job, say

PAUSE = 60.0  # seconds between two looks
# What a failure is (launch.advice) → how many `watch` bears until a look succeeds. Then the pod is made again, if that
# helps; else `watch` ends. It ends at once for a kind that is not here, and waits for room as long as it takes.
PATIENCE = {"silent": 5, "gone": 5, "away": 30, "later": 30, "late": 5, "unclear": 5, "none": 5}
MADE_AGAIN = ("silent", "gone", "away")
REMAKES = 5  # times that a pod is made again before a step of the run was seen on it
UNSETTLED = 30  # looks in a row at hosts of which some do not work, without a further step
WAITING = ("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "SUSPENDING", "DELETING")
GONE = ("SUSPENDED", "FAILED")


@dataclasses.dataclass
class Watch:
  """What a watch goes by.

  Attributes:
    commit: which the hosts get.
    run: which they are to run.
    told: what was said of the pod last.
    failed: failures of each kind since a look has succeeded.
    complaint: what was said of the last one.
    answered: whether a host of the pod has.
    lost: why the pod is to be made again.
    remakes: times that it was, since a step was seen.
    unsettled: looks in a row at hosts of which some do not work.
    step: what the run said of its steps last.
  """

  commit: str
  run: str
  told: str | None = None
  failed: collections.Counter = dataclasses.field(default_factory=collections.Counter)
  complaint: str = ""
  answered: bool = False
  lost: str = ""
  remakes: int = 0
  unsettled: int = 0
  step: str = ""


def watch(job: Job, runner: Runner, pause: Callable[[float], None] = time.sleep) -> None:
  """Brings the run to its end, whatever is there when it begins.

  Raises:
    ValueError: the run has failed, another one is there, or the pod cannot be had; the message says what to do.
  """
  verbs.check(job)
  runner.unattended = True
  commit = command.commit()[0]
  seen = Watch(commit, hosts.identity(commit, job.arguments))
  # A dry run goes the whole way: no pod, then one without a run, then one whose run is finished.
  pod_plan = iter(("", "ACTIVE", "ACTIVE"))
  host_plan = iter((hosts.line("absent", "-"), hosts.line("finished", seen.run)))
  while True:
    try:
      if look(job, runner, seen, next(pod_plan, ""), host_plan):
        return
      seen.failed.clear()
      seen.complaint = ""
    except Failure as failure:
      bear(seen, failure)
    if not runner.dry:
      pause(PAUSE)


def look(job: Job, runner: Runner, seen: Watch, pod_plan: str, host_plan: Iterator[str]) -> bool:
  """Looks once and does what is needed; returns whether the run is finished.

  Raises:
    Failure: a command has failed; another look may be better.
    ValueError: only a person can go on.
  """
  name = job.pod.name
  found, error = verbs.state(job, runner, pod_plan)
  line = f"{name} is {found or 'not there'}{error and ': ' + error}"
  if line != seen.told and not runner.dry:
    say(line)
  seen.told = line
  if found in GONE:
    advised = runner.look_up(error)
    if advised and advised.kind == "mend":
      with contextlib.suppress(Failure):
        verbs.delete(job, runner)  # it would only be in the way of the next request
      raise ValueError(advised.line)
    make_again(job, runner, seen, line, limited=not (advised and advised.kind == "full"))
  elif not found:
    seen.lost, seen.answered = "", False
    verbs.create(job, runner)
  elif found != "ACTIVE":
    if found not in WAITING:
      raise Failure(f"{name} is {found}, and nothing is known of such a state; see `status`")
  elif seen.lost:
    make_again(job, runner, seen, seen.lost)
  else:
    return settled(job, runner, seen, ask(job, runner, seen, next(host_plan, "")))
  return False


def make_again(job: Job, runner: Runner, seen: Watch, why: str, limited: bool = True) -> None:
  """Deletes the pod; the next look asks for another.

  Raises:
    ValueError: that was of no use too often.
  """
  if limited and seen.remakes == REMAKES:
    raise ValueError(
      f"{job.pod.name} was made again {REMAKES} times in a row, and the run has come to no further step; the last time "
      f"{why} (look at `status` and `logs`, and `watch` again or `delete` it)"
    )
  try:
    verbs.delete(job, runner)
  except Failure as failure:
    if failure.kind != "none":
      raise
  seen.remakes += limited
  seen.unsettled, seen.lost = 0, ""


def bear(seen: Watch, failure: Failure) -> None:
  """Counts a failure.

  Raises:
    Failure: this one, for waiting does not mend it.
    ValueError: there were too many.
  """
  said = str(failure)
  short = said.partition(";")[0] if said == seen.complaint else said  # the whole advice once
  if failure.kind == "full" and said != seen.complaint:
    say(said)
  seen.complaint = said
  if failure.kind == "full":
    return
  if failure.kind not in PATIENCE:
    raise failure
  seen.failed[failure.kind] += 1
  failed, patience = seen.failed[failure.kind], PATIENCE[failure.kind]
  say(f"{failed} of {patience}: {short}")
  if failed < patience:
    return
  if failure.kind not in MADE_AGAIN or (failure.kind == "silent" and not seen.answered):
    raise ValueError(f"nothing has worked in {failed} looks: {said} (what is there stays, and costs)") from failure
  seen.failed.clear()
  seen.lost = said


def ask(job: Job, runner: Runner, seen: Watch, planned: str) -> list[Host]:
  """Asks every host.

  Raises:
    Failure: one does not answer.
  """
  count = job.pod.hosts
  try:
    text = runner.run(pods.status(job.pod), planned=planned * count, quiet=True, limit=verbs.SHORT)
  except Failure as failure:
    seen.answered = seen.answered or bool(hosts.read(failure.written))
    if failure.kind == "late":
      raise Failure(f"a worker does not answer{SILENT}", "silent") from None
    raise
  found = hosts.read(text)
  seen.answered = seen.answered or bool(found)
  if len(found) < count:
    raise Failure(f"{len(found)} of {count} hosts have answered: a worker does not answer", "silent")
  return found


def settled(job: Job, runner: Runner, seen: Watch, found: list[Host]) -> bool:
  """Does what the hosts need; returns whether that was nothing, for the run is finished.

  Raises:
    ValueError: the run has failed, somebody has stopped it, the hosts do something else, or nothing comes of it.
  """
  say(hosts.summary(found))
  states = {host.state for host in found}
  step = next((host.said for host in found if host.state == "running" and host.said.startswith("step ")), seen.step)
  further, seen.step = step != seen.step, step
  seen.remakes = 0 if further else seen.remakes
  seen.unsettled = 0 if further or states == {"running"} else seen.unsettled + 1

  others = [host for host in found if host.run != seen.run or host.state == "absent"]
  at_work = [host for host in others if host.state in hosts.AT_WORK]
  if at_work:
    raise ValueError(
      f"another run is at work on {at_work[0].name}: {hosts.difference(at_work[0].run, seen.run)}; `watch` it with its "
      "own commit and arguments, or `stop` it and `watch` again"
    )
  if seen.unsettled > UNSETTLED:
    raise ValueError(
      f"the hosts have not come to one state in {UNSETTLED} looks: {hosts.summary(found)}; look at `logs --worker=…`, "
      "and `run` starts those that are at rest, `delete` gives the pod back"
    )
  if others:
    verbs.install(job, runner, seen.commit)
    if job.stage:
      verbs.stage(job, runner)
    verbs.start(job, runner)
  elif "failed" in states:
    bad = next(host for host in found if host.state == "failed")
    raise ValueError(
      f"the run has failed on {bad.name}: {bad.said or 'see `logs`'} (the pod is there still: `watch` starts the run "
      "again with another commit or other arguments, `run` starts it as it was; or `delete` the pod)"
    )
  elif states == {"finished"}:
    say("the run is finished; `fetch` brings its workdir, and the pod costs until you `delete` it")
    return True
  elif states <= {"stopped", "finished"}:
    raise ValueError("the run was stopped; `run` lets it go on, `delete` gives the pod back")
  return False
