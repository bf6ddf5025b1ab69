"""Several models' predictions as one.

Labels by mean probability, or by vote where there are only labels; numbers by mean; answers by the mean probability of
each text, one that a model has not among its n best counting 0 there. (ALBERT section 4.9 averages the scores of a span
over the models that have it; a span of a single model then needs no agreement.)
"""

import collections
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike


def mean(arrays: Sequence[ArrayLike]) -> np.ndarray:
  """float64: the mean of the models' probabilities [examples, classes], or of their numbers [examples]."""
  arrays = [np.asarray(x, np.float64) for x in arrays]
  if len({x.shape for x in arrays}) != 1:
    raise ValueError(f"predictions of one shape are needed, not {', '.join(str(x.shape) for x in arrays)}")
  return np.mean(arrays, axis=0)


def vote(labels: Sequence[Sequence[str]]) -> list[str]:
  """The most frequent label of each example over models [models][examples]; of equals that of the earliest model."""
  return [collections.Counter(some).most_common(1)[0][0] for some in zip(*labels, strict=True)]


def mean_nbest(
  models: Sequence[Mapping[str, Sequence[tuple[str, float]]]], n_best: int = 20
) -> dict[str, list[tuple[str, float]]]:
  """Returns (text, mean probability) by question, the likeliest first; of equals the earliest model's.

  Args:
    models: (text, probability) of the n best by question, as `scores.files.read_nbest` reads them.
    n_best: entries at most.

  Raises:
    ValueError: the models answer different questions.
  """
  _same_questions(models)
  result = {}
  for key in models[0]:
    total = {}
    for model in models:
      for text, probability in model[key]:
        total[text] = total.get(text, 0.0) + probability / len(models)
    result[key] = sorted(total.items(), key=lambda x: -x[1])[:n_best]
  return result


def mean_odds(models: Sequence[Mapping[str, float]]) -> dict[str, float]:
  """The mean null odds by question."""
  _same_questions(models)
  return {key: float(np.mean([model[key] for model in models])) for key in models[0]}


def _same_questions(models: Sequence[Mapping]) -> None:
  for number, model in enumerate(models[1:], 2):
    if other := model.keys() ^ models[0].keys():
      raise ValueError(f"model {number} and model 1 answer different questions: {min(other)} is only in one of them")
