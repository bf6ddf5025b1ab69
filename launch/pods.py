"""TPU pods by gcloud: what is asked for, and the command that each step is. Nothing here runs anything.

One way fits all: a queued resource, of one slice or of several, on demand, spot or reserved. Its name is the pod's.
"""

import dataclasses
import pathlib
import re
import shlex
from collections.abc import Sequence

_CHIPS = (1, 4, 8, 16, 32, 64, 128, 256)
# Accelerator type's family → the software that Cloud TPU recommends for it, TensorCores or chips that its number counts
# on one host, the largest number that lies on a single host, and the numbers there are (v4 and v5p have any shape).
# https://cloud.google.com/tpu/docs/runtimes, https://cloud.google.com/tpu/docs/system-architecture-tpu-vm
FAMILIES = {
  "v2": ("tpu-ubuntu2204-base", 8, 8, (8, 32, 128, 256, 512)),
  "v3": ("tpu-ubuntu2204-base", 8, 8, (8, 32, 64, 128, 256, 512, 1024, 2048)),
  "v4": ("tpu-ubuntu2204-base", 8, 8, range(8, 8192 + 1, 8)),
  "v5litepod": ("v2-alpha-tpuv5-lite", 4, 8, _CHIPS),
  "v5p": ("v2-alpha-tpuv5", 8, 8, range(8, 12288 + 1, 8)),
  "v6e": ("v2-alpha-tpuv6e", 4, 8, _CHIPS),
}
RESOURCE = ("gcloud", "compute", "tpus", "queued-resources")
REMOTE = "bidir/checkout/launch/remote"  # in a host's home folder
ARCHIVE = "bidir.tar.gz"
MAX_NAME = 40


@dataclasses.dataclass(frozen=True)
class Pod:
  """A pod.

  Attributes:
    name: of the queued resource, and of its nodes.
    zone: where.
    project: whose; "" is gcloud's own setting.
    type: accelerator type of a slice, e.g. v3-32.
    version: the hosts' software; "" is the type's.
    slices: how many.
    spot: cheaper, and may be taken away.
    reserved: from the project's reservation.
    also: further flags of gcloud's create.
    ssh: further flags of gcloud's ssh and scp.

  Raises:
    ValueError: a name or a type that gcloud would refuse after minutes.
  """

  name: str
  zone: str
  project: str = ""
  type: str = ""
  version: str = ""
  slices: int = 1
  spot: bool = False
  reserved: bool = False
  also: tuple[str, ...] = ()
  ssh: tuple[str, ...] = ()

  def __post_init__(self):
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", self.name) or len(self.name) > MAX_NAME:
      raise ValueError(
        f"--name={self.name} must be small letters, digits and dashes, a letter first, at most {MAX_NAME} of them"
      )
    if not re.fullmatch(r"[a-z]+-[a-z]+\d+-[a-z]", self.zone):
      raise ValueError(f"--zone={self.zone} is no zone, which looks like europe-west4-a")
    if self.type and (self.family not in FAMILIES or not self.number):
      hint = f"v5litepod-{self.number or 16}" if self.type.startswith("v5e") else "v3-32, v5litepod-16 or v6e-64"
      raise ValueError(f"--type={self.type} is none of {', '.join(FAMILIES)} with a number, e.g. {hint}")
    if self.type and self.number not in (sizes := FAMILIES[self.family][3]):
      known = f"multiples of 8 up to {sizes[-1]}" if isinstance(sizes, range) else ", ".join(map(str, sizes))
      raise ValueError(f"--type={self.type} is no size that {self.family} has, which are {known}")
    if self.slices < 1:
      raise ValueError(f"--slices={self.slices} must be at least 1")
    if self.spot and self.reserved:
      raise ValueError("--spot and --reserved exclude each other")

  @property
  def family(self) -> str:
    return self.type.rpartition("-")[0]

  @property
  def number(self) -> int:
    size = self.type.rpartition("-")[2]
    return int(size) if re.fullmatch("[1-9][0-9]{0,5}", size) else 0

  @property
  def hosts(self) -> int:
    """Machines of all slices, each of which runs one process."""
    _, per_host, single, _ = FAMILIES[self.family]
    return self.slices * (1 if self.number <= single else self.number // per_host)

  @property
  def place(self) -> list[str]:
    return [f"--zone={self.zone}", *([f"--project={self.project}"] if self.project else [])]


def create(pod: Pod) -> list[str]:
  """Asks for the pod; the request waits in a queue until there is room."""
  nodes = [f"--node-id={pod.name}"]
  if pod.slices > 1:
    nodes = [f"--node-count={pod.slices}", f"--node-prefix={pod.name}"]
  version = pod.version or FAMILIES[pod.family][0]
  tier = ["--spot"] * pod.spot + ["--reserved"] * pod.reserved
  wanted = [f"--accelerator-type={pod.type}", f"--runtime-version={version}", *tier, *pod.also]
  return [*RESOURCE, "create", pod.name, *pod.place, *nodes, *wanted, "--quiet"]


def describe(pod: Pod) -> list[str]:
  """Asks for the state of the request, as JSON."""
  return [*RESOURCE, "describe", pod.name, *pod.place, "--format=json"]


def delete(pod: Pod) -> list[str]:
  """Gives the pod back, with its hosts and their disks."""
  return [*RESOURCE, "delete", pod.name, *pod.place, "--force", "--quiet"]


def everywhere(worker: int | None = None) -> list[str]:
  """The flags that choose one host of the first slice, or all hosts."""
  return ["--worker=all", "--node=all"] if worker is None else [f"--worker={worker}", "--node=0"]


def remote(pod: Pod, command: str, worker: int | None = None) -> list[str]:
  """Runs a shell command on all hosts, or on one of the first slice."""
  return [*RESOURCE, "ssh", pod.name, *pod.place, *everywhere(worker), *pod.ssh, f"--command={command}", "--quiet"]


def script(pod: Pod, name: str, arguments: Sequence[str] = (), worker: int | None = None) -> list[str]:
  """Runs a script of launch/remote on all hosts, or on one."""
  return remote(pod, shlex.join(["bash", f"{REMOTE}/{name}.sh", *arguments]), worker)


def status(pod: Pod) -> list[str]:
  """Asks all hosts how the run stands; one where nothing is installed says so, too."""
  return remote(pod, f'bash {REMOTE}/status.sh 2> /dev/null || hostname | sed "s/.*/launch: & absent -:/"')


def archive(root: pathlib.Path, commit: str, file: str) -> list[str]:
  """Packs the checkout at a commit, so that no host need be able to clone it."""
  return ["git", "-C", str(root), "archive", "--format=tar.gz", "--prefix=checkout/", f"--output={file}", commit]


def copy_up(pod: Pod, file: str) -> list[str]:
  """Copies a file to all hosts' home folders."""
  return [*RESOURCE, "scp", file, f"{pod.name}:{ARCHIVE}", *pod.place, *everywhere(), *pod.ssh, "--quiet"]


def install(pod: Pod, commit: str) -> list[str]:
  """Unpacks the archive on all hosts in place of what was there, and installs what it needs."""
  unpack = f"mkdir -p bidir && rm -rf bidir/checkout && tar -xzf {ARCHIVE} -C bidir"
  return remote(pod, f"{unpack} && bash {REMOTE}/install.sh {commit}")


def copy_down(pod: Pod, path: str, target: str) -> list[str]:
  """Copies a file or folder of the first host to this machine."""
  source = f"{pod.name}:{path}"
  return [*RESOURCE, "scp", source, target, *pod.place, *everywhere(0), *pod.ssh, "--recurse", "--quiet"]


def download(source: str, target: str, checkpoints: bool) -> list[str]:
  """Copies a workdir of a bucket to this machine."""
  left_out = [] if checkpoints else ["--exclude=^checkpoints/.*,^damaged/.*"]
  return ["gcloud", "storage", "rsync", "--recursive", *left_out, source, target]
