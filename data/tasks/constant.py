"""What is predicted without a look at the example: the same for all of a split, the likeliest by its own labels.

A model that scores no more has learned how often labels occur, and nothing of the texts.
"""

import collections
from collections.abc import Sequence

from data.tasks.examples import Example
from data.tasks.table import Task
from scores.files import Prediction
from scores.spans import Answer, Entry

# Kind of task → what is always predicted, in words.
SAID = {
  "classification": "the most frequent label",
  "regression": "a constant",
  "tagging": "the most frequent tag",
  "span": "no answer",
  "choice": "the option most often right",
}


def constant(task: Task, examples: Sequence[Example]) -> list[Prediction] | list[Answer]:
  """Returns predictions for a split's examples, as `decode.decode` does: what SAID says, the first of the labels among
  equally frequent ones.

  Args:
    task: with its labels.
    examples: with theirs.
  """
  if task.kind == "span":
    return [Answer((Entry("", 1.0, 0.0, 0.0),), null_odds=0.0)] * len(examples)
  if task.kind == "tagging":
    tag = _most(tag for example in examples for tag in example.tags)
    return [Prediction((tag,) * len(example.words)) for example in examples]
  value = 0.0 if task.kind == "regression" else _most(example.label for example in examples)
  return [Prediction(value)] * len(examples)


def _most(labels):
  counts = collections.Counter(labels)
  return min(counts, key=lambda label: (-counts[label], label))
