"""Predictions of a fine-tuned model for examples in JSON lines.

  python -m tools.predict --checkpoint=runs/mrpc --input=pairs.jsonl --output=predictions.jsonl
  python -m tools.predict --checkpoint=folder --texts premise hypothesis --input=pairs.jsonl --output=predictions.jsonl

The checkpoint is a workdir of a fine-tuning run, a folder in Hugging Face layout, hf:ORG/NAME or a TF1 checkpoint, with
a head. A line of the input has the columns of the task's training files (a workdir knows which; else --texts names
them), or `words`, or `question` and `context`, or `context` and `options`; and an `id`, or its number is taken. A line
of the output has `id`, `prediction` (a label, a number, tags, an option's number, or a text) and, where there are any,
`probabilities`; of questions `null_odds`, how much speaks for no answer. tools.evaluate scores such files.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator, Mapping

import jax
import numpy as np
from tqdm import tqdm

from data.tasks import decode, features, readers, table
from data.tasks.flat import Features
from data.tasks.packing import TaskSource
from data.tasks.table import Task
from models.head_config import HeadConfig
from models.tasks import TaskModel
from models.xlnet_config import XLNetConfig
from objectives import tasks
from pretrained.load import Pretrained, load
from scores.spans import Answer
from tools import cli


def main() -> None:
  parser = cli.parser(__doc__)
  add = parser.add_argument
  add("--checkpoint", required=True, help="workdir, model folder, hf:ORG/NAME[@REVISION] or TF1 checkpoint")
  add("--input", required=True, type=pathlib.Path, metavar="IN.jsonl")
  add("--output", required=True, type=pathlib.Path, metavar="OUT.jsonl")
  add("--texts", nargs="+", help="columns with the text or the two texts (default: the run's, or sentence)")
  add("--length", type=int, help="tokens of a row (default: the run's, or as many as the model reads, 512 at most)")
  add("--batch_size", type=int, default=32, help="texts, windows, or questions with their options (default: 32)")
  add("--threshold", type=float, default=0.0, help="null odds above it mean no answer (default: 0)")
  args = parser.parse_args()
  if args.input.suffix != ".jsonl":
    raise ValueError(f"{args.input}: name a file of JSON lines, .jsonl")

  checkpoint = load(args.checkpoint)
  if checkpoint.head is None:
    raise ValueError(f"{args.checkpoint} has no head for a task; fine-tune it first (configs/finetune/)")
  run = run_of(args.checkpoint)
  task = task_of(run, checkpoint.head, args.texts)
  length = args.length or run.get("length") or min(getattr(checkpoint.config, "max_length", 512), 512)
  examples = readers.read_file(task, args.input)
  if not examples:
    raise ValueError(f"{args.input}: no examples")
  data = run.get("data", {})
  known = {name: data[name] for name in ("doc_stride", "max_query_length") if name in data}
  last = isinstance(checkpoint.config, XLNetConfig)
  found = features.build(task, examples, checkpoint.tokenizer, length, cls_last=last, **known)
  answers = decode.AnswerConfig(**{name: data[name] for name in ("n_best", "max_answer_length") if name in data})
  predictions = decode.decode(task, examples, found, outputs(checkpoint, found, length, args.batch_size), answers)

  lines = [
    json.dumps({"id": e.id} | record(one, args.threshold), ensure_ascii=False)
    for e, one in zip(examples, predictions, strict=True)
  ]
  unfinished = args.output.with_name(args.output.name + ".part")
  unfinished.write_text("\n".join(lines) + "\n", encoding="utf-8")
  os.replace(unfinished, args.output)
  print(f"{args.output}: {len(lines)} predictions")


def run_of(checkpoint: str) -> Mapping:
  """The config.json of a fine-tuning run; nothing of other checkpoints."""
  path = pathlib.Path(checkpoint) / "config.json"
  if not path.exists():
    return {}
  config = json.loads(path.read_text(encoding="utf-8"))
  return config if "head" in config and "task" in config.get("data", {}) else {}


def task_of(run: Mapping, head: HeadConfig, texts: list[str] | None) -> Task:
  """The task that a run was of, with the head's labels; without one, a task of one's own of the head's kind."""
  kind, data = head.kind.removeprefix("conditional_"), run.get("data", {})
  if data.get("task", "custom") != "custom" and not texts:
    return dataclasses.replace(table.find_task(data["task"]), labels=head.labels)
  texts = texts or data.get("texts", ("sentence",))
  return table.custom(kind, texts=texts, label=data.get("label", "label"), labels=head.labels)


def outputs(checkpoint: Pretrained, found: Features, length: int, batch_size: int) -> Iterator[decode.Output]:
  """Yields what the model says of each batch; compiles once for each of at most four shapes."""
  source = TaskSource(found, length, batch_size)
  objective = tasks.make(TaskModel(checkpoint.config, checkpoint.head))
  apply = jax.jit(lambda params, batch: objective.eval_fn(params, {}, batch, jax.random.key(0))[3])
  params = jax.device_put(checkpoint.params)
  with tqdm(total=source.num_units, unit="example", disable=None) as bar:
    for step in range(source.num_batches):
      batch = source.evaluation(step)
      yield jax.tree.map(np.asarray, apply(params, batch))
      bar.update(min(batch_size, source.num_units - step * batch_size))


def record(one, threshold: float) -> dict:
  """What is written of a prediction besides its id."""
  if isinstance(one, Answer):
    odds = {} if one.null_odds is None else {"null_odds": one.null_odds}
    return {"prediction": one.decided(threshold)} | odds
  return {"prediction": one.value} | ({"probabilities": one.probabilities} if one.probabilities else {})


if __name__ == "__main__":
  cli.run(main)
