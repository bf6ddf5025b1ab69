"""What a fine-tuning run is made of, before anything is compiled."""

import json
import re

import pytest

from data.tasks import table
from data.tasks.examples import ChoiceExample, SpanExample, TagExample, TextExample
from parts import finetuning
from tests import tasks
from tools import sweep_plan


def test_what_a_run_cuts_off_is_said(tmp_path, capsys):
  source = tasks.write(tmp_path, "classification")
  finetuning.build(tasks.config(source, "classification", length=6))
  train, held_out = capsys.readouterr().err.splitlines()
  assert train.startswith("note: train: ")
  assert train.endswith(" of 24 texts lose tokens, for a row has 6")
  assert held_out.startswith("note: held-out: ")
  finetuning.build(tasks.config(source, "classification", length=24))
  assert capsys.readouterr().err == ""


def labelled(*labels) -> list[TextExample]:
  return [TextExample(f"{i}", ("a",), label) for i, label in enumerate(labels)]


SENTENCES = [TagExample("0", ("a", "b"), ("O", "B-PER")), TagExample("1", ("a", "b"), ("O", "O"))]
CHOICES = [ChoiceExample(f"{i}", "a", ("b", "c", "d"), label) for i, label in enumerate((2, 0, 2, 1, 2))]
QUESTIONS = [SpanExample(f"{i}", "a", "b", answers, not answers) for i, answers in enumerate(((("b", 0),), (), (), ()))]
NO_ANSWER = {"exact_match": 75, "f1": 75, "HasAns_f1": 0, "NoAns_f1": 100, "best_f1": 75}


@pytest.mark.parametrize(
  ("name", "examples", "expected", "said"),
  [
    ("mrpc", labelled("1", "0", "1", "1"), {"accuracy": 0.75, "f1": 6 / 7}, "the most frequent label"),
    ("qqp", labelled("0", "0", "1"), {"accuracy": 2 / 3, "f1": 0}, "the most frequent label"),
    ("cola", labelled("1", "0", "1"), {"accuracy": 2 / 3, "matthews": 0}, "the most frequent label"),
    ("sst2", labelled("1", "0"), {"accuracy": 0.5}, "the most frequent label"),
    ("stsb", labelled(1.0, 4.5), {"pearson": 0, "spearman": 0}, "a constant"),
    ("conll2003", SENTENCES, {"f1": 0, "accuracy": 0.75}, "the most frequent tag"),
    ("swag", CHOICES, {"accuracy": 0.6}, "the option most often right"),
    ("squad1", QUESTIONS[:1], {"exact_match": 0, "f1": 0}, "no answer"),
    ("squad2", QUESTIONS, NO_ANSWER, "no answer"),
  ],
)
def test_what_a_score_is_worth_without_a_model(name, examples, expected, said):
  found = finetuning.baselines(finetuning.Examples(table.find_task(name), [], {"dev": examples}))
  assert {metric: found[metric] for metric in expected} == {
    metric: (pytest.approx(value), said) for metric, value in expected.items()
  }


def test_each_split_is_measured_by_its_own_labels():
  splits = {"dev": labelled("neutral", "neutral"), "dev_mismatched": labelled("entailment", "neutral", "entailment")}
  found = finetuning.baselines(finetuning.Examples(table.find_task("mnli"), [], splits))
  assert [found[name][0] for name in ("accuracy", "accuracy_dev_mismatched")] == [1.0, pytest.approx(2 / 3)]


@pytest.mark.parametrize(
  ("changes", "labels", "said"),
  [
    ({}, "aaa", "train.jsonl:1: all 3 training examples have the label 'a'; two or more are needed, in the file or in"),
    ({"data__scores": ("f1",)}, "abc", "config.data.scores: f1 is of two labels, and there are a, b, c; use matthews"),
    ({"data__task": "mrpc", "data__scores": ("f1",)}, "ab", "config.data.scores is of task custom; mrpc is scored by "),
    ({"data__scores": ("pearson",)}, "ab", "'pearson' does not score classification; use accuracy or f1 or matthews"),
  ],
)
def test_labels_and_scores_that_make_no_task(changes, labels, said, tmp_path):
  for split in ("train", "dev"):
    lines = (json.dumps({"sentence": "he was", "label": label}) + "\n" for label in labels)
    (tmp_path / f"{split}.jsonl").write_text("".join(lines))
  with pytest.raises(ValueError, match=re.escape(said)):
    finetuning.build(tasks.config(tmp_path, "classification", **changes))


def test_a_run_is_ranked_by_the_first_of_its_scores(tmp_path):
  config = tasks.config(
    tasks.write(tmp_path, "classification"), "classification", data__scores=("matthews", "accuracy")
  )
  examples = finetuning.read(config.data)
  assert finetuning.baselines(examples).keys() == {"matthews", "accuracy"}
  assert sweep_plan.main_metric(config)[0] == examples.task.main_score == "matthews"
