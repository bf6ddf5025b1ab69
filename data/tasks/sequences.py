"""Sequences of texts and pairs, of options with their context, and of tagged words."""

import itertools
from collections.abc import Sequence

import numpy as np

from data.pairs import truncated
from data.tasks.examples import ChoiceExample, TagExample, TextExample
from data.tasks.flat import IGNORED, Features, flat
from data.tasks.records import check_label, label_of
from data.tasks.table import Task
from data.tokenizers import Tokenizer

_AT_ONCE = 8192  # texts


def texts(task: Task, examples: Sequence[TextExample], tokenizer: Tokenizer, length: int, last: bool) -> Features:
  """One or two texts a sequence. Too long ones lose their end; of a pair the longer loses first (the originals'
  _truncate_seq_pair)."""
  number = max(len(e.texts) for e in examples)
  if length < number + 2:
    raise ValueError(f"length={length} is too short for {number} texts")
  columns = [encode(tokenizer, [e.texts[i] if i < len(e.texts) else "" for e in examples]) for i in range(number)]
  layouts, cut = [], 0
  for e, *ids in zip(examples, *columns, strict=True):
    ids = ids[: len(e.texts)]
    if not all(map(len, ids)) and not (task.empty and any(map(len, ids))):
      column = task.texts[0] if task.joined else task.texts[[len(x) > 0 for x in ids].index(False)]
      raise ValueError(f"{e.where}: {column!r} is a text that no token stands for; remove the line, or mend the text")
    sizes = [len(x) for x in ids]
    if sum(sizes) + len(sizes) + 1 > length:
      cut += 1
      sizes = _fit(sizes, length - len(sizes) - 1)
    layouts.append((ids[0][: sizes[0]], ids[1][: sizes[1]] if len(ids) > 1 else None))
  return flat(task.kind, layouts, [1] * len(examples), tokenizer, last, labels=_labels(task, examples), truncated=cut)


def choices(task: Task, examples: Sequence[ChoiceExample], tokenizer: Tokenizer, length: int, last: bool) -> Features:
  """A sequence for each option: the context, then the option, each with a context of its own.

  XLNet's run_race.py appends to one list of the context's pieces, so that each option there is read behind the options
  before it. It means what is done here, and in ALBERT's race_utils.py.
  """
  if length < 5:
    raise ValueError(f"length={length} is too short for a context and an option")
  contexts = encode(tokenizer, [e.context for e in examples])
  options = iter(encode(tokenizer, [option for e in examples for option in e.options]))
  layouts, cut = [], 0
  for e, context in zip(examples, contexts, strict=True):
    for i in range(len(e.options)):
      option = next(options)
      if not len(context) or not len(option):
        what = f"option {i + 1}" if len(context) else "the context"
        raise ValueError(f"{e.where}: {what} is a text that no token stands for; remove the line, or mend the text")
      sizes = (len(context), len(option))
      if task.option_length:
        option = option[-min(task.option_length, length - 4) :]
        context_ids = context[: length - 3 - len(option)]
      else:
        a, b = _fit(sizes, length - 3)
        context_ids, option = context[:a], option[:b]
      cut += sizes != (len(context_ids), len(option))
      layouts.append((context_ids, option))
  labels = np.array([-1 if e.label is None else e.label for e in examples], np.int32)
  return flat(task.kind, layouts, [len(e.options) for e in examples], tokenizer, last, labels=labels, truncated=cut)


def tags(task: Task, examples: Sequence[TagExample], tokenizer: Tokenizer, length: int, last: bool) -> Features:
  """The words of a sentence, each cut into pieces by itself; the first piece is tagged (BERT section 5.3).

  A sentence that is too long becomes several sequences, cut between words, so that every word is tagged once. A word
  that the tokenizer sees nothing in is unknown, so that it can be tagged.
  """
  room = length - 2
  if room < 1:
    raise ValueError(f"length={length} is too short for a word")
  words = list(dict.fromkeys(word for e in examples for word in e.words))
  pieces = dict(zip(words, encode(tokenizer, words), strict=True))
  numbers = {tag: i for i, tag in enumerate(task.labels)}
  unknown, nothing = np.array([tokenizer.unk_id], np.int32), np.array([-1], np.int32)
  layouts, counts, firsts, targets, cut = [], [], [], [], 0
  for e in examples:
    ids = [pieces[word] if len(pieces[word]) else unknown for word in e.words]
    cut += sum(len(x) > room for x in ids)
    ids = [x[:room] for x in ids]
    for tag in e.tags or ():
      check_label(task, "tag", tag, e.where)
    tag_ids = np.array([IGNORED] * len(ids) if e.tags is None else [numbers[tag] for tag in e.tags], np.int32)
    bounds = _parts([len(x) for x in ids], room)
    counts.append(len(bounds) - 1)
    for start, stop in itertools.pairwise(bounds):
      some = ids[start:stop]
      at = np.concatenate([[0], np.cumsum([len(x) for x in some])]).astype(np.int64)
      word = np.full(at[-1], -1, np.int32)
      word[at[:-1]] = np.arange(start, stop)
      target = np.full(at[-1], IGNORED, np.int32)
      target[at[:-1]] = tag_ids[start:stop]
      layouts.append((np.concatenate(some), None))
      before, behind = (0, 2) if last else (1, 1)
      firsts += [*[nothing] * before, word, *[nothing] * behind]
      targets += [*[nothing + 1 + IGNORED] * before, target, *[nothing + 1 + IGNORED] * behind]
  return flat(
    task.kind,
    layouts,
    counts,
    tokenizer,
    last,
    targets=np.concatenate(targets),
    words=np.concatenate(firsts),
    truncated=cut,
  )


def encode(tokenizer: Tokenizer, some: Sequence[str]) -> list[np.ndarray]:
  """The ids of each text."""
  return [ids for i in range(0, len(some), _AT_ONCE) for ids in tokenizer.encode_batch(some[i : i + _AT_ONCE])]


def _fit(sizes: Sequence[int], room: int) -> list[int]:
  """What is left of one or two texts when the longer loses tokens until all fit."""
  return truncated(np.array([[*sizes, 0][:2]]), room)[0].tolist()


def _parts(sizes: Sequence[int], room: int) -> list[int]:
  """Where to cut a sentence of words of so many pieces, so that each part has at most `room`."""
  bounds, total = [0], 0
  for i, size in enumerate(sizes):
    if total + size > room:
      bounds.append(i)
      total = 0
    total += size
  return [*bounds, len(sizes)]


def _labels(task: Task, examples: Sequence[TextExample]) -> np.ndarray:
  for e in examples:
    if e.label is not None:
      label_of(task, e.label, e.where)
  if task.kind == "regression":
    return np.array([np.nan if e.label is None else e.label for e in examples], np.float32)
  numbers = {label: i for i, label in enumerate(task.labels)} | {None: -1}
  return np.array([numbers[e.label] for e in examples], np.int32)
