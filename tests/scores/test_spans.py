"""Answers from a span head's numbers, against questions by hand and plain loops over every candidate."""

import json
import math

import numpy as np
import pytest

from scores import spans

CONTEXT = "Rollo was the Norse leader."


def windows_of(context, rows, max_context=None):
  """Windows of tokens given as texts (searched in order), None = none of the context's, "" = padding."""
  begins, ends = [], []
  for row in rows:
    at, first, last = 0, [], []
    for token in row:
      if not token:
        first.append(-1)
        last.append(-1)
        continue
      at = context.index(token, at)
      first.append(at)
      at += len(token)
      last.append(at)
    begins.append(first)
    ends.append(last)
  begins, ends = np.array(begins), np.array(ends)
  real = np.array([[token != "" for token in row] for row in rows])
  most = np.ones(begins.shape, bool) if max_context is None else np.array(max_context, bool)
  return spans.Windows(context, begins, ends, most, real)


ROW = [None, None, None, "Rollo", "was", "the", "Norse", "leader", ".", None]  # [CLS] who [SEP] … [SEP]
ONE = windows_of(CONTEXT, [ROW])


def logits(**at):
  """[1, 10] of −9, but for the given positions (p3 = 1.5 …)."""
  row = np.full((1, len(ROW)), -9.0)
  for name, value in at.items():
    row[0, int(name[1:])] = value
  return row


def test_the_best_pieces_of_the_context():
  answer = spans.independent(ONE, logits(p3=5, p6=4), logits(p3=3, p7=2), n_best=2)
  # 5+3 Rollo, 5+2 Rollo … leader, 4+2 Norse leader; "Norse" to "Rollo" would run backwards.
  assert [(x.text, x.start_score, x.end_score) for x in answer.nbest] == [
    ("Rollo", 5, 3),
    ("Rollo was the Norse leader", 5, 2),
  ]
  assert answer.nbest[0].probability == pytest.approx(1 / (1 + math.exp(-1)))
  assert answer.null_odds is None
  assert answer.text == answer.decided(-1e9) == "Rollo"


def test_an_answer_is_written_as_in_the_context():
  context = "the «Ünal–Smith’s»  house"
  windows = windows_of(context, [["the", "Ünal", "–", "Smith’s", "house"]])
  start = end = np.array([[0.0, 9, 0, 9, 0]])
  assert spans.independent(windows, start, end).text == "Ünal"
  assert spans.independent(windows, start, end * [1, 0, 1, 1, 1]).text == "Ünal–Smith’s"
  assert spans.independent(windows, start, np.array([[0.0, 0, 0, 0, 9]])).text == "Ünal–Smith’s»  house"


def test_length_is_counted_in_tokens():
  start, end = logits(p3=5), logits(p7=5)
  assert spans.independent(ONE, start, end, max_answer_length=5).text == "Rollo was the Norse leader"
  assert spans.independent(ONE, start, end, n_best=1, max_answer_length=4).text == ""


def test_no_answer_among_the_best():
  null = {"null_start": [4.0], "null_end": [2.5]}
  answer = spans.independent(ONE, logits(p3=5, p6=4), logits(p3=3, p7=2), **null, n_best=3)
  assert [x.text for x in answer.nbest] == ["Rollo", "Rollo was the Norse leader", ""]
  assert answer.null_odds == 6.5 - 8
  assert answer.decided(-1.5) == "Rollo"  # equal to the threshold still answers
  assert answer.decided(-1.6) == ""
  # Beyond the n best it is there all the same, one entry more.
  assert [x.text for x in spans.independent(ONE, logits(p3=5), logits(p3=3), [0], [0], n_best=1).nbest] == ["Rollo", ""]


def test_no_answer_may_be_first():
  answer = spans.independent(ONE, logits(p3=5), logits(p3=3), [5], [4], n_best=1)
  assert [x.text for x in answer.nbest] == [""]  # as in the original, n_best leaves no room for another text
  answer = spans.independent(ONE, logits(p3=5), logits(p3=3), [5], [4], n_best=2)
  assert [x.text for x in answer.nbest] == ["", "Rollo"]
  assert (answer.null_odds, answer.text, answer.decided(0), answer.decided(1)) == (1, "Rollo", "", "Rollo")


@pytest.mark.parametrize("null", [{}, {"null_start": [1.0], "null_end": [2.0]}])
def test_a_question_without_any_valid_text(null):
  # Starts only in the question, ends only before them: the original fails here (bert#211), or answers "empty".
  answer = spans.independent(ONE, logits(p1=5), logits(p0=5), **null, n_best=1)
  assert [x.text for x in answer.nbest] == [""]
  assert answer.text == answer.decided(0) == ""
  assert answer.null_odds == (3 + 2e6 if null else None)
  json.dumps(answer.null_odds, allow_nan=False)


def test_the_window_that_speaks_least_for_no_answer_counts():
  two = windows_of(CONTEXT, [[None, "Rollo", "was"], [None, "Norse", "leader"]])
  start = end = np.array([[9.0, 1, 0], [-1.0, 2, 0]])
  answer = spans.independent(two, start, end, null_start=start[:, 0], null_end=end[:, 0])
  assert answer.null_odds == -2 - 4
  assert answer.text == "Norse"


def test_a_token_counts_where_it_has_most_context():
  rows = [["Rollo", "was", "the"], ["was", "the", "Norse"]]
  start, end = np.array([[0.0, 9, 0], [0.0, 0, 1]]), np.array([[0.0, 8, 0], [1.0, 0, 0]])
  assert spans.independent(windows_of(CONTEXT, rows), start, end).text == "was"
  there = windows_of(CONTEXT, rows, [[1, 0, 0], [1, 1, 1]])
  # A start of the first window at "was" or "the" is void now; its ends are not.
  assert spans.independent(there, start, end).nbest[0].text == "Rollo was"


def test_equal_texts_and_equal_scores():
  windows = windows_of("go go stop", [["go", "go", "stop"]])
  answer = spans.independent(windows, np.array([[3.0, 5, 5]]), np.array([[3.0, 4, 4]]))
  # go(2) 9 and stop 9 are equal: the earlier start first; "go" of 6 is there already, "go stop" 9 comes between.
  assert [x.text for x in answer.nbest] == ["go", "go stop", "stop", "go go", "go go stop"]


def test_padding_is_no_candidate():
  windows = windows_of(CONTEXT, [[None, "Rollo", ""]])
  assert spans.independent(windows, np.array([[0.0, 1, 99]]), np.array([[0.0, 1, 99]]), n_best=1).text == "Rollo"


def test_windows_of_several_lengths():
  spans_of = [np.array([[-1, -1], [0, 5]]), np.array([[-1, -1], [10, 13], [14, 19]])]
  windows = spans.stack(CONTEXT, spans_of, [np.array([False, True]), np.array([False, True, True])])
  np.testing.assert_array_equal(windows.real, [[True, True, False], [True, True, True]])
  answer = spans.independent(windows, [[0.0, 1], [0.0, 0, 3]], [[0.0, 1], [0.0, 0, 3]])
  assert [x.text for x in answer.nbest] == ["Norse", "the Norse", "Rollo", "the"]  # 6, 3, 2, 0


def test_the_conditional_form_by_hand():
  answer = spans.conditional(
    ONE,
    starts=[[3, 6, 0]],
    start_log_probability=[[-0.5, -1.0, -2.0]],
    ends=[[[3, 7], [7, 3], [0, 3]]],
    end_log_probability=[[[-0.25, -3.0], [-0.125, -0.5], [-0.1, -0.1]]],
    answer=[0.75],
  )
  # Rollo −0.75, Norse leader −1.125, Rollo … leader −3.5; backwards, and from the cls piece, are void.
  assert [(x.text, x.start_score + x.end_score) for x in answer.nbest] == [
    ("Rollo", -0.75),
    ("Norse leader", -1.125),
    ("Rollo was the Norse leader", -3.5),
  ]
  assert (answer.null_odds, answer.decided(0.5), answer.decided(0.75)) == (0.75, "", "Rollo")


def test_the_last_token_of_a_context_may_end_an_answer():
  windows = windows_of("It was Rollo", [["It", "was", "Rollo", None, None]])
  answer = spans.conditional(windows, [[2]], [[0.0]], [[[2]]], [[[0.0]]], [0.0])
  assert answer.text == "Rollo"  # XLNet's run_squad.py drops it


def test_beams_that_point_outside_the_window_are_dropped():
  answer = spans.conditional(ONE, [[-4, 99, 3]], [[0.0, 0, -1]], [[[3], [4], [99]]], np.zeros((1, 3, 1)), [0.5])
  assert [(x.text, x.start_score, x.end_score) for x in answer.nbest] == [("", -1e6, -1e6)]
  assert answer.null_odds == 0.5


def _slow(windows, candidates, n_best, longest, null=None):
  """run_squad.py's rules, one candidate after another: (window, start, end, start score, end score)."""
  kept = []
  for w, s, e, p, q in candidates:
    if windows.begins[w, s] < 0 or windows.begins[w, e] < 0 or not windows.is_max_context[w, s]:
      continue
    if e < s or e - s + 1 > longest:
      continue
    kept.append((windows.context[windows.begins[w, s] : windows.ends[w, e]].strip(), p, q))
  if null is not None:
    kept.append(("", *null))
  kept.sort(key=lambda x: x[1] + x[2], reverse=True)
  best, seen = [], set()
  for text, p, q in kept:
    if len(best) < n_best and text not in seen:
      seen.add(text)
      best.append((text, p, q))
  if null is not None and "" not in seen:
    best.append(("", *null))
  return best or [("", -1e6, -1e6)]


def _random_windows(rng):
  words = rng.choice(["ab", "cd", "é", "x."], 12)
  context = " ".join(words)
  first = np.concatenate([[0], np.cumsum([len(w) + 1 for w in words])[:-1]])
  rows, begins, ends = rng.integers(1, 4), [], []
  for _ in range(rows):
    at = rng.integers(0, 6)
    inside = np.arange(at, at + 7)
    begins.append(np.concatenate([[-1, -1], first[inside], [-1]]))
    ends.append(np.concatenate([[-1, -1], first[inside] + [len(words[i]) for i in inside], [-1]]))
  shape = (rows, 10)
  return spans.Windows(context, np.array(begins), np.array(ends), rng.random(shape) < 0.7, np.ones(shape, bool))


def _found(answer):
  return [(x.text, x.start_score, x.end_score) for x in answer.nbest]


def test_both_forms_equal_plain_loops():
  rng = np.random.default_rng(0)
  for _ in range(200):
    windows = _random_windows(rng)
    rows, length = windows.begins.shape
    start, end = rng.integers(-4, 5, (2, rows, length)) / 2  # many equal sums
    n, longest = int(rng.integers(1, 6)), int(rng.integers(1, 5))
    top = lambda row, n=n: [i for _, i in sorted((-x, i) for i, x in enumerate(row))][:n]
    every = [(w, s, e, start[w, s], end[w, e]) for w in range(rows) for s in top(start[w]) for e in top(end[w])]
    sizes = {"n_best": n, "max_answer_length": longest}
    assert _found(spans.independent(windows, start, end, **sizes)) == _slow(windows, every, n, longest)
    least = min(range(rows), key=lambda w: start[w, 0] + end[w, 0])
    null = start[least, 0], end[least, 0]
    answer = spans.independent(windows, start, end, start[:, 0], end[:, 0], **sizes)
    expected = _slow(windows, every, n, longest, null)
    assert _found(answer) == expected
    texts = [p + q for text, p, q in expected if text]
    assert answer.null_odds == sum(null) - (texts[0] if texts else -2e6)

    starts, ends = rng.integers(0, length, (rows, 3)), rng.integers(0, length, (rows, 3, 2))
    p, q = -rng.random((rows, 3)), -rng.random((rows, 3, 2))
    beams = [
      (w, starts[w, i], ends[w, i, j], p[w, i], q[w, i, j]) for w in range(rows) for i in range(3) for j in range(2)
    ]
    odds = rng.normal(size=rows)
    answer = spans.conditional(windows, starts, p, ends, q, odds, **sizes)
    assert _found(answer) == _slow(windows, beams, n, longest)
    assert answer.null_odds == odds.min()


def test_shapes_are_checked():
  with pytest.raises(ValueError, match=r"start_logits \(1, 3\) are not of the windows' shape \(1, 10\)"):
    spans.independent(ONE, np.zeros((1, 3)), np.zeros((1, 10)))
  with pytest.raises(ValueError, match="do not go together"):
    spans.conditional(ONE, np.zeros((1, 2), int), np.zeros((1, 2)), np.zeros((1, 3, 1), int), np.zeros((1, 3, 1)), [0])
  with pytest.raises(ValueError, match="beams of 2 windows"):
    spans.conditional(
      ONE, np.zeros((2, 1), int), np.zeros((2, 1)), np.zeros((2, 1, 1), int), np.zeros((2, 1, 1)), [0, 0]
    )
  with pytest.raises(ValueError, match="four arrays"):
    spans.Windows("", np.zeros((1, 3)), np.zeros((1, 2)), np.zeros((1, 3)), np.zeros((1, 3)))
