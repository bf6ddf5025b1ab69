"""Predictions of a fine-tuned model, for examples in JSON lines or for a split of its task.

  python -m tools.predict --checkpoint=runs/mrpc --input=pairs.jsonl --output=predictions.jsonl
  python -m tools.predict --checkpoint=folder --texts premise hypothesis --input=pairs.jsonl --output=predictions.jsonl
  python -m tools.predict --checkpoint=runs/mnli --source=GLUE --output=submission
  python -m tools.predict --checkpoint=runs/mnli --task=ax --source=GLUE --output=submission
  python -m tools.predict --checkpoint=runs/squad2 --source=squad --split=dev --output=answers

The checkpoint is a workdir of a fine-tuning run (its newest checkpoint; WORKDIR@STEP is another one that it keeps), a
folder in Hugging Face layout, hf:ORG/NAME or a TF1 checkpoint, with a head. A line of the input has the columns of the
task's training files (a workdir knows which; else --texts names them), or `words`, or `question` and `context`, or
`context` and `options`; and an `id`, or its number is taken. --source is the folder with the task's official files; a
split without labels will do.

The output OUT.jsonl has lines with `id`, `prediction` (a label, a number, tags, an option's number, or a text) and,
where there are any, `probabilities`; of questions `null_odds`, how much speaks for no answer. Any other output is a
folder for the files that leaderboards take: of GLUE a file for each test split as gluebenchmark.com names it (CoLA.tsv
… MNLI-m.tsv, MNLI-mm.tsv, AX.tsv); of SQuAD predictions.json, nbest_predictions.json and null_odds.json; of CoNLL-2003
conll2003.txt with the tag in the last column; of others TASK.tsv in GLUE's form, RACE's options by letter.
tools.evaluate scores all of these. (In SQuAD 2.0's predictions.json texts with odds above --threshold are already "";
evaluate nbest_predictions.json to find the best threshold.)
"""

import dataclasses
import json
import os
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax
import numpy as np
from etils import epath
from tqdm import tqdm

from data.pipeline import Batch
from data.tasks import decode, features, readers, table
from data.tasks.examples import Example
from data.tasks.flat import Features
from data.tasks.packing import TaskSource
from data.tasks.table import Task
from models.head_config import HeadConfig
from models.tasks import TaskModel
from models.xlnet_config import XLNetConfig
from objectives import tasks
from pretrained.load import Pretrained, load
from scores import files
from scores.files import Prediction
from scores.spans import Answer
from tools import cli
from training import metrics
from training.saved import at_step


def main() -> None:
  parser = cli.parser(__doc__)
  add = parser.add_argument
  add("--checkpoint", required=True, help="WORKDIR[@STEP], model folder, hf:ORG/NAME[@REVISION] or TF1 checkpoint")
  given = parser.add_mutually_exclusive_group(required=True)
  given.add_argument("--input", type=pathlib.Path, metavar="IN.jsonl")
  given.add_argument("--source", help="the folder with the task's official files, one of them, or tfds:NAME")
  add("--output", required=True, type=pathlib.Path, help="OUT.jsonl, or a folder for the leaderboard's files")
  add("--task", help=f"one of {', '.join(table.TASKS)} (default: the run's)")
  add("--split", nargs="+", help="of --source: dev, test … (default: all test splits of the task)")
  add("--texts", nargs="+", help="columns with the text or the two texts (default: the run's, or sentence)")
  add("--length", type=int, help="tokens of a row (default: the run's, or as many as the model reads, 512 at most)")
  add("--batch_size", type=int, default=32, help="texts, windows, or questions with their options (default: 32)")
  add("--threshold", type=float, help="null odds above it mean no answer (default: the run's last on dev, or 0)")
  add("--data_dir", help="where TFDS keeps its data sets")
  args = parser.parse_args()
  if args.input and args.input.suffix != ".jsonl":
    raise ValueError(f"--input={args.input}: name a file of JSON lines, .jsonl; official files go by --source")
  if args.output.suffix in (".tsv", ".csv", ".json", ".txt"):
    raise ValueError(f"--output={args.output}: name a .jsonl file, or a folder, where files get their official names")
  for name in ("batch_size", "length"):
    if (number := getattr(args, name)) is not None and number < 1:
      raise ValueError(f"--{name}={number} must be at least 1")
  if args.texts and args.task:
    raise ValueError("--texts is of a task of your own; --task knows its columns")

  checkpoint = load(args.checkpoint)
  if checkpoint.head is None:
    raise ValueError(f"{args.checkpoint} has no head for a task; fine-tune it first (configs/finetune/)")
  run = run_of(args.checkpoint)
  task = task_of(run, checkpoint.head, args.texts, args.task)
  length = args.length or run.get("length") or min(getattr(checkpoint.config, "max_length", 512), 512)
  data = run.get("data", {})
  known = {name: data[name] for name in ("doc_stride", "max_query_length") if name in data}
  last = isinstance(checkpoint.config, XLNetConfig)
  answers = decode.AnswerConfig(**{name: data[name] for name in ("n_best", "max_answer_length") if name in data})
  threshold = threshold_of(args.checkpoint) if args.threshold is None else args.threshold

  if args.input:
    splits = {"test": readers.read_file(task, args.input, labels="unread")}
    if not splits["test"]:
      raise ValueError(f"{args.input}: no examples")
  else:
    tests = [split for split in task.files if split.startswith("test")]
    splits = args.split or (tests[:1] if pathlib.Path(args.source).is_file() else tests)
    read = lambda split: readers.read(task, args.source, split, labelled=False, data_dir=args.data_dir)
    splits = {split: read(split) for split in splits}
  outputs_of = {split: names(task, split, args.output) for split in splits}
  if len(set(outputs_of.values())) < len(splits):
    raise ValueError(
      f"{', '.join(splits)} would all be {next(iter(outputs_of.values()))[0]}; give one --split at a time"
    )

  cli.make_folder(args.output.parent if args.output.suffix == ".jsonl" else args.output)  # before the work
  if there := [str(path) for paths in outputs_of.values() for path in paths if path.exists()]:
    print(f"note: {', '.join(there)} will be overwritten", file=sys.stderr)
  apply = predictor(checkpoint)
  for split, examples in splits.items():
    found = features.build(task, examples, checkpoint.tokenizer, length, cls_last=last, **known)
    if said := features.said_of_cuts(found, length, known.get("max_query_length", 64)):
      print(f"note: {said}", file=sys.stderr)
    predictions = decode.decode(task, examples, found, outputs(apply, found, length, args.batch_size), answers)
    write(task, examples, predictions, outputs_of[split], threshold, checkpoint.head)
    for path in outputs_of[split]:
      print(f"{path}: {len(predictions)} predictions")


def run_of(checkpoint: str) -> Mapping:
  """The config.json of a fine-tuning run; nothing of other checkpoints."""
  path = epath.Path(at_step(checkpoint)[0]) / "config.json"
  if not path.exists():
    return {}
  config = json.loads(path.read_bytes())
  return config if "head" in config and "task" in config.get("data", {}) else {}


def task_of(run: Mapping, head: HeadConfig, texts: Sequence[str] | None, name: str | None = None) -> Task:
  """The task of that name, or that a run was of, with the head's labels; without one, a task of one's own of the head's
  kind.

  Raises:
    ValueError: an unknown task, or one of another kind or with other labels than the head.
  """
  kind, data = head.kind.removeprefix("conditional_"), run.get("data", {})
  name = name or ("custom" if texts else data.get("task", "custom"))
  if name == "custom":
    texts = texts or data.get("texts", ("sentence",))
    return table.custom(kind, texts=texts, label=data.get("label", "label"), labels=head.labels)
  task = table.find_task(name)
  if kind != task.kind:
    raise ValueError(f"task {name} is {task.kind}, and the checkpoint's head {head.kind}; give another --task")
  if set(task.labels) != set(head.labels):
    said = f"task {name} has the labels {', '.join(task.labels)}, and the checkpoint's head {', '.join(head.labels)}"
    raise ValueError(f"{said}; give another --task, or --texts for a task of your own")
  return dataclasses.replace(task, labels=head.labels)


def threshold_of(checkpoint: str) -> float:
  """The threshold for null odds that was best at a run's last evaluation (of WORKDIR@STEP: up to that step); 0 where
  there was none."""
  workdir, step = at_step(checkpoint)
  records = metrics.read(os.path.join(workdir, metrics.FILE))
  known = [one["threshold"] for one in records if "threshold" in one and (step is None or one["step"] <= step)]
  return known[-1] if known else 0.0


def predictor(checkpoint: Pretrained) -> Callable[[Batch], decode.Output]:
  """Returns what the model says of a batch; compiled once for each shape."""
  objective = tasks.make(TaskModel(checkpoint.config, checkpoint.head))
  apply = jax.jit(lambda params, batch: objective.eval_fn(params, {}, batch, jax.random.key(0))[3])
  params = jax.device_put(checkpoint.params)
  return lambda batch: jax.tree.map(np.asarray, apply(params, batch))


def outputs(
  apply: Callable[[Batch], decode.Output], found: Features, length: int, batch_size: int
) -> Iterator[decode.Output]:
  """Yields what the model says of each batch, of at most four shapes."""
  source = TaskSource(found, length, batch_size)
  with tqdm(total=source.num_units, unit="example", disable=None) as bar:
    for step in range(source.num_batches):
      yield apply(source.evaluation(step))
      bar.update(min(batch_size, source.num_units - step * batch_size))


def names(task: Task, split: str, output: pathlib.Path) -> tuple[pathlib.Path, ...]:
  """The files that a split's predictions go to."""
  if output.suffix == ".jsonl":
    return (output,)
  if task.kind == "span":
    return tuple(output / name for name in files.SQUAD_FILES if task.impossible or name != "null_odds.json")
  return (output / (f"{task.name}.txt" if task.kind == "tagging" else files.labels_file(task.name, split)),)


def write(
  task: Task,
  examples: Sequence[Example],
  predictions: Sequence[Prediction] | Sequence[Answer],
  paths: Sequence[pathlib.Path],
  threshold: float,
  head: HeadConfig,
) -> None:
  """Writes a split's predictions to its files, see `names`."""
  ids, path = [e.id for e in examples], paths[0]
  if path.suffix == ".jsonl":
    files.write_lines(path, ids, [record(one, threshold) for one in predictions])
  elif task.kind == "span":
    names = files.LOGITS if head.kind == "span" else files.LOG_PROBABILITIES
    files.write_squad(path.parent, dict(zip(ids, predictions, strict=True)), threshold, names)
  elif task.kind == "tagging":
    tags = [e.tags for e in examples]
    files.write_tags(path, [e.words for e in examples], [x.value for x in predictions], None if None in tags else tags)
  else:
    values = [one.value for one in predictions]
    if task.kind == "choice":
      values = [chr(ord("A") + x) if task.layout == "race" else str(x) for x in values]
    files.write_labels(path, ids, values, task.bounds)


def record(one, threshold: float) -> dict:
  """What is written of a prediction besides its id."""
  if isinstance(one, Answer):
    odds = {} if one.null_odds is None else {"null_odds": one.null_odds}
    return {"prediction": one.decided(threshold)} | odds
  return {"prediction": one.value} | ({"probabilities": one.probabilities} if one.probabilities else {})


if __name__ == "__main__":
  cli.run(main)
