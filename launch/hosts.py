"""What the hosts of a pod do: how their lines are read, and which run it is."""

import dataclasses
import hashlib
import re
from collections.abc import Sequence

AT_WORK = ("running", "restarting")


@dataclasses.dataclass(frozen=True)
class Host:
  """How the run stands on a host, as launch/remote/status.sh says it.

  Attributes:
    name: the host's.
    state: absent, running, restarting, stopped, failed or finished.
    run: which has begun there last, see `identity`; "-" where none has.
    said: what train.py said last.
  """

  name: str
  state: str
  run: str
  said: str

  def __str__(self) -> str:
    return f"{self.name} {self.state}{self.said and ': ' + self.said}"


def identity(commit: str, arguments: Sequence[str]) -> str:
  """Returns a word that says which run it is: the commit and a hash of train.py's arguments, as
  launch/remote/identity.sh."""
  lines = "".join(f"{argument}\n" for argument in arguments)
  return f"{commit[:12]}.{hashlib.sha256(lines.encode()).hexdigest()[:12]}"


def line(state: str, run: str) -> str:
  """Returns what a host with nothing to say writes."""
  return f"launch: host {state} {run}: \n"


def read(text: str) -> list[Host]:
  """Returns the hosts whose lines are in `text`."""
  return [Host(*found) for found in re.findall(r"^launch: (\S+) (\w+) (\S+): ?(.*)$", text, re.MULTILINE)]


def difference(other: str, ours: str) -> str:
  """Says in what a run is not ours."""
  if "." not in other:
    return "it has left no name"
  (commit, arguments), (our_commit, our_arguments) = other.split("."), ours.split(".")
  found = [f"commit {commit} instead of {our_commit}"] * (commit != our_commit)
  return " and ".join([*found, *["other arguments"] * (arguments != our_arguments)])


def summary(found: Sequence[Host]) -> str:
  """Returns a line about the first three, of those that are not the same."""
  return "; ".join(sorted({str(host) for host in found})[:3])
