"""Speed of fine-tuning and predicting beside another library's, on a task's real lengths, in one run, alternating.

    python -m benchmarks.task_step --task=sst2 --source=GLUE --tokenizer=FOLDER --json

FOLDER holds a BERT's vocab.txt; the model is of --size with random weights and the task's head. Both read the same
examples. Ours packs them into rows as `train.py` does; `transformers` pads each batch to its longest, in its usual data
loader with its fast tokenizer. A fine-tuning round is --batches steps of --rows examples, dropout on, clipped, AdamW,
batching included, tokenised beforehand; a predicting round is the logits of --predict examples of the dev set, ours by
the run's evaluation. Rates are medians over the rounds.
"""

import contextlib
import itertools
import json
import pathlib
import shutil
import statistics
import tempfile
from collections.abc import Callable

import jax
import numpy as np

from benchmarks.contender import Contender
from configs import base
from models.config import BERT_SIZES
from tools import cli


def ours(work: str, folder: str, task: str, source: str, batch_size: int, batches: int, examples: int):
  """Returns (do one round of `work`, examples of a round)."""
  from parts import finetuning
  from training import loop, optimizer, programs, settings, sharding, state

  config = base.get_config("task")
  config.init_from, config.data.task, config.data.source, config.batch_size = folder, task, source, batch_size
  config.steps, config.model.unroll = 1_000_000, 0
  parts = finetuning.build(config)
  (stage,), mesh = parts.stages, sharding.make_mesh(sharding.MeshConfig())
  tx, _ = optimizer.make(settings.optimizer_config(config.optimizer, config.steps), config.steps)
  train_shapes, eval_shapes = parts.shapes(stage)
  run = programs.compile_stage(
    parts.objective, tx, train_shapes, batch_size, mesh, seed=0, accumulate=1, eval_shapes=eval_shapes
  )
  now = state.create(parts.objective, tx, batch_size, 0, mesh)
  now = [now.replace(params=parts.initial(now.params))]
  train = loop.on_mesh(parts.train_batches(stage, 0, np.arange), mesh)

  def fine_tune() -> None:
    for batch in itertools.islice(train, batches):
      now[0], values = run.train(now[0], batch)
    jax.block_until_ready((now[0], values))

  def predict() -> None:
    with contextlib.closing(loop.on_mesh(parts.eval_batches(stage, np.arange), mesh)) as some:
      run.evaluate(now[0].params, itertools.islice(some, examples // batch_size))

  return {"fine-tune": (fine_tune, batches * batch_size), "predict": (predict, examples // batch_size * batch_size)}[
    work
  ]


def transformers(work: str, folder: str, task: str, source: str, batch_size: int, batches: int, examples: int):
  """Returns what `ours` does, by `transformers` and PyTorch."""
  import torch
  import transformers as hf

  from benchmarks.fine_tuning_transformers import Rows
  from data.tasks import readers, table

  known = table.find_task(task)
  rows = {}
  tokenizer = hf.AutoTokenizer.from_pretrained(folder)
  for split in ("train", "dev"):
    found = readers.read(known, source, split, labelled=True)
    known = readers.with_labels(known, found) if split == "train" else known
    rows[split] = Rows(known, found[:examples] if split == "dev" else found, tokenizer, 128)
  model = hf.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=max(1, len(known.labels)))
  adam = torch.optim.AdamW(model.parameters(), lr=5e-5, eps=1e-6, weight_decay=0.01)
  load = lambda split: torch.utils.data.DataLoader(
    rows[split], batch_size, shuffle=split == "train", collate_fn=hf.DataCollatorWithPadding(tokenizer)
  )
  train = itertools.chain.from_iterable(load("train") for _ in itertools.count())

  def fine_tune() -> None:
    model.train()
    for batch in itertools.islice(train, batches):
      loss = model(**batch).loss
      loss.backward()
      torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
      adam.step()
      adam.zero_grad()

  def predict() -> None:
    model.eval()
    with torch.inference_mode():
      for batch in itertools.islice(load("dev"), examples // batch_size):
        model(**batch).logits.numpy()

  return {"fine-tune": (fine_tune, batches * batch_size), "predict": (predict, examples // batch_size * batch_size)}[
    work
  ]


def write_model(folder: pathlib.Path, tokenizer: str, size: str) -> None:
  """Writes a BERT of random weights with the vocabulary of `tokenizer` in Hugging Face layout."""
  import transformers as hf

  if not (vocabulary := pathlib.Path(tokenizer) / "vocab.txt").exists():
    raise ValueError(f"--tokenizer={tokenizer}: the folder has no vocab.txt")
  shutil.copy(vocabulary, folder)
  sizes = BERT_SIZES[size]
  config = hf.BertConfig(
    vocab_size=len(vocabulary.read_text(encoding="utf-8").splitlines()),
    hidden_size=sizes["hidden_size"],
    num_hidden_layers=sizes["num_layers"],
    num_attention_heads=sizes["num_heads"],
    intermediate_size=sizes["intermediate_size"],
  )
  hf.BertModel(config).save_pretrained(folder)


def main() -> None:
  parser = cli.parser(__doc__)
  parser.add_argument("--task", default="sst2", help="a task of texts (default: sst2)")
  parser.add_argument("--source", required=True, help="the folder with the task's official files")
  parser.add_argument("--tokenizer", required=True, help="the folder with a BERT's vocab.txt")
  parser.add_argument("--size", choices=sorted(BERT_SIZES), default="base")
  parser.add_argument("--rows", type=int, default=32, help="examples of a batch (default: 32)")
  parser.add_argument("--batches", type=int, default=8, help="of a fine-tuning round (default: 8)")
  parser.add_argument("--predict", type=int, default=256, help="examples of a predicting round (default: 256)")
  parser.add_argument("--rounds", type=int, default=5)
  parser.add_argument("--json", action="store_true", help="print one JSON object")
  flags = parser.parse_args()

  result = {"model": f"bert-{flags.size}", "task": flags.task}
  with tempfile.TemporaryDirectory() as folder:
    write_model(pathlib.Path(folder), flags.tokenizer, flags.size)
    for work in ("fine-tune", "predict"):
      shape = (work, folder, flags.task, flags.source, flags.rows, flags.batches, flags.predict)
      result |= compare(work, ours, transformers, shape, flags.rounds)
  if flags.json:
    print(json.dumps({name: round(value, 4) if isinstance(value, float) else value for name, value in result.items()}))
  else:
    for name, value in result.items():
      print(f"{name:>28}  {value:,.3f}" if isinstance(value, float) else f"{name:>28}  {value}")


def compare(work: str, our: Callable, their: Callable, shape: tuple, rounds: int) -> dict:
  """Returns examples/s of both, and the ratios of the rounds."""
  contenders = {"ours": Contender(our, *shape), "theirs": Contender(their, *shape, ours=False)}
  seconds = {name: [] for name in contenders}
  for _ in range(rounds):
    for name, contender in contenders.items():
      seconds[name].append(contender.seconds())
  for contender in contenders.values():
    contender.close()
  median = {name: statistics.median(values) for name, values in seconds.items()}
  name = work.replace("-", "_")
  return {
    f"{name}_examples_per_s": contenders["ours"].known / median["ours"],
    f"{name}_theirs_examples_per_s": contenders["theirs"].known / median["theirs"],
    f"{name}_ratio": median["theirs"] / median["ours"],
    f"{name}_ratios": [round(b / a, 3) for a, b in zip(seconds["ours"], seconds["theirs"], strict=True)],
  }


if __name__ == "__main__":
  cli.run(main)
