"""Fine-tuning as a user of `transformers` writes it: a model with its head, padding by batch, and Trainer."""

import pathlib
import time

import numpy as np
import torch
import transformers
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, Trainer, TrainingArguments

import scores
from data.tasks import readers, table
from data.tasks.examples import Example
from data.tasks.table import Task

IGNORED = -100


class Rows(torch.utils.data.Dataset):
  """Examples as a tokenizer's rows with `labels`."""

  def __init__(self, task: Task, examples: list[Example], tokenizer, length: int):
    self._rows = [_row(task, example, tokenizer, length) for example in examples]

  def __len__(self) -> int:
    return len(self._rows)

  def __getitem__(self, i: int) -> dict:
    return self._rows[i]


def _row(task: Task, example: Example, tokenizer, length: int) -> dict:
  if task.kind != "tagging":
    row = tokenizer(*example.texts, truncation=True, max_length=length)
    label = example.label if task.kind == "regression" else task.labels.index(example.label)
    return {**row, "labels": label}
  row = tokenizer(list(example.words), is_split_into_words=True, truncation=True, max_length=length)
  words = row.word_ids()
  first = [word is not None and word != before for before, word in zip([None, *words], words, strict=False)]
  tags = [task.labels.index(example.tags[word]) if new else IGNORED for new, word in zip(first, words, strict=True)]
  return {**row, "labels": tags}


def run(
  task: str, source: str, checkpoint: str, seed: int, setting, alike: dict[str, float], workdir: pathlib.Path
) -> tuple[float, float]:
  """Returns (main score on dev, seconds of training).

  Args:
    task, source, checkpoint, seed: what is learned, from where.
    setting: benchmarks.fine_tuning.Setting.
    alike: the optimizer's fields that both sides share, by our names.
    workdir: for what Trainer writes.
  """
  transformers.set_seed(seed)
  task = table.find_task(task)
  train = readers.read(task, source, "train", labelled=True)[: setting.examples or None]
  dev = readers.read(task, source, "dev", labelled=True)
  task = readers.with_labels(task, train)
  tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
  model_class = AutoModelForTokenClassification if task.kind == "tagging" else AutoModelForSequenceClassification
  model = model_class.from_pretrained(checkpoint, num_labels=max(1, len(task.labels)))
  arguments = TrainingArguments(
    output_dir=str(workdir),
    learning_rate=setting.learning_rate,
    per_device_train_batch_size=setting.batch_size,
    per_device_eval_batch_size=32,
    num_train_epochs=setting.epochs,
    adam_beta1=alike["b1"],
    adam_beta2=alike["b2"],
    adam_epsilon=alike["eps"],
    weight_decay=alike["weight_decay"],
    max_grad_norm=alike["clip"],
    warmup_steps=alike["warmup_rate"],  # below 1 it is a share of the steps
    seed=seed,
    report_to="none",
    save_strategy="no",
    logging_strategy="no",
    disable_tqdm=True,
    use_cpu=True,
  )
  collator = transformers.DataCollatorForTokenClassification if task.kind == "tagging" else None
  trainer = Trainer(
    model,
    arguments,
    train_dataset=Rows(task, train, tokenizer, setting.length),
    data_collator=(collator or transformers.DataCollatorWithPadding)(tokenizer),
  )
  began = time.perf_counter()
  trainer.train()
  seconds = time.perf_counter() - began
  rows = Rows(task, dev, tokenizer, setting.length)
  found = trainer.predict(rows)
  return _score(task, dev, rows, found.predictions), seconds


def _score(task: Task, dev: list[Example], rows: Rows, logits: np.ndarray) -> float:
  if task.kind == "regression":
    predictions, targets = logits[:, 0].tolist(), [example.label for example in dev]
  elif task.kind == "tagging":
    predictions, targets = [], [example.tags for example in dev]
    for i, example in enumerate(dev):
      labels = np.asarray(rows[i]["labels"])
      tags = [task.labels[j] for j in logits[i, : len(labels)].argmax(-1)[labels != IGNORED]]
      predictions.append((*tags, *["O"] * (len(example.words) - len(tags))))  # words behind the cut
  else:
    predictions, targets = logits.argmax(-1).tolist(), [task.labels.index(example.label) for example in dev]
  return scores.score(task.scores, predictions, targets)[task.main_score]
