"""From a run's config to what its parts take, and whether two configs are one run."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable

import numpy as np
from etils import epath
from ml_collections import ConfigDict

from configs import base
from data.corpus import Corpus
from training.optimizer import OptimizerConfig
from training.schedule import ScheduleConfig

# Fields that may differ between a workdir's config and the one it is resumed with: they change how a run goes, not
# what it computes. A corpus or a task's files may move: texts are compared, not folders (`corpus_fingerprint`).
FREE = (
  "steps", "init_from", "log_every", "eval_every", "checkpoint_every", "keep_last", "keep_best", "profile_steps",
  "mesh", "checkpoint_memory", "data.corpus", "data.source", "model.unroll", "model.remat", "model.attention",
  "model.mem_len",
)  # fmt: skip


AT_LEAST_ONE = (
  "steps", "batch_size", "length", "accumulate", "log_every", "eval_every", "eval_batches", "checkpoint_every",
  "keep_last",
)  # fmt: skip


BY_EPOCHS = ("steps", "eval_every", "checkpoint_every")  # of a task, 0 = as its epochs say

# What objective.words leaves unread, by its value: how fields of the objective section begin.
UNREAD = {"ltr": ("masking.",), "plm": ("mask", "random")}


def check(config: ConfigDict) -> None:
  """Raises ValueError for a number that no run can have; the parts check their own fields."""
  for name in AT_LEAST_ONE:
    least = 0 if name in BY_EPOCHS and "epochs" in config else 1
    if name in config and config[name] < least:
      raise ValueError(f"config.{name}={config[name]} must be at least {least}")
  if config.keep_best < 0:
    raise ValueError(f"config.keep_best={config.keep_best} must be at least 0")
  if not 0 <= config.seed < 2**32:
    raise ValueError(f"config.seed={config.seed} must lie in 0 … 2^32 - 1")


def notices(config: ConfigDict, first: int) -> list[str]:
  """Returns a line for each field whose effect a run from step `first` never sees."""
  lines = []
  if (warmup := config.optimizer.warmup_steps) >= config.steps:
    lines.append(
      f"config.optimizer.warmup_steps={warmup} is not below config.steps={config.steps}: "
      f"the learning rate never reaches {config.optimizer.learning_rate:g}"
    )
  if config.profile_steps and (config.profile_steps[0] >= config.steps or config.profile_steps[1] <= first):
    traced = "{} to {}".format(*config.profile_steps)
    lines.append(
      f"config.profile_steps: steps {traced} are none of this run's, {first} to {config.steps}; nothing is traced"
    )
  if (config.objective.get("pair"), config.data.get("single_sentence")) == ("sop", "random"):
    lines.append(
      "config.data.single_sentence=random: a row of one sentence gets a random second segment and label 1, as in the "
      "original; where most rows are so, sop_accuracy says little (sop_positive in the log is the share of label 1)"
    )
  words, of_objective = config.objective.get("words"), flatten(as_json(config.objective))
  usual = defaults(as_json(config)) if words in UNREAD else {}
  lines += [
    f"config.objective.{name}={value} says nothing with config.objective.words={words!r}: no word is hidden there"
    for name, value in of_objective.items()
    if name.startswith(UNREAD.get(words, ())) and value != usual.get(f"objective.{name}", value)
  ]
  if config.checkpoint_memory == "zero":
    lines.append(
      "config.checkpoint_memory=zero: the memory is not saved, so a resumed run goes on with an empty one, and not "
      "bit for bit"
    )
  return lines


def optimizer_config(config: ConfigDict, steps: int) -> OptimizerConfig:
  """Returns the optimizer of the `optimizer` section of a run of `steps` steps."""
  fields = dict(config)
  if rate := fields.pop("warmup_rate", 0):
    if fields["warmup_steps"]:
      raise ValueError(
        f"config.optimizer has warmup_rate={rate} and warmup_steps={fields['warmup_steps']}; set one of them to 0"
      )
    if not 0 <= rate < 1:
      raise ValueError(f"config.optimizer.warmup_rate={rate} must be at least 0 and below 1")
    fields["warmup_steps"] = int(rate * steps)  # rounded as the originals do
  schedule = ScheduleConfig(
    peak=fields.pop("learning_rate"),
    warmup_steps=fields.pop("warmup_steps"),
    decay=fields.pop("decay"),
    final=fields.pop("final"),
    shifted=fields.pop("shifted"),
  )
  return OptimizerConfig(schedule=schedule, **fields)


def with_facts(config: ConfigDict, facts: dict) -> ConfigDict:
  """Returns the config with `facts` (by dotted name) put in; a mapping takes the place of a whole section."""
  resolved = config.copy_and_resolve_references().unlock()
  for section, values in facts.items():
    if isinstance(values, dict):
      resolved[section] = ConfigDict(values)
  resolved.update_from_flattened_dict({name: value for name, value in facts.items() if not isinstance(value, dict)})
  return resolved


def as_json(config: ConfigDict) -> dict:
  """Returns the config as plain JSON values: what config.json holds."""
  return json.loads(config.to_json_best_effort())


def corpus_fingerprint(splits: Iterable[Corpus]) -> str:
  """Returns a hash of the text that the splits of a prepared corpus hold, wherever their folder lies.

  It covers the tokenizer, what was counted in each shard, where documents begin and how often each token occurs.
  """
  digest = hashlib.sha256()
  for corpus in splits:
    shards = [dataclasses.asdict(shard) for shard in corpus.index.splits[corpus.split].shards]
    digest.update(json.dumps([corpus.split, corpus.index.tokenizer, shards], sort_keys=True).encode())
    digest.update(np.asarray(corpus.document_starts, "<i8").tobytes())
    digest.update(np.asarray(corpus.counts(), "<i8").tobytes())
  return digest.hexdigest()


def flatten(tree: dict, prefix: str = "") -> dict:
  """Returns {"model.hidden_size": 768, …} of a nested dict; lists are values."""
  flat = {}
  for name, value in tree.items():
    flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
  return flat


def defaults(config: dict) -> dict:
  """Returns configs/base.py's values by dotted name for a run as config.json holds it; the model section of a
  fine-tuning run is the checkpoint's, and has its family's. {} of no family there."""
  if config.get("family") not in base.FAMILIES:
    return {}
  usual = flatten(as_json(base.get_config(config["family"])))
  if "head" not in config:
    return usual
  is_model = lambda name: name.startswith("model.")
  of_task = flatten(as_json(base.get_config("task")))
  return {name: usual[name] for name in usual if is_model(name)} | {
    name: of_task[name] for name in of_task if not is_model(name)
  }


def check_identity(workdir: str, config: dict) -> None:
  """Raises ValueError if the workdir holds another run: a config.json that differs in a field which decides the
  numbers. A field that there was not when it was written has its default of today there."""
  path = epath.Path(workdir) / "config.json"
  if not path.exists():
    return
  try:
    before = json.loads(path.read_bytes())
  except ValueError as error:
    raise ValueError(f"{path} is not JSON ({error}); delete it, or use another --workdir") from None
  if not isinstance(before, dict):
    raise ValueError(f"{path} holds no object of fields; delete it, or use another --workdir")
  before, now = defaults(config) | flatten(before), flatten(config)
  is_free = lambda name: any(name == free or name.startswith(free + ".") for free in FREE)
  differ = [
    name for name in sorted(before.keys() | now.keys()) if not is_free(name) and before.get(name) != now.get(name)
  ]
  if differ:
    shown = "; ".join(f"{name} is {before.get(name)} there and {now.get(name)} here" for name in differ[:5])
    more = f" (and {len(differ) - 5} more)" if len(differ) > 5 else ""
    raise ValueError(
      f"{workdir} holds another run: {shown}{more}. Use another --workdir, or the config it was started with"
    )


def write(workdir: str, config: dict) -> None:
  """Writes config.json, at once or not at all."""
  path = epath.Path(workdir) / "config.json"
  partial = path.with_name(path.name + ".new")
  partial.write_text(json.dumps(config, indent=2) + "\n")
  partial.replace(path)
