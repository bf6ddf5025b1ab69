"""Prediction files: as the leaderboards have them, back and forth, and what cannot be read."""

import json

import numpy as np
import pytest

from scores import files
from scores.spans import Answer, Entry


def test_glues_format(tmp_path):
  path = tmp_path / "new" / files.labels_file("rte")
  files.write_labels(path, ["0", "1"], ["entailment", "not_entailment"])
  assert path.read_bytes() == b"index\tprediction\n0\tentailment\n1\tnot_entailment\n"
  assert files.read_labels(path) == {"0": "entailment", "1": "not_entailment"}
  assert list(path.parent.iterdir()) == [path]  # nothing else is left


def test_numbers_have_three_decimals_and_bounds(tmp_path):
  path = tmp_path / "STS-B.tsv"
  files.write_labels(path, ["0", "1", "2"], [np.float32(2.34567), -0.25, 5.5], (0.0, 5.0))
  assert path.read_text() == "index\tprediction\n0\t2.346\n1\t0.000\n2\t5.000\n"
  files.write_labels(path, ["0"], [-7.0])
  assert files.read_labels(path) == {"0": "-7.000"}


@pytest.mark.parametrize(
  ("task", "split", "name"),
  [
    ("cola", "test", "CoLA.tsv"),
    ("mnli", "test", "MNLI-m.tsv"),
    ("mnli", "test_mismatched", "MNLI-mm.tsv"),
    ("ax", "test", "AX.tsv"),
    ("imdb", "test", "imdb.tsv"),
  ],
)
def test_the_leaderboards_names(task, split, name):
  assert files.labels_file(task, split) == name


def test_marks_line_ends_and_columns_do_not_matter(tmp_path):
  path = tmp_path / "x.tsv"
  path.write_bytes(b'\xef\xbb\xbfprediction\textra\tindex\r\nyes "it"\t1\ta\x0cb\r\nno\t\td')
  assert files.read_labels(path) == {"a\x0cb": 'yes "it"', "d": "no"}


def test_probabilities(tmp_path):
  path = tmp_path / "test_results.tsv"
  path.write_text("0.1\t0.9\n0.3333333333333333\t6.666666666666666e-01\n")  # as Python prints them
  np.testing.assert_array_equal(files.read_probabilities(path), [[0.1, 0.9], [1 / 3, 2 / 3]])


ANSWERS = {
  "q1": Answer((Entry("Ünal “x”", 0.75, 3.0, 2.5), Entry("", 0.25, 1.0, 1.0)), -3.5),
  "q2": Answer((Entry("", 0.5, 4.0, 3.0), Entry("Rollo", 0.5, 3.0, 3.0)), 1.0),
}


def test_squads_files(tmp_path):
  files.write_squad(tmp_path, ANSWERS, threshold=0.0)
  assert json.loads((tmp_path / "predictions.json").read_text()) == {"q1": "Ünal “x”", "q2": ""}
  assert json.loads((tmp_path / "null_odds.json").read_text()) == {"q1": -3.5, "q2": 1.0}
  nbest = json.loads((tmp_path / "nbest_predictions.json").read_text())
  assert nbest["q1"][0] == {"text": "Ünal “x”", "probability": 0.75, "start_logit": 3.0, "end_logit": 2.5}
  assert files.read_texts(tmp_path / "predictions.json") == {"q1": "Ünal “x”", "q2": ""}
  assert files.read_texts(tmp_path / "nbest_predictions.json") == {"q1": "Ünal “x”", "q2": "Rollo"}
  assert files.read_nbest(tmp_path / "nbest_predictions.json")["q2"] == [("", 0.5), ("Rollo", 0.5)]
  assert files.read_odds(tmp_path / "null_odds.json") == {"q1": -3.5, "q2": 1.0}


def test_squad_without_a_threshold_and_without_odds(tmp_path):
  files.write_squad(tmp_path, ANSWERS, score_names=files.LOG_PROBABILITIES)
  assert files.read_texts(tmp_path / "predictions.json")["q2"] == "Rollo"
  assert "start_log_prob" in (tmp_path / "nbest_predictions.json").read_text()
  files.write_squad(tmp_path / "one", {"q": Answer((Entry("Rollo", 1.0, 3.0, 3.0),))}, threshold=0.0)
  assert files.read_texts(tmp_path / "one" / "predictions.json") == {"q": "Rollo"}
  assert not (tmp_path / "one" / "null_odds.json").exists()


def test_conlls_columns(tmp_path):
  path = tmp_path / "tags.txt"
  files.write_tags(path, [["EU", "rejects"], ["Blackburn"]], [["B-ORG", "O"], ["O"]], [["B-ORG", "O"], ["B-PER"]])
  assert path.read_text() == "EU B-ORG B-ORG\nrejects O O\n\nBlackburn B-PER O\n\n"
  assert files.read_tags(path) == [("B-ORG", "O"), ("O",)]
  files.write_tags(path, [["EU"]], [["B-ORG"]])
  assert path.read_text() == "EU B-ORG\n\n"


def test_documents_and_blank_lines_are_no_sentences(tmp_path):
  path = tmp_path / "tags.txt"
  path.write_text("-DOCSTART- -X- O O\n\n\nEU\tNNP B-ORG\n\n-DOCSTART- O\nPeter I-PER")
  assert files.read_tags(path) == [("B-ORG",), ("I-PER",)]


def test_json_lines(tmp_path):
  path = tmp_path / "x.jsonl"
  path.write_text(
    '{"id": 7, "prediction": "yes", "probabilities": {"yes": 0.5}}\n{"id": "b", "prediction": ["O", "B-X"]}\n'
  )
  assert files.read_lines(path) == {
    "7": files.Prediction("yes", {"yes": 0.5}),
    "b": files.Prediction(("O", "B-X")),
  }


@pytest.mark.parametrize(
  ("read", "text", "said"),
  [
    (files.read_labels, "", ":1: no column 'index'"),
    (files.read_labels, "index\tlabel\n", ":1: no column 'prediction'"),
    (files.read_labels, "index\tprediction\n0\ta\n1\ta\tb\n", ":3: 3 fields, and the header has 2"),
    (files.read_labels, "index\tprediction\n0\ta\n0\tb\n", ":3: a second prediction for 0"),
    (files.read_probabilities, "0.1\t0.9\n0.1 0.9\n", ":2: not numbers"),
    (files.read_probabilities, "0.1\t0.9\n0.1\n", ":2: 1 numbers, and the first line has 2"),
    (files.read_probabilities, "", ": empty"),
    (files.read_texts, '{"q": "x",\n}', ":2: not JSON"),
    (files.read_texts, "[]", ": not a JSON object"),
    (files.read_texts, '{"q": null}', ": the prediction of q is not a text"),
    (files.read_texts, '{"q": [], "r": "x"}', ": r has no list of entries"),
    (files.read_nbest, '{"q": [{"text": "x"}]}', ": q has no list of entries with text and probability"),
    (files.read_odds, '{"q": true}', ": the null odds of q are not a number"),
    (files.read_odds, '{"q": NaN}', ": the null odds of q are not a number"),
    (files.read_tags, "EU B-ORG\n\nPeter\n", ":3: a word without a tag"),
    (files.read_lines, '{"id": 1, "prediction": 2}\n{"id": 2}\n', ":2: not an object with the fields id and"),
    (files.read_lines, '{"id": 1, "prediction": 2}\n\n', ":2: not JSON"),
    (files.read_lines, '{"id": 1, "prediction": null}\n', ":1: the prediction is null, not a label"),
    (files.read_lines, '{"id": 1, "prediction": {"a": 1}}\n', ":1: the prediction is an object, not a label"),
    (files.read_lines, '{"id": 1, "prediction": 2}\n{"id": "1", "prediction": 2}\n', ":2: a second prediction for 1"),
  ],
)
def test_what_cannot_be_read_is_named(tmp_path, read, text, said):
  path = tmp_path / "file"
  path.write_text(text)
  with pytest.raises(ValueError, match=said) as caught:
    read(path)
  assert str(caught.value).startswith(str(path))


def test_what_cannot_be_written(tmp_path):
  with pytest.raises(ValueError, match="a tab or a line end in 'a'"):
    files.write_labels(tmp_path / "x.tsv", ["a"], ["b\tc"])
  with pytest.raises(ValueError, match="zip"):
    files.write_labels(tmp_path / "x.tsv", ["a"], [])
  assert not list(tmp_path.iterdir())


def test_other_encodings_are_named(tmp_path):
  path = tmp_path / "x.tsv"
  path.write_bytes("index\tprediction\n0\té\n".encode("latin-1"))
  with pytest.raises(ValueError, match="not UTF-8"):
    files.read_labels(path)
