"""Scores as the official scripts give them, prediction files, and what lies between a head's numbers and a prediction.

Nothing here knows models or data; numpy alone is needed. SQuAD's scores are percent, as its scripts print them; all
others are fractions, as scikit-learn, SciPy and seqeval have them.
"""

from collections.abc import Callable, Iterable, Sequence

from scores import entities, labels, squad

# name → function(predictions, targets) → {metric: value}
SCORES: dict[str, Callable[..., dict[str, float]]] = {
  "accuracy": labels.accuracy,
  "f1": labels.f1,
  "matthews": labels.matthews,
  "pearson": labels.pearson,
  "spearman": labels.spearman,
  "entity_f1": entities.entity_f1,
  "squad1": squad.squad1,
  "squad2": squad.squad2,
}


def score(names: Iterable[str], predictions, targets, groups: Sequence[str] | None = None) -> dict[str, float]:
  """All metrics of the scores so named.

  Args:
    names: of SCORES.
    predictions: as these take them: numbers of labels, numbers, tags of sentences, or texts by question.
    targets: the same, or gold answers by question.
    groups: of each example, e.g. RACE's "middle" and "high": METRIC_GROUP follows METRIC, over the group alone.

  Raises:
    ValueError: what a score refuses, or groups that are not as many as the examples.
  """
  names = list(names)
  result = _scored(names, predictions, targets)
  if groups is None:
    return result
  if len(groups) != len(targets):
    raise ValueError(f"{len(groups)} groups for {len(targets)} examples")
  for group in dict.fromkeys(groups):
    own = [at for at, name in enumerate(groups) if name == group]
    of_group = _scored(names, [predictions[at] for at in own], [targets[at] for at in own])
    result |= {f"{metric}_{group}": value for metric, value in of_group.items()}
  return result


def _scored(names, predictions, targets) -> dict[str, float]:
  return {metric: value for name in names for metric, value in SCORES[name](predictions, targets).items()}
