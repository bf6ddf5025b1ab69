"""SQuAD's scores, against questions worked out by hand and slow definitions."""

import math
import random
import re
import string

import numpy as np
import pytest

from scores import squad


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ("The Normans", "normans"),
    ("A  man,\tan apple; the END.", "man apple end"),
    ("the", ""),
    ("The.", ""),
    ("...", ""),
    ("", ""),
    ("theatre another anthem", "theatre another anthem"),
    ("the-end", "theend"),  # punctuation goes first, so no article is left
    ("U.S.A.", "usa"),
    ("a.m.", "am"),
    ("vitamin a", "vitamin"),
    ("it's", "its"),
    ("the_end", "theend"),
    ("$5.99", "599"),
    ("“the” king’s – a", "“ ” king’s –"),  # only ASCII's punctuation goes; articles are words of Unicode
    ("ΑΘΉΝΑ", "αθήνα"),
    ("naïve Ünal", "naïve ünal"),  # accents stay
    ("thé a\u00a0b\u3000c", "thé b c"),  # any white space counts; thé is no article
    ("Straße İ", "straße i̇"),  # lower, not casefold
  ],
)
def test_normalize(text, expected):
  assert squad.normalize(text) == expected


def _slow_normalize(text):
  kept = [c for c in text.lower() if c not in string.punctuation]
  words, out = re.split(r"(\W+)", "".join(kept)), []
  for word in words:
    out.append(" " if word in ("a", "an", "the") else word)
  return " ".join("".join(out).split())


def _slow_overlap(prediction, answer, empty_agrees):
  p, left = _slow_normalize(prediction).split(), _slow_normalize(answer).split()
  if empty_agrees and (not p or not left):
    return float(p == left)
  n, same = len(left), 0
  for word in p:
    if word in left:
      left.remove(word)
      same += 1
  return 2 * same / (len(p) + n) if same else 0.0


def test_texts_equal_slow_definitions():
  rng = random.Random(0)
  pieces = ["a", "an", "the", "The", "cat", "Cat's", "’", "“", "-", ".", " ", "  ", "\u00a0", "é", "x", "_", "5", "\n"]
  for _ in range(3000):
    p, t = ("".join(rng.choices(pieces, k=rng.randint(0, 8))) for _ in range(2))
    assert squad.normalize(p) == _slow_normalize(p)
    assert squad.exact(p, t) == (_slow_normalize(p) == _slow_normalize(t))
    for empty_agrees in (False, True):
      assert squad.overlap(p, t, empty_agrees) == pytest.approx(_slow_overlap(p, t, empty_agrees))


def test_overlap_by_hand():
  # Words: "cat cat sat" and "cat sat sat down": cat and sat once each. P = 2/3, R = 2/4.
  assert squad.overlap("the cat, cat sat", "A cat sat sat down", True) == pytest.approx(4 / 7)
  # Nothing left of either: agreement in version 2.0, nothing in common in version 1.1.
  assert squad.overlap("The", "", True) == 1
  assert squad.overlap("The", "", False) == 0
  assert squad.overlap("", "cat", True) == 0


ANSWERS = {"q1": ["Denver Broncos", "The Denver Broncos!"], "q2": ["10th and 11th centuries", "10th"], "q3": ["Rollo"]}


def test_squad1_by_hand():
  # q1: equal when normalized. q2: "the 11th centuries" has 2 of 4 words of the first answer: P = 1, R = 1/2, F1 = 2/3.
  # q3 has no prediction, and counts as 0.
  found = squad.squad1({"q1": "denver broncos", "q2": "the 11th centuries", "other": "x"}, ANSWERS)
  assert found == pytest.approx({"exact_match": 100 / 3, "f1": 100 * (1 + 2 / 3) / 3})


def test_exact_match_and_f1_may_take_different_answers():
  found = squad.squad1({"q": "in 1066 or so"}, {"q": ["1066", "in the year 1066 or so"]})
  assert found == pytest.approx({"exact_match": 0, "f1": 100 * 2 * (4 / 4) * (4 / 5) / (1 + 4 / 5)})


def test_squad1_needs_answers():
  with pytest.raises(ValueError, match="question q has no answer"):
    squad.squad1({"q": "x"}, {"q": []})
  with pytest.raises(ValueError, match="no questions"):
    squad.squad1({}, {})


# Two questions with an answer, three without.
TARGETS = {"a": ["Rollo"], "b": ["red fox", "fox"], "c": [], "d": [], "e": []}
TEXTS = {"a": "Rollo", "b": "a quick red fox", "c": "", "d": "Normandy", "e": "the"}
ODDS = {"a": -3.0, "b": 2.0, "c": 0.5, "d": 1.0, "e": 5.0}


def test_squad2_by_hand():
  # b: 2 of 3 words right, both of "red fox" found: F1 = 4/5. e: "the" is nothing when normalized.
  found = squad.squad2(TEXTS, TARGETS)
  assert found == pytest.approx(
    {
      "exact_match": 100 * 3 / 5,
      "f1": 100 * 3.8 / 5,
      "total": 5,
      "HasAns_exact": 100 * 1 / 2,
      "HasAns_f1": 100 * 1.8 / 2,
      "HasAns_total": 2,
      "NoAns_exact": 100 * 2 / 3,
      "NoAns_f1": 100 * 2 / 3,
      "NoAns_total": 3,
    }
  )


def test_the_best_thresholds_by_hand():
  # Answering nothing: 3 right. Then, by odds: a +1 → 4, c +0 → 4, d −1 → 3, b +0.8 (0 exact) → 3.8, e −1 (a text).
  found = squad.squad2(TEXTS, TARGETS, ODDS)
  assert (found["best_exact"], found["best_exact_thresh"]) == pytest.approx((80, -3))
  assert (found["best_f1"], found["best_f1_thresh"]) == pytest.approx((80, -3))
  with_better_b = squad.squad2(TEXTS | {"d": ""}, TARGETS, ODDS)  # d costs nothing now: 4.8 with b
  assert (with_better_b["best_f1"], with_better_b["best_f1_thresh"]) == pytest.approx((96, 2))
  assert (with_better_b["best_exact"], with_better_b["best_exact_thresh"]) == pytest.approx((80, -3))


def test_a_threshold_overrules_texts():
  # Above 0.75 nothing is answered: b becomes wrong, d and e right. Equal odds still answer.
  found = squad.squad2(TEXTS, TARGETS, ODDS, threshold=0.75)
  assert (found["exact_match"], found["f1"]) == pytest.approx((80, 80))
  assert squad.squad2(TEXTS, TARGETS, ODDS, threshold=2.0)["HasAns_f1"] == pytest.approx(90)
  assert squad.squad2(TEXTS, TARGETS, ODDS, threshold=0.75)["best_f1"] == pytest.approx(80)


def test_applying_a_threshold():
  assert squad.apply_threshold(TEXTS, ODDS, 1.0) == {"a": "Rollo", "b": "", "c": "", "d": "Normandy", "e": ""}


def _has_answer(targets):
  return {key: bool(x) for key, x in targets.items()}


def _random_questions(rng, n, ties):
  words = ["red", "fox", "the", "a", "Rollo"]
  text = lambda: " ".join(rng.choices(words, k=rng.randint(0, 3)))
  targets = {f"q{i}": [f"{text()} cat" for _ in range(rng.randint(0, 2))] for i in range(n)}
  texts = {key: text() for key in targets}
  odds = {key: float(rng.randint(-2, 2)) if ties else rng.gauss(0, 3) for key in targets}
  return texts, targets, odds


def test_the_search_equals_trying_every_threshold():
  rng = random.Random(0)
  for trial in range(300):
    texts, targets, odds = _random_questions(rng, rng.randint(1, 9), ties=trial % 2 == 0)
    _, f1 = squad.question_scores(texts, targets)
    best, at = squad.search(texts, f1, _has_answer(targets), odds, attainable=True)
    tried = [squad.squad2(texts, targets, odds, x)["f1"] for x in [*odds.values(), -99.0]]
    assert best == pytest.approx(max(tried))
    for rounded in (at, float(np.float32(at))):  # what it promises is what it gives, by a log's number, too
      assert squad.squad2(texts, targets, odds, rounded)["f1"] == pytest.approx(best)
    assert squad.best_threshold(texts, targets, odds) == at
    applied = squad.apply_threshold(texts, odds, at)
    assert squad.squad2(applied, targets)["f1"] == pytest.approx(best)


def _literal_search(texts, scores, has_answer, odds):
  """The official loop's rule, one question after another."""
  now = best = sum(not x for x in has_answer.values())
  at = 0.0
  for key in sorted(odds, key=lambda k: odds[k]):
    if key in scores:
      now += scores[key] if has_answer[key] else (-1 if texts[key] else 0)
      if now > best:
        best, at = now, odds[key]
  return 100 * best / len(scores), at


def test_the_official_search_is_followed_to_the_letter():
  rng = random.Random(1)
  for trial in range(300):
    texts, targets, odds = _random_questions(rng, rng.randint(1, 9), ties=trial % 2 == 0)
    odds["not asked"] = 0.0
    _, f1 = squad.question_scores(texts, targets)
    found = squad.search(texts, f1, _has_answer(targets), odds)
    assert found == pytest.approx(_literal_search(texts, f1, _has_answer(targets), odds))


def test_answering_nothing_may_be_best():
  texts, targets, odds = {"a": "x", "b": "y"}, {"a": [], "b": ["z"]}, {"a": -8.0, "b": -9.0}
  assert squad.squad2(texts, targets, odds)["best_f1_thresh"] == 0.0  # the official 0 would answer both
  at = squad.best_threshold(texts, targets, odds)
  assert squad.apply_threshold(texts, odds, at) == {"a": "", "b": ""}
  assert math.isfinite(at)


@pytest.mark.parametrize("odds", [[-0.5, 0.5, math.inf], [1.0, math.nextafter(1.0, 2.0), 2.0], [-1e17, 0, 1e17]])
def test_a_threshold_lies_between_two_odds(odds):
  targets = {key: ["x"] for key in "abc"}
  for count in range(4):
    answered = dict.fromkeys("abc"[:count], "x")
    texts = dict.fromkeys("abc", "") | answered
    right = targets | {key: [] for key in "abc"[count:]}
    wrong = texts | dict.fromkeys("abc"[count:], "y")
    at = squad.best_threshold(wrong, right, dict(zip("abc", odds, strict=True)))
    assert squad.apply_threshold(wrong, dict(zip("abc", odds, strict=True)), at) == texts, (count, at)


def test_among_equal_odds_no_threshold_can_stop():
  texts, targets, odds = {"a": "x", "b": "y"}, {"a": ["x"], "b": []}, {"a": 1.0, "b": 1.0}
  found = squad.squad2(texts, targets, odds)
  assert found["best_exact"] == 100  # officially, though neither threshold gives more than half
  assert squad.search(texts, {"a": 1, "b": 0}, _has_answer(targets), odds, attainable=True)[0] == 50


def test_gold_answers_of_nothing_do_not_count():
  assert squad.squad2({"q": ""}, {"q": ["the", "cat"]})["exact_match"] == 0
  found = squad.squad2({"q": ""}, {"q": ["The."]})  # then "" is the answer, though the question is of those with one
  assert found["exact_match"] == found["HasAns_exact"] == 100


@pytest.mark.parametrize(
  ("texts", "odds", "threshold", "said"),
  [
    ({"a": "x"}, None, None, "no prediction for 1 of 2 questions, the first is b"),
    ({"a": "x", "b": "y"}, {"a": 1.0}, None, "no null odds for 1 of 2"),
    ({"a": "x", "b": "y"}, None, 0.0, "a no-answer threshold needs null odds"),
    ({"a": "x", "b": "y"}, {"a": 1.0, "b": float("nan")}, None, "null odds of question b are not a number"),
  ],
)
def test_what_squad2_cannot_score(texts, odds, threshold, said):
  with pytest.raises(ValueError, match=said):
    squad.squad2(texts, {"a": ["x"], "b": []}, odds, threshold)


def test_scores_are_plain_numbers():
  found = squad.squad2(TEXTS, TARGETS, {key: np.float32(x) for key, x in ODDS.items()}, threshold=0.5)
  assert {type(x) for x in found.values()} <= {int, float}
