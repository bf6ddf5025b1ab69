"""tools.evaluate: gold files and prediction files of every kind, in and out."""

import json
import math

import pytest

import scores
from data.tasks.table import TASKS
from scores import files
from tools import cli, evaluate


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
  """Runs the tool in an empty folder and returns its metrics."""
  monkeypatch.chdir(tmp_path)

  def call(*arguments):
    monkeypatch.setattr("sys.argv", ["evaluate", *arguments, "--json"])
    cli.run(evaluate.main)
    return json.loads(capsys.readouterr().out)

  return call


@pytest.fixture
def fails(monkeypatch, capsys, tmp_path):
  """Runs the tool and returns its one line of error."""
  monkeypatch.chdir(tmp_path)

  def call(*arguments):
    monkeypatch.setattr("sys.argv", ["evaluate", *arguments])
    with pytest.raises(SystemExit) as caught:
      cli.run(evaluate.main)
    assert caught.value.code == 1
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err

  return call


def write(tmp_path, name, *lines):
  (tmp_path / name).write_text("".join(line + "\n" for line in lines))
  return name


@pytest.fixture
def mrpc(tmp_path):
  header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
  return write(tmp_path, "dev.tsv", header, *(f"{label}\t1\t2\tone\tother" for label in "1100"))


MRPC = ("--task=mrpc", "--gold=dev.tsv", "--predictions")


def test_every_task_names_scores_that_give_its_main_score():
  metrics = {
    "squad1": scores.SCORES["squad1"]({"q": "x"}, {"q": ["x"]}),
    "squad2": scores.SCORES["squad2"]({"q": "x"}, {"q": ["x"]}),
    "entity_f1": scores.SCORES["entity_f1"]([["O"]], [["O"]]),
  }
  for task in TASKS.values():
    given = {metric for name in task.scores for metric in metrics.get(name) or scores.SCORES[name]([0, 1], [0, 1])}
    assert task.main_score in given


def test_two_classes(run, tmp_path, mrpc):
  write(tmp_path, "p.tsv", "index\tprediction", "3\t0", "2\t1", "1\t0", "0\t1")  # any order
  assert run(*MRPC, "p.tsv") == {"accuracy": 0.5, "f1": 0.5}


def test_files_of_probabilities_are_averaged(run, tmp_path, mrpc):
  write(tmp_path, "a.tsv", "0.4\t0.6", "0.9\t0.1", "0.6\t0.4", "0.4\t0.6")
  write(tmp_path, "b.tsv", "0.3\t0.7", "0.3\t0.7", "0.9\t0.1", "0.8\t0.2")
  assert run(*MRPC, "a.tsv") == {"accuracy": 0.5, "f1": 0.5}
  # Joined: 1 0 0 0. All probabilities lie in one file of JSON lines as well.
  write(
    tmp_path,
    "b.jsonl",
    *(
      json.dumps({"id": i, "prediction": "0", "probabilities": {"1": p, "0": 1 - p}})
      for i, p in enumerate([0.7, 0.7, 0.1, 0.2])
    ),
  )
  for other in ("b.tsv", "b.jsonl"):
    assert run(*MRPC, "a.tsv", other, "--output=MRPC.tsv") == pytest.approx({"accuracy": 0.75, "f1": 2 / 3})
    assert (tmp_path / "MRPC.tsv").read_text() == "index\tprediction\n0\t1\n1\t0\n2\t0\n3\t0\n"


def test_files_of_labels_vote(run, tmp_path, mrpc):
  for name, labels in (("a", "1000"), ("b", "1101"), ("c", "0101")):
    files.write_labels(tmp_path / f"{name}.tsv", "0123", labels)
  assert run(*MRPC, "a.tsv", "b.tsv", "c.tsv") == pytest.approx({"accuracy": 0.75, "f1": 0.8})  # 1101


def test_similarity(run, tmp_path):
  gold = ["index\tsentence1\tsentence2\tscore", *(f"{i}\ta\tb\t{x}" for i, x in enumerate([1, 2, 2, 3]))]
  write(tmp_path, "dev.tsv", *gold)
  files.write_labels(tmp_path / "p.tsv", "0123", [1.0, 3.0, 2.0, 4.0])
  found = run("--task=stsb", "--gold=dev.tsv", "--predictions", "p.tsv")
  assert found == pytest.approx({"pearson": 3 / math.sqrt(2 * 5), "spearman": 4.5 / math.sqrt(4.5 * 5)})
  files.write_labels(tmp_path / "constant.tsv", "0123", [1.0] * 4)
  found = run("--task=stsb", "--gold=dev.tsv", "--predictions", "constant.tsv")
  assert found == {"pearson": None, "spearman": None}
  found = run("--task=stsb", "--gold=dev.tsv", "--predictions", "p.tsv", "constant.tsv", "--output=j.tsv")
  assert files.read_labels(tmp_path / "j.tsv") == {"0": "1.000", "1": "2.000", "2": "1.500", "3": "2.500"}


def test_options_by_group_and_letter(run, tmp_path):
  for group, answers in (("middle", "AB"), ("high", "D")):
    folder = tmp_path / "RACE" / "dev" / group
    folder.mkdir(parents=True)
    passage = {
      "id": f"{group}1.txt",
      "article": "text",
      "questions": ["Q _ ?"] * len(answers),
      "options": [list("wxyz")] * len(answers),
      "answers": list(answers),
    }
    (folder / "1.txt").write_text(json.dumps(passage))
  write(tmp_path, "p.tsv", "index\tprediction", "middle1.txt-0\tA", "middle1.txt-1\tC", "high1.txt-0\t3")
  found = run("--task=race", "--gold=RACE", "--predictions", "p.tsv")
  assert found == pytest.approx({"accuracy": 2 / 3, "accuracy_middle": 1 / 2, "accuracy_high": 1})


def test_questions_with_more_and_fewer_options(run, fails, tmp_path):
  question = lambda key, options, label: json.dumps({"id": key, "context": "x", "options": options, "label": label})
  write(tmp_path, "dev.jsonl", question("a", ["y", "z"], 1), question("b", ["v", "w", "y"], 2))
  record = lambda key, p: json.dumps({"id": key, "prediction": p.index(max(p)), "probabilities": p})
  write(tmp_path, "p.jsonl", record("a", [0.1, 0.9]), record("b", [0.5, 0.2, 0.3]))
  write(tmp_path, "q.jsonl", record("a", [0.6, 0.4]), record("b", [0.0, 0.3, 0.7]))
  own = ("--task=custom", "--kind=choice", "--gold=.", "--predictions")
  assert run(*own, "p.jsonl") == run(*own, "q.jsonl") == {"accuracy": 0.5}
  assert run(*own, "p.jsonl", "q.jsonl") == {"accuracy": 1}
  write(tmp_path, "p.jsonl", '{"id": "a", "prediction": 2}', '{"id": "b", "prediction": 2}')
  assert "p.jsonl: prediction 2 for a, which has 2 options" in fails(*own, "p.jsonl")


def test_entities(run, tmp_path):
  write(tmp_path, "gold.txt", "-DOCSTART- O", "", "EU B-ORG", "in B-LOC", "New I-LOC", "", "Peter B-PER")
  write(tmp_path, "p.txt", "EU B-ORG", "in O", "New B-LOC", "", "Peter B-PER")
  found = run("--task=conll2003", "--gold=gold.txt", "--predictions", "p.txt")
  assert found["f1"] == found["precision"] == found["recall"] == pytest.approx(2 / 3)
  assert found["accuracy"] == pytest.approx(2 / 4)
  assert (found["f1_LOC"], found["f1_ORG"], found["support_PER"]) == (0, 1, 1)
  write(tmp_path, "p.jsonl", '{"id": 1, "prediction": ["B-PER"]}', '{"id": 0, "prediction": ["O", "B-LOC", "I-LOC"]}')
  assert run("--task=conll2003", "--gold=gold.txt", "--predictions", "p.jsonl")["f1"] == pytest.approx(4 / 5)


def squad(tmp_path, name="gold.json", impossible=True):
  questions = [{"id": "a", "question": "Who?", "answers": [{"text": "Rollo", "answer_start": 0}]}]
  if impossible:
    questions += [{"id": key, "question": "Why?", "answers": [], "is_impossible": True} for key in "bc"]
  content = {"data": [{"title": "", "paragraphs": [{"context": "Rollo was Norse.", "qas": questions}]}]}
  (tmp_path / name).write_text(json.dumps(content))


SQUAD2 = ("--task=squad2", "--gold=gold.json", "--predictions", "p.json")


def test_answers_and_thresholds(run, tmp_path):
  squad(tmp_path)
  files.write_json(tmp_path / "p.json", {"a": "the Rollo!", "b": "Norse", "c": "was"})
  files.write_json(tmp_path / "odds.json", {"a": -2.0, "b": -1.0, "c": 3.0})
  found = run(*SQUAD2)
  assert found["exact_match"] == found["f1"] == pytest.approx(100 / 3)
  assert "best_f1" not in found
  found = run(*SQUAD2, "--null_odds", "odds.json", "--threshold=0", "--output=out.json")
  assert found["f1"] == pytest.approx(200 / 3)
  assert (found["best_f1"], found["best_f1_thresh"], found["threshold"]) == (100, -2, -1.5)
  assert files.read_texts(tmp_path / "out.json") == {"a": "the Rollo!", "b": "Norse", "c": ""}


def test_several_n_best_files_are_one(run, tmp_path):
  squad(tmp_path)
  for name, text, p in (("p.json", "Norse", 0.6), ("q.json", "Rollo", 0.9)):
    entries = [{"text": text, "probability": p}, {"text": "was", "probability": 1 - p}]
    files.write_json(tmp_path / name, dict.fromkeys("abc", entries))
  files.write_json(tmp_path / "o1.json", {"a": -2.0, "b": 1.0, "c": 1.0})
  files.write_json(tmp_path / "o2.json", {"a": -1.0, "b": -2.0, "c": 1.0})
  found = run(*SQUAD2, "q.json", "--null_odds", "o1.json", "o2.json", "--threshold=-1")
  assert found["exact_match"] == 100  # Rollo by 0.45 against 0.3; mean odds −1.5, −0.5, 1


def test_version_1(run, monkeypatch, capsys, tmp_path):
  squad(tmp_path, impossible=False)
  files.write_json(tmp_path / "p.json", {"a": "Rollo was", "other": "x"})
  arguments = ("--task=squad1", "--gold=gold.json", "--predictions", "p.json")
  assert run(*arguments) == pytest.approx({"exact_match": 0, "f1": 100 * 2 / 3})
  files.write_json(tmp_path / "p.json", {"other": "x"})
  monkeypatch.setattr("sys.argv", ["evaluate", *arguments])
  evaluate.main()
  out, err = capsys.readouterr()
  assert out.split() == ["exact_match", "0", "f1", "0"]
  assert err.splitlines() == [
    "note: 1 predictions are for questions that the gold file does not have",
    "note: 1 questions without a prediction count as wrong",
  ]


def test_a_task_of_ones_own(run, tmp_path):
  write(tmp_path, "dev.tsv", "text\tmood", "x\tgood", "y\tbad", "z\tmixed")
  files.write_labels(tmp_path / "p.tsv", "012", ["good", "mixed", "mixed"])
  custom = ("--task=custom", "--texts", "text", "--label=mood", "--gold=dev.tsv", "--predictions", "p.tsv")
  assert run(*custom) == pytest.approx({"accuracy": 2 / 3})
  assert run(*custom, "--scores", "matthews", "accuracy") == pytest.approx(
    {"matthews": (2 * 3 - 3) / math.sqrt((9 - 5) * (9 - 3)), "accuracy": 2 / 3}
  )


def test_ones_own_labels_need_not_all_be_in_the_gold_file(run, fails, tmp_path):
  write(tmp_path, "dev.tsv", "sentence\tlabel", "x\tpos", "y\tneg", "z\tpos")
  write(tmp_path, "test.tsv", "sentence", "x", "y", "z")
  three = [("so-so", 0.2, 0.5, 0.3), ("neg", 0.6, 0.1, 0.3), ("pos", 0.1, 0.2, 0.7)]
  names = ("neg", "so-so", "pos")
  record = lambda i, value, p: {"id": i, "prediction": value, "probabilities": dict(zip(names, p, strict=True))}
  lines = [json.dumps(record(i, value, p)) for i, (value, *p) in enumerate(three)]
  write(tmp_path, "p.jsonl", *lines)
  write(tmp_path, "q.jsonl", *(json.dumps(record(i, "pos", (0.0, 0.1, 0.9))) for i in range(3)))
  files.write_labels(tmp_path / "p.tsv", "012", [value for value, *_ in three])
  write(tmp_path, "p.bare.tsv", *("\t".join(map(str, p)) for _, *p in three))
  own = ("--task=custom", "--gold=.", "--predictions")
  accuracy = pytest.approx({"accuracy": 2 / 3})
  assert run(*own, "p.jsonl") == run(*own, "p.tsv") == accuracy
  assert run(*own, "p.jsonl", "q.jsonl") == accuracy  # joined: pos, pos, pos
  assert run(*own, "p.bare.tsv", "--labels", *names) == accuracy
  assert "p.bare.tsv: 3 lines of 3 numbers" in fails(*own, "p.bare.tsv")
  assert run(*own, "p.jsonl", "q.jsonl", "--split=test", "--output=j.tsv") == {}
  assert files.read_labels(tmp_path / "j.tsv") == {"0": "pos", "1": "pos", "2": "pos"}
  assert "name the classes by --labels" in fails(*own, "p.bare.tsv", "--split=test", "--output=j.tsv")


def test_a_test_set_can_be_joined_but_not_scored(run, fails, tmp_path):
  write(tmp_path, "test.tsv", "index\tsentence", "0\tx", "1\ty")
  files.write_labels(tmp_path / "p.tsv", "01", "10")
  arguments = ("--task=sst2", "--gold=.", "--split=test", "--predictions", "p.tsv")
  assert run(*arguments, "p.tsv", "--output=SST-2.tsv") == {}
  assert (tmp_path / "SST-2.tsv").read_text() == (tmp_path / "p.tsv").read_text()
  assert "test.tsv:2: no label to score against" in fails(*arguments)


@pytest.mark.parametrize(
  ("lines", "said"),
  [
    (["index\tprediction", "0\t1", "1\t1", "2\t1"], "p.tsv: no prediction for 1 of 4 examples, the first is 3"),
    (
      ["index\tprediction", *(f"{i}\t1" for i in range(5))],
      "p.tsv: 5 predictions for 4 examples; 4 is not in the gold",
    ),
    (["index\tprediction", *(f"{i}\tyes" for i in range(4))], "p.tsv: prediction 'yes' is not one of 0, 1"),
    (["0.5\t0.5"], "p.tsv: 1 lines of 2 numbers, and the task needs 4 lines of 2 probabilities"),
    (["0"] * 4, "p.tsv: 4 lines of 1 numbers"),
    (["0.5\t0.5", "nan\t0.5"], "p.tsv:2: a probability that is no number"),
  ],
)
def test_predictions_that_do_not_fit(fails, tmp_path, mrpc, lines, said):
  write(tmp_path, "p.tsv", *lines)
  assert said in fails(*MRPC, "p.tsv")


def test_what_is_missing(fails, tmp_path, mrpc):
  assert "no.tsv" in fails(*MRPC, "no.tsv")
  assert "task 'x' is unknown" in fails("--task=x", "--gold=.", "--predictions", "p.tsv")
  squad(tmp_path)
  files.write_json(tmp_path / "p.json", {"a": "x"})
  assert "no prediction for 2 of 3 questions" in fails(*SQUAD2)
  assert "--threshold needs --null_odds" in fails(*SQUAD2, "--threshold=0")
  assert "a has no list of entries with text and probability, as in nbest" in fails(*SQUAD2, "p.json")
  assert "p.jsonl has one answer a question; several" in fails(*SQUAD2, "p.jsonl")
  squad(tmp_path, "one.json", impossible=False)
  one = ("--task=squad1", "--gold=one.json", "--predictions", "p.json", "--null_odds", "odds.json")
  assert "--null_odds and --threshold are of squad2" in fails(*one)
  write(tmp_path, "gold.txt", "EU B-ORG", "in O")
  write(tmp_path, "tags.txt", "EU B-ORG")
  ner = ("--task=conll2003", "--gold=gold.txt", "--predictions", "tags.txt")
  assert "tags.txt: not a tag for each of the 2 words of sentence 0" in fails(*ner)
  write(tmp_path, "p.jsonl", *(json.dumps({"id": i, "prediction": "1", "probabilities": [0.5]}) for i in range(4)))
  assert "p.jsonl: probabilities [0.5] are not of the labels 0, 1" in fails(*MRPC, "p.jsonl")
  lines = (json.dumps({"id": i, "prediction": "1", "probabilities": [0.5, float("nan")]}) for i in range(4))
  write(tmp_path, "p.jsonl", *lines)
  assert "p.jsonl: probabilities [0.5, nan] are not of the labels 0, 1" in fails(*MRPC, "p.jsonl")
