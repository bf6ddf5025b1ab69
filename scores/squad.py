"""SQuAD's scores as evaluate-v1.1.py and evaluate-v2.0.py give them, in percent; and the best no-answer threshold.

Questions are named by id. A prediction is a text, "" for no answer; a target is the texts of all gold answers, none for
a question that has no answer. `null_odds` say how much a model prefers no answer: any number that grows with that.
"""

import collections
import re
import string
from collections.abc import Mapping, Sequence

import numpy as np

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)  # ASCII's only: “ and – stay
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize(text: str) -> str:
  """Lower case, without ASCII punctuation, then without articles, single spaces: in the official order.

  The order tells: "the-end" becomes "theend" before articles are sought.
  """
  return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact(prediction: str, answer: str) -> int:
  """1 if both are the same when normalized."""
  return int(normalize(prediction) == normalize(answer))


def overlap(prediction: str, answer: str, empty_agrees: bool) -> float:
  """F1 of the two bags of words.

  Args:
    prediction: a text.
    answer: a text.
    empty_agrees: two texts without words score 1 (version 2.0), not 0 (version 1.1).
  """
  p, t = normalize(prediction).split(), normalize(answer).split()
  if empty_agrees and not (p and t):
    return float(p == t)
  same = sum((collections.Counter(p) & collections.Counter(t)).values())
  if not same:
    return 0.0
  precision, recall = same / len(p), same / len(t)
  return 2 * precision * recall / (precision + recall)


def squad1(predictions: Mapping[str, str], targets: Mapping[str, Sequence[str]]) -> dict[str, float]:
  """`exact_match` and `f1` of SQuAD 1.1: the best over a question's answers, averaged over questions.

  Args:
    predictions: a text for each id; a question without one scores 0, as officially; other ids do not count.
    targets: the gold answers of each id.

  Raises:
    ValueError: no questions, or one without a gold answer.
  """
  if not targets:
    raise ValueError("there is nothing to score: no questions")
  em, f1 = [], []
  for key, answers in targets.items():
    if not answers:
      raise ValueError(f"question {key} has no answer, which SQuAD 1.1 does not know; score it as squad2")
    if key in predictions:
      em.append(max(exact(predictions[key], answer) for answer in answers))
      f1.append(max(overlap(predictions[key], answer, False) for answer in answers))
  return {"exact_match": 100 * sum(em) / len(targets), "f1": 100 * sum(f1) / len(targets)}


def squad2(
  predictions: Mapping[str, str],
  targets: Mapping[str, Sequence[str]],
  null_odds: Mapping[str, float] | None = None,
  threshold: float | None = None,
) -> dict[str, float]:
  """SQuAD 2.0's scores, under the official names (`exact` is called `exact_match` everywhere here).

  Args:
    predictions: a text for each id, "" for no answer; other ids do not count. For the search of a threshold these
      should be the best texts, whatever the odds, as XLNet writes them.
    targets: the gold answers of each id, none if the question has no answer.
    null_odds: of each id; needed for the `best_` scores and a threshold.
    threshold: odds above it make a prediction "" (the official --na-prob-thresh); None = predictions stay.

  Returns:
    exact_match, f1, total; the same for `HasAns_` and `NoAns_`, where there are such questions; with odds, best_exact,
    best_exact_thresh, best_f1, best_f1_thresh: the best thresholds on these very questions, see `search`.

  Raises:
    ValueError: no questions, one without a prediction or without odds, or a threshold without odds.
  """
  if not targets:
    raise ValueError("there is nothing to score: no questions")
  _all_there("prediction", predictions, targets)
  em, f1 = question_scores(predictions, targets)
  has_answer = {key: bool(answers) for key, answers in targets.items()}
  found = {}
  if null_odds is not None:
    _all_there("null odds", null_odds, targets)
    for name, scores in (("exact", em), ("f1", f1)):
      best, at = search(predictions, scores, has_answer, null_odds)
      found |= {f"best_{name}": best, f"best_{name}_thresh": at}
  if threshold is not None:
    if null_odds is None:
      raise ValueError("a no-answer threshold needs null odds")
    for scores in (em, f1):
      scores.update({key: float(not has_answer[key]) for key in scores if null_odds[key] > threshold})
  result = _means("", em, f1, list(targets))
  for prefix, wanted in (("HasAns_", True), ("NoAns_", False)):
    if some := [key for key in targets if has_answer[key] == wanted]:
      result |= _means(prefix, em, f1, some)
  return result | found


def question_scores(
  predictions: Mapping[str, str], targets: Mapping[str, Sequence[str]]
) -> tuple[dict[str, float], dict[str, float]]:
  """Exact match and F1 of each question, 0 to 1, by version 2.0's rules.

  Gold answers of which normalization leaves nothing do not count; where none is left, "" is the answer.
  """
  em, f1 = {}, {}
  for key, answers in targets.items():
    answers = [answer for answer in answers if normalize(answer)] or [""]
    em[key] = max(exact(predictions[key], answer) for answer in answers)
    f1[key] = max(overlap(predictions[key], answer, True) for answer in answers)
  return em, f1


def search(
  predictions: Mapping[str, str],
  scores: Mapping[str, float],
  has_answer: Mapping[str, bool],
  null_odds: Mapping[str, float],
  attainable: bool = False,
) -> tuple[float, float]:
  """The best mean score over all no-answer thresholds, in one pass over the odds in rising order.

  Args:
    predictions: texts by id.
    scores: of these predictions, by id, 0 to 1.
    has_answer: by id.
    null_odds: by id; ids without a score are skipped.
    attainable: False is the official script to the letter: among equal odds it may stop half way (then no threshold
      gives that score), and 0 stands for "answer nothing". True gives what predicting with the threshold will give.

  Returns:
    The score in percent, and the threshold: a question is answered if its odds are at most that. Officially these are
    the odds of the last that is answered; with `attainable` the threshold lies half way to the next one's, so that
    rounding changes no answer.
  """
  keys = sorted((key for key in null_odds if key in scores), key=null_odds.__getitem__)
  odds = np.array([null_odds[key] for key in keys], np.float64)
  if np.isnan(odds).any():
    raise ValueError(f"the null odds of question {keys[int(np.argmax(np.isnan(odds)))]} are not a number")
  # Answering nothing is right where there is no answer; then each question in turn is answered too. (Officially any
  # text is wrong there, though "The." scores like "".)
  wrong = lambda key: scores[key] - 1 if attainable else -bool(predictions[key])
  gains = [scores[key] if has_answer[key] else wrong(key) for key in keys]
  running = np.cumsum(np.array([sum(not x for x in has_answer.values()), *gains], np.float64))
  if attainable:
    running[1:-1][odds[1:] == odds[:-1]] = -np.inf
  best = int(np.argmax(running))  # the first of equals
  at = _between(odds, best) if attainable else odds[best - 1] if best else 0.0
  return float(100 * running[best] / len(scores)), float(at)


def _between(odds: np.ndarray, count: int) -> float:
  """A number with `count` of the ascending odds at or below it: half way to the next, or 1 from the outermost."""
  if count == len(odds):
    return float(odds[-1] + 1)
  if not count:
    return float(np.nextafter(odds[0] - 1, -np.inf))
  middle = odds[count - 1] / 2 + odds[count] / 2
  return float(middle if middle < odds[count] else odds[count - 1])  # neighbours, or infinite


def best_threshold(
  predictions: Mapping[str, str], targets: Mapping[str, Sequence[str]], null_odds: Mapping[str, float]
) -> float:
  """The no-answer threshold that gives these predictions the best F1: the τ found on dev, to be used on test.

  Raises:
    ValueError: no questions, or one without a prediction or odds.
  """
  if not targets:
    raise ValueError("there is nothing to search a threshold on: no questions")
  _all_there("prediction", predictions, targets)
  _all_there("null odds", null_odds, targets)
  _, f1 = question_scores(predictions, targets)
  return search(predictions, f1, {key: bool(x) for key, x in targets.items()}, null_odds, attainable=True)[1]


def apply_threshold(predictions: Mapping[str, str], null_odds: Mapping[str, float], threshold: float) -> dict[str, str]:
  """The predictions, "" where the odds are above the threshold."""
  return {key: "" if null_odds[key] > threshold else text for key, text in predictions.items()}


def _means(prefix: str, em: Mapping[str, float], f1: Mapping[str, float], keys: list[str]) -> dict[str, float]:
  total = len(keys)
  return {
    f"{prefix}exact" if prefix else "exact_match": 100 * sum(em[key] for key in keys) / total,
    f"{prefix}f1": 100 * sum(f1[key] for key in keys) / total,
    f"{prefix}total": total,
  }


def _all_there(what: str, values: Mapping[str, object], targets: Mapping[str, object]) -> None:
  if missing := [key for key in targets if key not in values]:
    raise ValueError(f"no {what} for {len(missing)} of {len(targets)} questions, the first is {missing[0]}")
