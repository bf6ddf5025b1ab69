"""Entities and their F1, against sentences read by hand and a definition by all spans."""

import itertools

import numpy as np
import pytest

from scores import entities


@pytest.mark.parametrize(
  ("tags", "expected"),
  [
    ("O O", []),
    # IOB2: B begins each.
    ("B-PER I-PER O B-LOC", [("PER", 0, 1), ("LOC", 3, 3)]),
    ("B-PER B-PER I-PER", [("PER", 0, 0), ("PER", 1, 2)]),
    # IOB1: I begins, B only parts neighbours of one type.
    ("I-PER I-PER O I-LOC", [("PER", 0, 1), ("LOC", 3, 3)]),
    ("I-PER B-PER I-PER", [("PER", 0, 0), ("PER", 1, 2)]),
    ("I-PER I-LOC", [("PER", 0, 0), ("LOC", 1, 1)]),
    # What models write: an I after another type begins an entity, as conlleval has it.
    ("B-PER I-LOC I-LOC", [("PER", 0, 0), ("LOC", 1, 2)]),
    ("O I-PER", [("PER", 1, 1)]),
    # BIOES
    ("S-PER S-PER B-LOC I-LOC E-LOC", [("PER", 0, 0), ("PER", 1, 1), ("LOC", 2, 4)]),
    ("B-PER E-PER E-PER", [("PER", 0, 1), ("PER", 2, 2)]),
    ("E-PER I-PER", [("PER", 0, 0), ("PER", 1, 1)]),
    ("S-PER I-PER", [("PER", 0, 0), ("PER", 1, 1)]),
    ("I-PER S-PER", [("PER", 0, 0), ("PER", 1, 1)]),
    # Types with a hyphen, and none at all.
    ("B-A-B I-A-B I-A-C", [("A-B", 0, 1), ("A-C", 2, 2)]),
    ("B I O I", [("", 0, 1), ("", 3, 3)]),
    ("", []),
  ],
)
def test_entities_of_a_sentence(tags, expected):
  assert entities.entities(tags.split()) == expected


def _all_spans(tags):
  """Every span that is an entity by definition (IOB1 and IOB2)."""
  kind = [None if tag == "O" else tag[2:] for tag in tags]
  found = []
  for first, last in itertools.combinations_with_replacement(range(len(tags)), 2):
    inside = all(k is not None and k == kind[first] for k in kind[first : last + 1])
    unbroken = not any(tag[0] == "B" for tag in tags[first + 1 : last + 1])
    begins = first == 0 or kind[first - 1] != kind[first] or tags[first][0] == "B"
    ends = last == len(tags) - 1 or kind[last + 1] != kind[last] or tags[last + 1][0] == "B"
    if inside and unbroken and begins and ends:
      found.append((kind[first], first, last))
  return found


def test_every_short_sentence_is_read_as_defined():
  alphabet = ["O", "B-X", "I-X", "B-Y", "I-Y"]
  for length in range(1, 6):
    for tags in itertools.product(alphabet, repeat=length):
      assert entities.entities(tags) == _all_spans(tags)


def test_scores_by_hand():
  targets = ["B-PER I-PER O B-LOC O", "B-ORG O", "O"]
  predictions = ["B-PER I-PER O B-ORG O", "B-ORG I-ORG", "O"]
  # Right: PER. Wrong: the type of LOC, the end of ORG. 3 true, 3 predicted; words: 6 of 8.
  found = entities.entity_f1([x.split() for x in predictions], [x.split() for x in targets])
  assert found == pytest.approx({"f1": 1 / 3, "precision": 1 / 3, "recall": 1 / 3, "accuracy": 6 / 8})


def test_precision_and_recall_are_not_swapped():
  found = entities.entity_f1([["B-X", "B-X", "B-X"]], [["B-X", "O", "O"]])
  assert found == pytest.approx({"f1": 0.5, "precision": 1 / 3, "recall": 1, "accuracy": 1 / 3})


def test_the_same_entities_in_other_schemes_score_1():
  found = entities.entity_f1([["I-PER", "I-PER", "B-PER"]], [["B-PER", "I-PER", "B-PER"]])
  assert found["f1"] == 1
  assert found["accuracy"] == pytest.approx(2 / 3)


def test_no_entity_spans_two_sentences():
  found = entities.entity_f1([["O", "I-X"], ["I-X", "O"]], [["O", "B-X"], ["B-X", "O"]])
  assert found["f1"] == 1


def test_nothing_found_is_zero():
  assert entities.entity_f1([["O"]], [["B-X"]]) == {"f1": 0, "precision": 0, "recall": 0, "accuracy": 0}
  assert entities.entity_f1([["O"]], [["O"]]) == {"f1": 0, "precision": 0, "recall": 0, "accuracy": 1}


def test_report_by_type():
  report = entities.entity_report([["B-X", "B-Y", "B-X", "O"]], [["B-X", "O", "B-Y", "B-X"]])
  assert report["X"] == pytest.approx({"f1": 0.5, "precision": 0.5, "recall": 0.5, "support": 2})
  assert report["Y"] == {"f1": 0, "precision": 0, "recall": 0, "support": 1}


@pytest.mark.parametrize(
  ("predictions", "targets", "said"),
  [
    ([["O"]], [["O"], ["O"]], "predictions for 1 sentences, and the targets have 2"),
    ([["O"], ["O"]], [["O"], ["O", "O"]], "sentence 2: 1 predicted tags for 2 words"),
    ([["U-PER"]], [["O"]], "tag 'U-PER'"),
    ([["PER"]], [["O"]], "tag 'PER'"),
    ([["O-PER"]], [["O"]], "tag 'O-PER'"),
    ([], [], "no words"),
  ],
)
def test_what_cannot_be_scored(predictions, targets, said):
  with pytest.raises(ValueError, match=said):
    entities.entity_f1(predictions, targets)


@pytest.mark.parity
def test_seqeval_agrees():
  metrics = pytest.importorskip("seqeval.metrics")
  rng = np.random.default_rng(0)
  tags = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in "XY")]
  predictions, targets = ([[tags[i] for i in rng.integers(0, len(tags), n)] for n in range(1, 40)] for _ in range(2))
  assert entities.entity_f1(predictions, targets)["f1"] == pytest.approx(metrics.f1_score(targets, predictions))
