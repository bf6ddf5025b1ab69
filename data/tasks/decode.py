"""From what a head says of batches to predictions, and from these to scores. Numpy alone, on the host.

An output is what `objectives.tasks` reads off a batch: "sequences" and "sequence_ids" as `packing` made them, and, by
the head's kind,

    classification, regression, choice   logits [rows, slots, outputs]
    tagging                              tags [rows, length], the likeliest
    span                                 logits [rows, length, 2]
    conditional_span                     the fields of models.span.Beams, by slot
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

import scores
from data.tasks import predictions
from data.tasks.examples import Example
from data.tasks.flat import Features
from data.tasks.table import Task
from scores import spans, squad
from scores.files import Prediction
from scores.spans import Answer

Output = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class AnswerConfig:
  """What answers are chosen by.

  Attributes:
    n_best: answers that are kept of a question.
    max_answer_length: longest answer, in tokens.
  """

  n_best: int = 20
  max_answer_length: int = 30

  def __post_init__(self):
    for name in ("n_best", "max_answer_length"):
      if getattr(self, name) < 1:
        raise ValueError(f"{name}={getattr(self, name)} must be at least 1")


def decode(
  task: Task,
  examples: Sequence[Example],
  features: Features,
  outputs: Iterable[Output],
  answers: AnswerConfig = AnswerConfig(),
) -> list[Prediction] | list[Answer]:
  """What is predicted for each example, in order.

  Args:
    task: with its labels.
    examples, features: of the split.
    outputs: of batches that hold every sequence once.
    answers: span: what answers are chosen by.

  Returns:
    A label's name, a number, an option's number or a sentence's tags as Prediction; of a span, the Answer.

  Raises:
    ValueError: an output is missing.
  """
  outputs = list(outputs)
  if task.kind == "span":
    of = _of_beams if "start_log_probability" in outputs[0] else _of_logits
    return of(task, examples, features, outputs, answers)
  if task.kind == "tagging":
    found = _gather(outputs, predictions.of_tokens, "tags")
    words = predictions.of_examples(features, found)
    return [Prediction(tuple(task.labels[tag] for tag in tags)) for tags in words]
  logits = predictions.of_examples(features, _gather(outputs, predictions.of_slots, "logits"))
  if task.kind == "regression":
    return [Prediction(float(x[0])) for x in logits]
  result = []
  for x in logits:
    x = np.asarray(x.reshape(-1), np.float64)
    p = np.exp(x - x.max())
    best = int(x.argmax())
    p = (p / p.sum()).tolist()
    if task.kind == "choice":
      result.append(Prediction(best, p))
    else:
      result.append(Prediction(task.labels[best], dict(zip(task.labels, p, strict=True))))
  return result


def score(task: Task, examples: Sequence[Example], found: Sequence[Prediction] | Sequence[Answer]) -> dict[str, float]:
  """The task's scores of the predictions, by their official names (see `scores`).

  Where questions may have no answer, the threshold that gives the best F1 on these very questions decides, and is
  among the numbers as "threshold".

  Raises:
    ValueError: an example without a label, or what a score refuses.
  """
  if task.kind == "span":
    targets = {e.id: [text for text, _ in e.answers] for e in examples}
    texts = {e.id: answer.text for e, answer in zip(examples, found, strict=True)}
    if not task.impossible:
      return scores.score(task.scores, texts, targets)
    odds = {e.id: answer.null_odds for e, answer in zip(examples, found, strict=True)}
    threshold = squad.best_threshold(texts, targets, odds)
    return squad.squad2(texts, targets, odds, threshold) | {"threshold": threshold}
  targets = [e.tags if task.kind == "tagging" else e.label for e in examples]
  if missing := [e for e, target in zip(examples, targets, strict=True) if target is None]:
    raise ValueError(f"{missing[0].where}: no label to score against")
  values = [one.value for one in found]
  if task.kind == "classification":
    number = {name: i for i, name in enumerate(task.labels)}
    values, targets = [number[x] for x in values], [number[x] for x in targets]
  groups = [e.group for e in examples] if task.kind == "choice" and any(e.group for e in examples) else None
  return scores.score(task.scores, values, targets, groups)


def _gather(outputs: Sequence[Output], of, name: str) -> predictions.Found:
  """What was said under `name` of every sequence, in whatever batch it was."""
  found = {}
  for output in outputs:
    found |= of(output, output[name])
  return found


def _of_logits(task: Task, examples, features: Features, outputs, config: AnswerConfig) -> list[Answer]:
  found, result = _gather(outputs, predictions.of_tokens, "logits"), []
  for i, example in enumerate(examples):
    logits = predictions.padded(found, features, i, fill=0.0)
    null = ()
    if task.impossible:
      cls = features.cls[features.first[i] : features.first[i + 1]]
      null = logits[np.arange(len(logits)), cls].T
    windows = spans.Windows(example.context, *predictions.window_arrays(features, i))
    result.append(spans.independent(windows, logits[..., 0], logits[..., 1], *null, **dataclasses.asdict(config)))
  return result


_BEAMS = ("start", "start_log_probability", "end", "end_log_probability", "answer")


def _of_beams(task: Task, examples, features: Features, outputs, config: AnswerConfig) -> list[Answer]:
  outputs, result = [_relative(output) for output in outputs], []
  found = [_gather(outputs, predictions.of_slots, name) for name in _BEAMS]
  for i, example in enumerate(examples):
    own = range(features.first[i], features.first[i + 1])
    windows = spans.Windows(example.context, *predictions.window_arrays(features, i))
    beams = [np.stack([values[s] for s in own]) for values in found]
    answer = spans.conditional(windows, *beams, **dataclasses.asdict(config))
    result.append(answer if task.impossible else dataclasses.replace(answer, null_odds=None))
  return result


def _relative(output: Output) -> dict[str, np.ndarray]:
  """The output with positions counted from the sequence's first token."""
  first = predictions.first_tokens(output)
  start, end = output["start"] - first[:, :, None], output["end"] - first[:, :, None, None]
  return {**output, "start": start, "end": end}
