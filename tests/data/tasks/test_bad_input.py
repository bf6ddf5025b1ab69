"""Whatever is wrong with a file is named with its line, and what to do."""

import json
import re

import pytest

from data.tasks.readers import read
from data.tasks.table import TASKS, Task, custom
from tests.data.tasks.test_readers import NEVER, PASSAGE, WHERE, squad, write

OWN = custom("classification", texts=("text",), labels=("no", "yes"))
SWAG = "startphrase,sent1,sent2,ending0,ending1,label\n"


@pytest.mark.parametrize(
  ("task", "name", "text", "message"),
  [
    ("sst2", "dev.tsv", "sentence\tlabel\na\t1\nb\t2\n", "dev.tsv:3: label '2' is not one of 0, 1"),
    ("sst2", "dev.tsv", "sentence\tlabel\na\t\n", "dev.tsv:2: no 'label'"),
    ("sst2", "dev.tsv", "sentence\tlabel\n", "the dev split of task sst2 holds no examples"),
    ("sst2", "dev.tsv", "", "dev.tsv:1: the file is empty"),
    ("sst2", "dev.tsv", "\ufeff\r\n", "dev.tsv:1: the file is empty"),
    ("sst2", "dev.tsv", "text\tlabel\na\t1\n", "dev.tsv:1: no column 'sentence'; the first line names 'text', 'label'"),
    ("sst2", "dev.tsv", "sentence\tscore\na\t1\n", "dev.tsv:1: no column 'label'; the first line names 'sentence'"),
    ("sst2", "dev.tsv", "sentence\tlabel\na\tb\t1\n", "dev.tsv:2: 3 fields, where 2 columns are named; a tab always"),
    ("sst2", "dev.tsv", 'sentence\tlabel\n"two\nlines"\t1\n', "dev.tsv:2: 1 fields, where 2 columns are named"),
    ("sst2", "dev.tsv", "sentence\tlabel\na\t1\n\nb\t0\n", "dev.tsv:3: 1 fields, where 2 columns"),
    ("cola", "dev.tsv", "gj04\t1\t\n", "dev.tsv:1: 3 fields, where 4 columns are named"),
    (
      "stsb",
      "dev.tsv",
      "sentence1\tsentence2\tscore\na\tb\t5.5\n",
      "dev.tsv:2: the score '5.5' is no number from 0 to 5",
    ),
    ("stsb", "dev.tsv", "sentence1\tsentence2\tscore\na\tb\tnan\n", "dev.tsv:2: the score 'nan' is no number"),
    ("stsb", "dev.tsv", "sentence1\tsentence2\tscore\na\tb\thigh\n", "dev.tsv:2: the score 'high' is no number"),
    (OWN, "dev.csv", 'text,label\n"a\nb",yes\nc,maybe\n', "dev.csv:4: label 'maybe' is not one of no, yes"),
    (OWN, "dev.csv", 'text,label\n"a "b" c",yes\n', "dev.csv:2: ',' expected after '\"'; a field with a comma"),
    (OWN, "dev.csv", 'text,label\na,yes\n"b,no\nc,no\n', "dev.csv:3: unexpected end of data; a field with"),
    (OWN, "dev.csv", "text,label\na, b,yes\n", "dev.csv:2: 3 fields, where 2 columns are named; a field with a comma"),
    (OWN, "dev.jsonl", '{"text": "a", "label": "yes"}\n{"text": }\n', "dev.jsonl:2: no JSON: Expecting value"),
    (OWN, "dev.jsonl", '["a"]\n', "dev.jsonl:1: an object {…} is needed, not list"),
    (OWN, "dev.jsonl", '{"texts": "a", "label": "yes"}\n', "dev.jsonl:1: no column 'text'; it has texts, label"),
    ("yelp2", "test.csv", '"3","a"\n', "test.csv:1: label '3' is not one of 1, 2"),
    ("swag", "val.csv", SWAG + "x,a,b,c,d,2\n", "val.csv:2: label '2' is not one of the 2 options"),
    ("swag", "val.csv", SWAG.replace("sent2,", "") + "x,a,c,d,1\n", "val.csv:1: no column 'sent2'"),
    ("conll2003", "dev.txt", "EU I-ORG\nmet\n", "dev.txt:2: 1 columns, where the file's first word has 2"),
    ("conll2003", "dev.txt", "EU ORG\n", "dev.txt:1: tag 'ORG' is neither O nor like B-PER"),
    ("conll2003", "dev.txt", "a O\nEU B-GPE\n", "dev.txt:2: tag 'B-GPE' is not one of O, B-PER"),
    ("conll2003", "dev.txt", "EU\n", "dev.txt:1: a word without a tag"),
    ("conll2003", "dev.txt", "-DOCSTART- -X- O\n\n", "the dev split of task conll2003 holds no examples"),
    ("conll2003", "dev.jsonl", '{"words": [], "tags": []}', "dev.jsonl:1: a sentence of no words"),
    ("conll2003", "dev.jsonl", '{"words": ["a"], "tags": ["O", "O"]}', "dev.jsonl:1: 1 words and 2 tags"),
    ("squad1", "dev-v1.1.json", squad(WHERE, NEVER), "dev-v1.1.json:1: question b has no answer, which task squad1"),
    ("squad1", "dev-v1.1.json", squad({"question": "q", "id": "a"}), "dev-v1.1.json:1: question a has no 'answers'"),
    ("squad2", "dev-v2.0.json", '{"data": [\n}', "dev-v2.0.json:2: no JSON"),
    ("squad2", "dev-v2.0.json", '{"articles": []}', "dev-v2.0.json:1: no 'data'"),
    ("race_high", "dev/high/1.txt", json.dumps(PASSAGE | {"answers": ["B", "E"]}), "1.txt:1: question 2: label"),
    ("race_high", "dev/high/1.txt", json.dumps(PASSAGE | {"answers": ["B"]}), "1.txt:1: 2 questions and 1 answers"),
  ],
)
def test_it_is_named_with_its_line(tmp_path, task, name, text, message):
  write(tmp_path / name, text)
  task = task if isinstance(task, Task) else TASKS[task]
  with pytest.raises(ValueError, match=re.escape(message)) as error:
    read(task, tmp_path, "dev")
  assert str(tmp_path) in str(error.value)
  assert "\n" not in str(error.value)


@pytest.mark.parametrize(
  ("answer", "start", "there"),
  [("France", 20, "' Franc'"), ("France", 900, "nothing"), ("France", -1, "nothing"), ("France", None, "nothing")],
)
def test_an_answer_that_is_not_where_it_is_said_to_be(tmp_path, answer, start, there):
  spoilt = WHERE | {"id": "x7", "answers": [{"text": answer, "answer_start": start}]}
  write(tmp_path / "train-v1.1.json", squad(WHERE, spoilt, indent=1))
  start = -1 if start is None else start
  message = f"question x7: answer 'France' is said to begin at character {start} of its context of 28, where there is"
  with pytest.raises(ValueError, match=re.escape(f"{message} {there}; mend answer_start")) as error:
    read(TASKS["squad1"], tmp_path, "train")
  lines = (tmp_path / "train-v1.1.json").read_text().split("\n")
  number = int(re.search(r"json:(\d+):", str(error.value))[1])
  assert '"x7"' in lines[number - 1]


def test_bytes_that_are_no_text(tmp_path):
  (tmp_path / "dev.tsv").write_bytes(b"sentence\tlabel\na\t1\ncaf\xe9\t0\n")
  with pytest.raises(ValueError, match=r"dev.tsv:3: not UTF-8; convert it"):
    read(TASKS["sst2"], tmp_path, "dev")


def test_missing_files_and_splits_are_named(tmp_path):
  with pytest.raises(
    FileNotFoundError, match=r"no dev split of task sst2 in .*: neither .*/dev.tsv nor .*/SST-2/dev.tsv"
  ):
    read(TASKS["sst2"], tmp_path, "dev")
  with pytest.raises(ValueError, match="task ax has no split 'train'; it has test"):
    read(TASKS["ax"], tmp_path, "train")
  with pytest.raises(ValueError, match="task yelp5 is not in TFDS"):
    read(TASKS["yelp5"], "tfds:", "train")
  (tmp_path / "aclImdb/train/neg").mkdir(parents=True)
  with pytest.raises(FileNotFoundError, match="pos: no such folder"):
    read(TASKS["imdb"], tmp_path, "train")


def test_a_task_says_what_is_wrong_with_it():
  with pytest.raises(ValueError, match="texts names 3 columns; one or two texts fit"):
    custom("classification", texts=("a", "b", "c"))
  with pytest.raises(ValueError, match="task kind 'ranking' is not one of classification"):
    custom("ranking")
