"""Texts, options and tagged words are laid out as the originals lay them out, and nothing is lost unsaid."""

import dataclasses

import numpy as np
import pytest

from data.tasks.examples import ChoiceExample, TagExample, TextExample
from data.tasks.features import build, said_of_cuts
from data.tasks.flat import IGNORED
from data.tasks.table import TASKS, custom
from tests.data.tasks import small

BERT, XLNET = small.word_pieces(), small.sentence_pieces()
PAIR = custom("classification", texts=("one", "two"), labels=("no", "yes"))
CHOICE = custom("choice")
NER = TASKS["conll2003"]


def pieces(tokenizer, features, sequence: int) -> str:
  return " ".join(tokenizer.pieces[i] for i in features.tokens[features.slice(sequence)])


def test_a_pair_is_laid_out_as_its_family_reads_it():
  examples = [TextExample("0", ("The cats sat", "a dog"), "yes"), TextExample("1", ("the mat", "red ran."), "no")]
  features = build(PAIR, examples, BERT, 32)
  assert pieces(BERT, features, 0) == "[CLS] the cat ##s sat [SEP] a dog [SEP]"
  assert pieces(BERT, features, 1) == "[CLS] the mat [SEP] red ran . [SEP]"
  assert features.segment_ids[features.slice(0)].tolist() == [0] * 6 + [1] * 3
  assert features.labels.tolist() == [1, 0]
  assert features.cls.tolist() == [0, 0]
  features = build(PAIR, examples, XLNET, 32)
  assert pieces(XLNET, features, 0) == "▁the ▁cat s ▁sat <sep> ▁a ▁dog <sep> <cls>"
  assert features.segment_ids[features.slice(0)].tolist() == [0] * 5 + [1] * 3 + [2]
  assert features.cls.tolist() == (features.lengths - 1).tolist()
  assert pieces(XLNET, build(PAIR, examples, XLNET, 32, cls_last=False), 1) == "<cls> ▁the ▁mat <sep> ▁red ▁ran . <sep>"


@pytest.mark.parametrize(
  ("first", "second", "length", "kept"),
  [
    (9, 3, 10, (4, 3)),  # the longer loses first
    (3, 9, 10, (3, 4)),
    (9, 9, 10, (4, 3)),  # of equals, the second
    (4, 3, 10, (4, 3)),
  ],
)
def test_of_a_pair_that_is_too_long_the_longer_text_loses_its_end(first, second, length, kept):
  example = TextExample("0", ("the " * first, "cat " * second), "no")
  features = build(PAIR, [example], BERT, length)
  a, b = kept
  assert pieces(BERT, features, 0).split() == ["[CLS]", *["the"] * a, "[SEP]", *["cat"] * b, "[SEP]"]
  assert features.truncated == (first + second + 3 > length)


def test_a_single_text_loses_its_end():
  task = custom("regression", texts=("one",))
  features = build(task, [TextExample("0", ("the cat sat on a mat",), 0.5), TextExample("1", ("a",))], BERT, 6)
  assert pieces(BERT, features, 0) == "[CLS] the cat sat on [SEP]"
  assert features.truncated == 1
  assert said_of_cuts(features, 6) == "1 of 2 texts lose tokens, for a row has 6"
  assert said_of_cuts(build(task, [TextExample("1", ("a",))], BERT, 6), 6) == ""
  assert features.labels.dtype == np.float32
  np.testing.assert_array_equal(features.labels, [0.5, np.nan])


def test_an_unknown_label_is_minus_one():
  assert build(PAIR, [TextExample("0", ("the", "cat"))], BERT, 8).labels.tolist() == [-1]


def test_each_option_has_a_context_of_its_own():
  """XLNet's run_race.py reads an option behind all options before it."""
  example = ChoiceExample("0", "the cat", ("sat", "ran on a mat", "red"), 2)
  features = build(CHOICE, [example, example], XLNET, 16)
  assert [pieces(XLNET, features, i) for i in range(3)] == [
    "▁the ▁cat <sep> ▁sat <sep> <cls>",
    "▁the ▁cat <sep> ▁ran ▁on ▁a ▁mat <sep> <cls>",
    "▁the ▁cat <sep> ▁red <sep> <cls>",
  ]
  assert features.first.tolist() == features.units.tolist() == [0, 3, 6]
  assert features.labels.tolist() == [2, 2]
  alone = build(CHOICE, [ChoiceExample("0", "the cat", ("x", "red"), 1)], XLNET, 16)
  assert pieces(XLNET, alone, 1) == pieces(XLNET, features, 2)


def test_race_cuts_the_beginning_of_an_option_and_the_end_of_the_context():
  task = dataclasses.replace(TASKS["race"], option_length=3)
  example = ChoiceExample("0", "the cat sat on a mat", ("who ran on red", "dog"), 0)
  features = build(task, [example], BERT, 9)
  assert pieces(BERT, features, 0) == "[CLS] the cat sat [SEP] ran on red [SEP]"
  assert pieces(BERT, features, 1) == "[CLS] the cat sat on a [SEP] dog [SEP]"
  assert features.truncated == 2
  assert said_of_cuts(features, 9) == "2 of 2 options lose tokens of their own or of the context, for a row has 9"


def test_the_first_piece_of_a_word_is_tagged():
  example = TagExample("0", ("Cats", "sat", "\u0301", "on"), ("B-PER", "O", "I-LOC", "B-MISC"))
  tags = [NER.labels.index(tag) for tag in example.tags]
  features = build(NER, [example], BERT, 16)
  assert pieces(BERT, features, 0) == "[CLS] cat ##s sat [UNK] on [SEP]"  # a word without pieces can be tagged too
  assert features.words.tolist() == [-1, 0, -1, 1, 2, 3, -1]
  assert features.targets.tolist() == [IGNORED, tags[0], IGNORED, *tags[1:], IGNORED]
  features = build(NER, [example], XLNET, 16)
  assert pieces(XLNET, features, 0) == "▁cat s ▁sat <unk> ▁on <sep> <cls>"
  assert features.targets.tolist() == [tags[0], IGNORED, *tags[1:], IGNORED, IGNORED]
  unknown = build(NER, [TagExample("0", ("cats", "sat"))], BERT, 16)
  assert unknown.targets.tolist() == [IGNORED] * 5
  assert unknown.words.tolist() == [-1, 0, -1, 1, -1]


def test_a_long_sentence_is_cut_between_words_and_every_word_tagged_once():
  words = ("the", "cats", "sat", "on", "mats", "a", "dogs", "ran")
  tags = tuple(NER.labels[i] for i in range(8))
  features = build(NER, [TagExample("0", words, tags), TagExample("1", ("a",), ("O",))], BERT, 5)
  assert [pieces(BERT, features, i) for i in range(features.num_sequences)] == [
    "[CLS] the cat ##s [SEP]",
    "[CLS] sat on [SEP]",
    "[CLS] mat ##s a [SEP]",
    "[CLS] dog ##s ran [SEP]",
    "[CLS] a [SEP]",
  ]
  assert features.first.tolist() == [0, 4, 5]
  assert features.words[features.words >= 0].tolist() == [*range(8), 0]
  assert features.targets[features.targets != IGNORED].tolist() == [*range(8), 0]
  assert features.truncated == 0


def test_a_word_that_is_longer_than_a_row_keeps_its_first_piece():
  features = build(NER, [TagExample("0", ("cat", "cat" + "s" * 9), ("O", "B-PER"))], BERT, 6)
  assert [pieces(BERT, features, i) for i in range(2)] == ["[CLS] cat [SEP]", "[CLS] cat ##s ##s ##s [SEP]"]
  assert features.truncated == 1
  assert said_of_cuts(features, 6) == "1 words lose pieces, for a row has 6"


@pytest.mark.parametrize(
  ("task", "example", "message"),
  [
    (PAIR, TextExample("0", ("the", " \t"), "no", "t.tsv:4"), "t.tsv:4: 'two' is a text that no token stands for"),
    (PAIR, TextExample("0", ("", "the"), "no", "t.tsv:4"), "t.tsv:4: 'one' is a text that no token stands for"),
    (PAIR, TextExample("0", ("the", "cat"), "maybe", "t.tsv:4"), "t.tsv:4: label 'maybe' is not one of no, yes"),
    (NER, TagExample("0", ("a",), ("B-X",), "t.txt:4"), "t.txt:4: tag 'B-X' is not one of O, B-PER"),
    (CHOICE, ChoiceExample("0", "a", ("", "b"), 0, "", "t:4"), "t:4: option 1 is a text that no token stands for"),
    (CHOICE, ChoiceExample("0", "", ("a", "b"), 0, "", "t:4"), "t:4: the context is a text that no token stands for"),
    (custom("tagging"), TagExample("0", ("a",), ("O",)), "task custom has no labels"),
  ],
)
def test_what_cannot_be_laid_out_is_named(task, example, message):
  with pytest.raises(ValueError, match=message):
    build(task, [example], BERT, 16)


def test_a_question_of_qqp_may_be_empty():
  features = build(TASKS["qqp"], [TextExample("0", ("who sat", ""), "0")], BERT, 8)
  assert pieces(BERT, features, 0) == "[CLS] who sat [SEP] [SEP]"
  with pytest.raises(ValueError, match="no token stands for"):
    build(TASKS["qqp"], [TextExample("0", ("", ""), "0")], BERT, 8)
