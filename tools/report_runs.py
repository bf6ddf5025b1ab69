"""The runs of a report: what their workdirs hold, and which of them are one experiment with several seeds."""

import collections
import dataclasses
import itertools
import json
import os
import pathlib
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from data.places import is_remote
from training import metrics
from training.settings import defaults, flatten

FILES = ("config.json", metrics.FILE)
# Fields that runs of one group may differ in: the seed, and where things lie. A text is known by its fingerprint.
WITHIN_A_GROUP = ("seed", "data.corpus", "data.source", "data.data_dir")
# What a reader wants to see where these differ.
_STANDS_FOR = {"data.corpus_fingerprint": "data.corpus", "data.fingerprint": "data.source"}
_HASHES = (*_STANDS_FOR, "data.tokenizer")
_SEED_OF_PATH = re.compile(r"seed[=_-]?\d+")
_FIELDS_OF_A_NAME = 3  # more say less than the folders do
_DEPTH = 4  # folders between one that is given and the workdirs in it

ABSENT = None  # the value of a field that a config does not have


@dataclasses.dataclass(frozen=True)
class Run:
  """A workdir.

  Attributes:
    workdir: where it lies.
    config: its fields by dotted name.
    records: whole records of its log.
    left_out: lines of the log behind the first that is no record, itself included; 1 is what an interruption leaves.
  """

  workdir: pathlib.Path
  config: dict[str, Any]
  records: list[dict]
  left_out: int = 0

  @property
  def seed(self) -> int:
    return self.config["seed"]

  @property
  def reached(self) -> int:
    """The step of its last record."""
    return max(record["step"] for record in self.records)

  @property
  def is_finished(self) -> bool:
    return self.reached >= self.config["steps"]

  def of(self, split: str) -> list[dict]:
    """Returns the records of a split."""
    return [record for record in self.records if record["split"] == split]


@dataclasses.dataclass(frozen=True)
class Group:
  """Runs that differ in nothing but the seed and paths.

  Attributes:
    name: what tells it from the others.
    runs: by seed.
    fields: the fields in which groups differ, and its values.
  """

  name: str
  runs: tuple[Run, ...]
  fields: dict[str, Any]

  @property
  def first(self) -> Run:
    return self.runs[0]

  @property
  def seeds(self) -> list[int]:
    return [run.seed for run in self.runs]


def find(folders: Iterable[str]) -> list[pathlib.Path]:
  """Returns the workdirs that are given, or that lie below what is given, each once. Of those below, one whose log is
  empty has just begun: it is named on stderr and left out.

  Raises:
    ValueError: a folder is none and holds none, or lies in a bucket.
  """
  found = {}
  for name in folders:
    if is_remote(name):
      raise ValueError(f"{name} is a bucket's; copy its {' and '.join(FILES)} to a folder here, and name that")
    folder = pathlib.Path(name)
    workdirs = [folder] if _is_workdir(folder) else _below(folder)
    if not workdirs:
      missing = "there is no such folder" if not folder.is_dir() else f"it holds no {' and '.join(FILES)}"
      raise ValueError(f"{name} is no workdir and none lies in it: {missing}; name the --workdir of a train.py run")
    found |= {workdir.resolve(): workdir for workdir in workdirs}
  return list(found.values())


def _is_workdir(folder: pathlib.Path) -> bool:
  return all((folder / name).is_file() for name in FILES)


def _below(folder: pathlib.Path) -> list[pathlib.Path]:
  """The workdirs in a folder, in the order of their names, numbers by value."""
  found = [path.parent for depth in range(1, _DEPTH + 1) for path in folder.glob("*/" * depth + metrics.FILE)]
  by_number = lambda path: [int(x) if x.isdigit() else x for x in re.split(r"(\d+)", str(path))]
  found = sorted(filter(_is_workdir, found), key=by_number)
  begun = [workdir for workdir in found if metrics.read(str(workdir / metrics.FILE))]
  for workdir in found:
    if workdir not in begun:
      print(f"note: {workdir} has no record yet and is left out", file=sys.stderr)
  return begun


def read(workdir: pathlib.Path) -> Run:
  """Reads a workdir. A torn last line of the log is no part of it. Fields that there were not when it was written have
  their defaults.

  Raises:
    ValueError: config.json is no config, or the log is empty.
  """
  file, log = (workdir / name for name in FILES)
  try:
    config = json.loads(file.read_text(encoding="utf-8"))
    fields = defaults(config) | flatten(config)
    if not (isinstance(config["seed"], int) and isinstance(config["steps"], int)):
      raise TypeError("seed and steps must be numbers")
  except (ValueError, KeyError, AttributeError, TypeError) as error:
    raise ValueError(f"{file} is no run's config ({type(error).__name__}: {error}); train.py writes one") from None
  records = metrics.read(str(log))
  if not records:
    raise ValueError(f"{log} holds no record yet; leave {workdir} out, or let it run to its first evaluation")
  return Run(workdir, fields, records, len(log.read_bytes().splitlines()) - len(records))


def group(runs: Sequence[Run], names: Sequence[str] = ()) -> list[Group]:
  """Returns the groups in the order of their first runs.

  Args:
    runs: of any experiments.
    names: what to call the groups; () = by the fields in which they differ, or where these are many by their folders.

  Raises:
    ValueError: another number of names than of groups.
  """
  by_identity = collections.defaultdict(list)
  for run in runs:
    by_identity[json.dumps(_identity(run.config), sort_keys=True)].append(run)
  members = [tuple(sorted(some, key=lambda run: run.seed)) for some in by_identity.values()]
  identities = [_identity(some[0].config) for some in members]
  fields = differing(identities)
  own = [{name: identity.get(name, ABSENT) for name in fields} for identity in identities]
  if names and len(names) != len(members):
    found = "; ".join(_by_fields(members, own) or _by_folders(members))
    raise ValueError(f"--names has {len(names)} and there are {len(members)} groups of runs: {found}")
  names = names or _by_fields(members, own) or _by_folders(members)
  return [Group(*one) for one in zip(names, members, own, strict=True)]


def _identity(config: dict[str, Any]) -> dict[str, Any]:
  """The fields that decide which group a run is in. Checkpoints to start from, that differ in a seed, are alike."""
  kept = {name: value for name, value in config.items() if name not in WITHIN_A_GROUP}
  return kept | {"init_from": _SEED_OF_PATH.sub("seed=*", str(config.get("init_from", "")))}


def differing(configs: Sequence[dict[str, Any]]) -> list[str]:
  """Returns the fields whose values are not the same in all, in the order of the configs."""
  known = dict.fromkeys(name for config in configs for name in config)
  return [name for name in known if any(config.get(name, ABSENT) != configs[0].get(name, ABSENT) for config in configs)]


def common(groups: Sequence[Group]) -> dict[str, Any]:
  """Returns the fields that all groups have alike."""
  identity = _identity(groups[0].first.config)
  return {name: value for name, value in identity.items() if name not in groups[0].fields}


def _by_fields(members: Sequence[tuple[Run, ...]], own: Sequence[dict[str, Any]]) -> list[str]:
  """Names such as "pair=sop, hidden_size=256"; [] where they would be long, empty or the same.

  A value that more than half of at least three groups have is not said.
  """
  fields = [name for name in own[0] if name not in _HASHES] or [name for name in own[0] if name in _STANDS_FOR]
  ends = collections.Counter(name.rpartition(".")[2] for name in fields)
  names = []
  for some, values in zip(members, own, strict=True):
    said = []
    for field in fields:
      value, shown_as = values[field], _STANDS_FOR.get(field, field)
      usual = sum(other[field] == value for other in own) * 2 > len(own) > 2
      if value is not ABSENT and not usual:
        end = shown_as.rpartition(".")[2]
        value = some[0].config.get(shown_as, value) if field in _STANDS_FOR else value
        said.append(f"{end if ends[end] < 2 else shown_as}={shown(value)}")
    names.append(said)
  if sum(not said for said in names) == 1 and len(names) > 2:
    names = [said or ["base"] for said in names]
  texts = [", ".join(said) for said in names]
  good = all(0 < len(said) <= _FIELDS_OF_A_NAME for said in names) and len(set(texts)) == len(texts)
  return texts if good else []


def _by_folders(members: Sequence[tuple[Run, ...]]) -> list[str]:
  """The parts of the workdirs' paths that tell groups apart, without seeds."""
  stems = []
  for some in members:
    paths = [_SEED_OF_PATH.sub("", os.path.abspath(run.workdir)) for run in some]
    stem = os.path.commonprefix(paths)  # noqa: RUF071 - by character: mlm-1, mlm-2
    stems.append(pathlib.PurePath(stem.rstrip("/_-.,=")).parts)
  first, last = _alike(stems), _alike([stem[::-1] for stem in stems])
  texts = ["/".join(stem[min(first, len(stem) - 1) : max(len(stem) - last, first + 1)]) for stem in stems]
  counts, seen = collections.Counter(texts), collections.Counter()
  names = []
  for text in texts:
    seen[text] += 1
    names.append(text if counts[text] == 1 else f"{text} ({seen[text]})")
  return names


def _alike(paths: Sequence[tuple[str, ...]]) -> int:
  """How many parts from the first on all paths share."""
  return sum(1 for _ in itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False)))


def shown(value: Any, width: int = 28) -> str:
  """Returns a field's value as short text; of a long one, its end."""
  if value is ABSENT:
    return "–"
  if isinstance(value, float):
    return f"{value:g}"
  text = value if isinstance(value, str) else json.dumps(value)
  text = {"": "none", "true": "True", "false": "False"}.get(text, text)
  if re.fullmatch(r"[0-9a-f]{32,}", text):
    return text[:8]
  if "/" in text and not isinstance(value, list):
    text = "/".join(pathlib.PurePath(text).parts[-3:])
  return text if len(text) <= width else "…" + text[1 - width :]
