"""Answers come back character for character through windows, and each token's best window is BERT's."""

import random

import numpy as np
import pytest

from data.tasks import answers
from data.tasks.examples import SpanExample
from data.tasks.features import build, said_of_cuts
from data.tasks.table import TASKS
from data.tasks.windows import max_context, token_span, window_bounds
from tests.data.tasks import small

SQUAD = TASKS["squad2"]


@pytest.mark.parametrize(
  ("tokens", "room", "stride", "expected"),
  [
    (10, 10, 4, [(0, 10)]),
    (11, 10, 4, [(0, 10), (4, 11)]),
    (20, 10, 4, [(0, 10), (4, 14), (8, 18), (12, 20)]),
    (20, 6, 128, [(0, 6), (6, 12), (12, 18), (18, 20)]),  # no gaps where the stride is longer than a window
  ],
)
def test_windows_begin_a_stride_apart_until_one_ends_with_the_context(tokens, room, stride, expected):
  assert window_bounds(tokens, room, stride) == expected


def original_max_context(bounds, position):
  """_check_is_max_context of BERT's run_squad.py: the window for which it is true."""
  best_score, best = None, None
  for number, (start, stop) in enumerate(bounds):
    if start <= position < stop:
      score = min(position - start, stop - 1 - position) + 0.01 * (stop - start)
      if best_score is None or score > best_score:
        best_score, best = score, number
  return best


def test_a_token_belongs_to_the_window_that_shows_most_around_it():
  for tokens, room, stride in ((47, 16, 5), (300, 61, 13), (33, 16, 16), (9, 20, 3)):
    bounds = window_bounds(tokens, room, stride)
    expected = [original_max_context(bounds, position) for position in range(tokens)]
    np.testing.assert_array_equal(max_context(bounds, tokens), expected)
  # A window that is 95 tokens longer is worth less than one token more of context: 24 + 2.00 < 25 + 1.05.
  assert max_context([(0, 200), (150, 255)], 255)[174:176].tolist() == [0, 1]


@pytest.mark.parametrize("family", small.TOKENIZERS)
def test_every_answer_of_whole_pieces_comes_back_as_it_was_written(family):
  tokenizer, examples = small.TOKENIZERS[family](), small.questions(60)
  features = build(SQUAD, examples, tokenizer, 32, doc_stride=7)
  assert features.num_sequences > 3 * len(examples)
  given_back = 0
  for number, example in enumerate(examples):
    found = False
    for s in range(features.first[number], features.first[number + 1]):
      first, last = features.answers[s]
      spans = features.spans[features.slice(s)]
      if first == features.cls[s]:
        assert last == first
        continue
      assert example.context[spans[first, 0] : spans[last, 1]] == example.answers[0][0]
      assert features.allowed[features.slice(s)][[first, last]].all()
      found = True
    assert found != example.impossible
    given_back += found
  assert answers.report(examples, features) == {answers.EXACT: given_back}


@pytest.mark.parametrize("family", small.TOKENIZERS)
def test_each_token_of_the_context_is_best_in_one_window(family):
  tokenizer, examples = small.TOKENIZERS[family](), small.questions(10)
  features = build(SQUAD, examples, tokenizer, 32, doc_stride=7)
  for number, example in enumerate(examples):
    best = []
    for s in range(features.first[number], features.first[number + 1]):
      own = features.slice(s)
      best += features.spans[own][features.max_context[own]].tolist()
      assert not (features.max_context[own] & ~features.allowed[own]).any()
    assert sorted(best) == tokenizer.encode_with_offsets(example.context)[1].tolist()


def test_rows_are_those_of_the_family():
  example = SpanExample("1", "who?", "the cat", (("cat", 4),), False)
  bert, xlnet = small.word_pieces(), small.sentence_pieces()
  features = build(SQUAD, [example], bert, 16)
  assert [bert.pieces[i] for i in features.tokens] == ["[CLS]", "who", "[UNK]", "[SEP]", "the", "cat", "[SEP]"]
  assert features.segment_ids.tolist() == [0, 0, 0, 0, 1, 1, 1]
  assert features.answers.tolist() == [[5, 5]]
  assert features.allowed.tolist() == [True, False, False, False, True, True, False]
  features = build(SQUAD, [example], xlnet, 16)
  assert [xlnet.pieces[i] for i in features.tokens] == ["▁the", "▁cat", "<sep>", "▁who", "<unk>", "<sep>", "<cls>"]
  assert features.segment_ids.tolist() == [0, 0, 0, 1, 1, 1, 2]
  assert features.answers.tolist() == [[1, 1]]
  assert features.allowed.tolist() == [True, True, False, False, False, False, True]


def test_an_answer_that_is_not_known_is_no_target_and_one_outside_the_window_is_the_cls_piece():
  tokenizer = small.word_pieces()
  context = "the cat sat on the mat"
  examples = [
    SpanExample("test", "who", context),
    SpanExample("none", "who", context, (), True),
    SpanExample("some", "who", context, (("mat", 19),), False),
  ]
  features = build(SQUAD, examples, tokenizer, 8, doc_stride=2)  # four tokens of context each
  assert features.first.tolist() == [0, 2, 4, 6]
  assert features.answers.tolist() == [[-1, -1]] * 2 + [[0, 0]] * 3 + [[6, 6]]


def test_a_long_question_loses_its_end_and_is_counted():
  features = build(SQUAD, [SpanExample("1", "the cat sat", "a dog")], small.word_pieces(), 16, max_query_length=2)
  assert features.lengths.tolist() == [2 + 2 + 3]
  assert features.truncated == 1
  assert said_of_cuts(features, 16, 2) == "1 of 1 questions lose tokens, for max_query_length=2"


def test_answers_that_pieces_cannot_express_are_counted_by_reason():
  context = "the cats ran on a red mat"
  spoilt = [("at", 5), ("ca", 4), ("cat", 4), ("cats ", 4), ("on a red mat", 13), (" ", 3), ("ran", 9)]
  examples = [SpanExample("1", "who", context, tuple(spoilt), False)]
  features = build(SQUAD, examples, small.word_pieces(), 7, doc_stride=1)  # three tokens of context each
  assert answers.report(examples, features) == {
    answers.BEGINS: 1,
    answers.ENDS: 1,  # "ca"; "cat" is the first piece of "cats"
    answers.EXACT: 2,
    answers.BLANK: 1,
    answers.NO_WINDOW: 1,
    answers.NO_TOKEN: 1,
  }


def test_the_fewest_tokens_hold_an_answer():
  spans = np.array([[-1, -1], [0, 3], [4, 4], [4, 8], [9, 9], [9, 12], [-1, -1]])
  assert token_span(spans, "x" * 4, 4) == (3, 3)
  assert token_span(spans, "x" * 5, 2) == (1, 3)
  assert token_span(spans, "x", 12) is None


@pytest.mark.parametrize(
  ("example", "length", "message"),
  [
    (SpanExample("7", " ", "the cat", where="f.json:3"), 16, "f.json:3: the question of 7 is a text that no token"),
    (SpanExample("7", "who", "\u200b", where="f.json:3"), 16, "f.json:3: the context of 7 is a text that no token"),
    (
      SpanExample("7", "who", "the cat", where="f.json:3"),
      4,
      r"f.json:3: length=4 leaves no token of the context beside the question of 7, of \d+ \(and 3\); use a .* length$",
    ),
    (
      SpanExample("7", "who " * 9, "the cat", where="f.json:3"),
      9,
      "f.json:3: length=9 leaves no token .* use a greater length, or max_query_length=3$",
    ),
  ],
)
def test_what_cannot_be_laid_out_is_named(example, length, message):
  with pytest.raises(ValueError, match=message):
    build(SQUAD, [example], small.word_pieces(), length)


def test_answers_survive_any_window():
  """Random lengths and strides: an answer that fits into a window's room less the stride is always found."""
  rng, tokenizer = random.Random(3), small.word_pieces()
  for _ in range(20):
    length, stride = rng.randint(24, 60), rng.randint(1, 8)
    examples = small.questions(5, seed=rng.randrange(1000))
    features = build(SQUAD, examples, tokenizer, length, doc_stride=stride)
    assert set(answers.report(examples, features)) == {answers.EXACT}, (length, stride)
