"""Examples as token sequences, with what a head needs beside them."""

from collections.abc import Sequence

from data.tasks import sequences, windows
from data.tasks.examples import Example
from data.tasks.flat import Features
from data.tasks.table import Task
from data.tokenizers import Tokenizer

_MAKERS = {
  "classification": sequences.texts,
  "regression": sequences.texts,
  "choice": sequences.choices,
  "tagging": sequences.tags,
}

_CUT = {
  "classification": "texts lose tokens, for a row has {length}",
  "regression": "texts lose tokens, for a row has {length}",
  "choice": "options lose tokens of their own or of the context, for a row has {length}",
  "tagging": "words lose pieces, for a row has {length}",
  "span": "questions lose tokens, for max_query_length={query}",
}


def said_of_cuts(features: Features, length: int, max_query_length: int = 64) -> str:
  """What was cut off the examples, in words; "" if nothing was. Arguments as `build` had them."""
  if not features.truncated:
    return ""
  of = {"span": features.num_examples, "tagging": None}.get(features.kind, features.num_sequences)
  count = f"{features.truncated:,}" + (f" of {of:,}" if of else "")
  return f"{count} {_CUT[features.kind].format(length=length, query=max_query_length)}"


def build(
  task: Task,
  examples: Sequence[Example],
  tokenizer: Tokenizer,
  length: int,
  *,
  cls_last: bool | None = None,
  doc_stride: int = 128,
  max_query_length: int = 64,
) -> Features:
  """Lays out examples as sequences of at most `length` tokens.

  Args:
    task: what they are of; its labels are needed (`readers.with_labels`).
    examples: of the task's kind.
    tokenizer: makes the pieces.
    length: tokens of a sequence, special ones included.
    cls_last: rows end with the cls piece; None = as the tokenizer's family.
    doc_stride: span: tokens from one window's beginning to the next's.
    max_query_length: span: tokens of a question; the first are kept.

  Raises:
    ValueError: a text that no token stands for, a label that the task does not have, or a length too short; names the
      example's file and line.
  """
  if not examples:
    raise ValueError(f"no examples of task {task.name}")
  if task.is_labelled_by_name and not task.labels:
    raise ValueError(f"task {task.name} has no labels; give them, or take the training file's")
  last = tokenizer.cls_last if cls_last is None else cls_last
  if task.kind == "span":
    return windows.build(examples, tokenizer, length, last, doc_stride, max_query_length)
  return _MAKERS[task.kind](task, examples, tokenizer, length, last)
