"""TFDS's data sets give the examples that the official files give, without TensorFlow."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from data import corpora
from data.tasks.examples import SpanExample, TagExample, TextExample
from data.tasks.readers import read
from data.tasks.table import TASKS, custom

F = tfds.features
CONTEXT = "The Normans lived in France."


def build(folder, features: dict, splits: dict) -> str:
  """Prepares a data set of these features, and returns what `read` calls it."""

  with tfds.core.registered.skip_registration():  # so it is found by its files alone, as what somebody prepared is

    class Small(tfds.core.GeneratorBasedBuilder):
      VERSION = tfds.core.Version("1.0.0")

      def _info(self):
        return tfds.core.DatasetInfo(builder=self, features=F.FeaturesDict(features), disable_shuffling=True)

      def _split_generators(self, download):
        return {split: self._generate_examples(records) for split, records in splits.items()}

      def _generate_examples(self, records):
        yield from enumerate(records)

  Small(data_dir=str(folder), file_format="array_record").download_and_prepare()
  return "tfds:small"


def test_labels_are_those_of_the_official_files(tmp_path):
  # TFDS numbers MNLI's classes in another order, and calls the columns otherwise.
  labels = F.ClassLabel(names=["entailment", "neutral", "contradiction"])
  features = {"premise": F.Text(), "hypothesis": F.Text(), "label": labels, "idx": np.int32}
  record = {"premise": "A é", "hypothesis": "B"}
  name = build(
    tmp_path,
    features,
    {
      "validation_mismatched": [record | {"label": 2, "idx": 7}, record | {"label": 0, "idx": 8}],
      "test_matched": [record | {"label": -1, "idx": 0}],
    },
  )
  assert read(TASKS["mnli"], name, "dev_mismatched", data_dir=str(tmp_path)) == [
    TextExample("7", ("A é", "B"), "contradiction"),
    TextExample("8", ("A é", "B"), "entailment"),
  ]
  assert read(TASKS["mnli"], name, "test", data_dir=str(tmp_path)) == [TextExample("0", ("A é", "B"))]
  with pytest.raises(ValueError, match="has no split 'train'; it has validation_mismatched, test_matched"):
    read(TASKS["mnli"], name, "train", data_dir=str(tmp_path))


def test_classes_of_other_names_go_by_their_number(tmp_path):
  features = {"sentence": F.Text(), "label": F.ClassLabel(names=["unacceptable", "acceptable"]), "idx": np.int32}
  records = [{"sentence": f"s{i}", "label": i % 2, "idx": i} for i in range(600)]
  name = build(tmp_path, features, {"train": records})
  examples = read(TASKS["cola"], name, "train", data_dir=str(tmp_path))
  assert examples == [TextExample(str(i), (f"s{i}",), str(i % 2)) for i in range(600)]


def test_scores_are_numbers(tmp_path):
  features = {"sentence1": F.Text(), "sentence2": F.Text(), "label": np.float32, "idx": np.int32}
  record = {"sentence1": "a", "sentence2": "b", "idx": 1}
  labels = {"validation": 2.5, "test": -1.0, "train": -1.0}
  name = build(tmp_path, features, {split: [record | {"label": label}] for split, label in labels.items()})
  assert read(TASKS["stsb"], name, "dev", data_dir=str(tmp_path)) == [TextExample("1", ("a", "b"), 2.5)]
  assert read(TASKS["stsb"], name, "test", data_dir=str(tmp_path)) == [TextExample("1", ("a", "b"))]
  with pytest.raises(ValueError, match="train:0: no 'score'; every example that is trained on or scored needs one"):
    read(TASKS["stsb"], name, "train", data_dir=str(tmp_path))
  of_ones_own = custom("regression", texts=("sentence1", "sentence2"))  # there it may be a score
  assert read(of_ones_own, name, "test", data_dir=str(tmp_path)) == [TextExample("1", ("a", "b"), -1.0)]


def test_questions_have_their_answers(tmp_path):
  features = {
    "id": F.Text(),
    "title": F.Text(),
    "context": F.Text(),
    "question": F.Text(),
    "is_impossible": np.bool_,
    "answers": F.Sequence({"text": F.Text(), "answer_start": np.int32}),
  }
  record = {"title": "Normans", "context": CONTEXT}
  where = record | {"id": "a", "question": "Where?", "is_impossible": False}
  never = record | {"id": "b", "question": "When?", "is_impossible": True, "answers": {"text": [], "answer_start": []}}
  answers = {"text": ["France", "in France"], "answer_start": [21, 18]}
  name = build(tmp_path, features, {"validation": [where | {"answers": answers}, never]})
  assert read(TASKS["squad2"], name, "dev", data_dir=str(tmp_path)) == [
    SpanExample("a", "Where?", CONTEXT, (("France", 21), ("in France", 18)), False, "Normans"),
    SpanExample("b", "When?", CONTEXT, (), True, "Normans"),
  ]


def test_words_have_their_tags(tmp_path):
  tags = F.ClassLabel(names=["O", "B-PER", "I-PER", "B-ORG"])
  name = build(
    tmp_path,
    {"tokens": F.Sequence(F.Text()), "ner": F.Sequence(tags)},
    {"dev": [{"tokens": ["EU", "met"], "ner": ["B-ORG", "O"]}]},
  )
  assert read(TASKS["conll2003"], name, "dev", data_dir=str(tmp_path)) == [
    TagExample("0", ("EU", "met"), ("B-ORG", "O"))
  ]


def test_an_unknown_data_set_is_named(tmp_path):
  with pytest.raises(ValueError, match="TFDS has no data set 'no_such_set'"):
    read(TASKS["cola"], "tfds:no_such_set", "train", data_dir=str(tmp_path))


@pytest.mark.parametrize("task", [task for task in TASKS.values() if task.tfds], ids=lambda task: task.name)
def test_the_tables_names_are_tfds_own(tmp_path, task):
  """The data set is not downloaded: its code says what it holds."""
  for name in [f"{task.tfds}/{group}" for group in task.groups] or [task.tfds]:
    features = set(corpora.find_builder(name, str(tmp_path)).info.features)
    kinds = {"span": {"question", "context", "answers"}, "choice": {"article", "questions", "options", "answers"}}
    needed = kinds.get(task.kind, {"tokens"} if task.kind == "tagging" else set(task.texts)) | (
      {task.label} if task.kind not in kinds and "train" in task.files else set()
    )
    assert {task.tfds_columns.get(column, column) for column in needed} <= features
