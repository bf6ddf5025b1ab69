"""Whatever is wrong with a file is named with its line, and what to do."""

import gzip
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
    ("sst2", "dev.tsv", "sentence\tlabel\na\t1\nb\t2\n", "dev.tsv:3: label '2' is not one of 0, 1; mend the line"),
    ("sst2", "dev.tsv", "sentence\tlabel\na\t\n", "dev.tsv:2: no 'label'"),
    ("sst2", "dev.tsv", "sentence\tlabel\n", "the dev split of task sst2 holds no examples"),
    ("sst2", "dev.tsv", "", "dev.tsv:1: the file is empty"),
    ("sst2", "dev.tsv", "\ufeff\r\n", "dev.tsv:1: the file is empty"),
    ("sst2", "dev.tsv", "text\tlabel\na\t1\n", "dev.tsv:1: no column 'sentence'; the first line names 'text', 'label'"),
    ("sst2", "dev.tsv", "sentence\tscore\na\t1\n", "dev.tsv:1: no column 'label'; the first line names 'sentence'"),
    ("sst2", "dev.tsv", "sentence\tlabel\na\tb\t1\n", "dev.tsv:2: 3 fields, where 2 columns are named; a tab always"),
    ("sst2", "dev.tsv", 'sentence\tlabel\n"two\nlines"\t1\n', "dev.tsv:2: 1 fields, where 2 columns are named"),
    ("sst2", "dev.tsv", "sentence\tlabel\na\t1\n\nb\t0\n", "dev.tsv:3: a blank line in a table; remove it"),
    ("cola", "dev.tsv", "gj04\t1\t\n", "dev.tsv:1: 3 fields, where 4 columns are named"),
    (
      "stsb",
      "dev.tsv",
      "sentence1\tsentence2\tscore\na\tb\t5.5\n",
      "dev.tsv:2: the score '5.5' is no number from 0 to 5",
    ),
    ("stsb", "dev.tsv", "sentence1\tsentence2\tscore\na\tb\tnan\n", "dev.tsv:2: the score 'nan' is no number"),
    ("stsb", "dev.tsv", "sentence1\tsentence2\tscore\na\tb\thigh\n", "dev.tsv:2: the score 'high' is no number"),
    (
      OWN,
      "dev.csv",
      'text,label\n"a\nb",yes\nc,maybe\n',
      "dev.csv:4: label 'maybe' is not one of no, yes; mend the line, or name all",
    ),
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
  [("France", 20, "' Franc'"), ("France", 900, "nothing"), ("France", -1, "nothing")],
)
def test_an_answer_that_is_not_where_it_is_said_to_be(tmp_path, answer, start, there):
  spoilt = WHERE | {"id": "x7", "answers": [{"text": answer, "answer_start": start}]}
  write(tmp_path / "train-v1.1.json", squad(WHERE, spoilt, indent=1))
  message = f"question x7: answer 'France' is said to begin at character {start} of its context of 28, where there is"
  with pytest.raises(ValueError, match=re.escape(f"{message} {there}; mend answer_start")) as error:
    read(TASKS["squad1"], tmp_path, "train")
  lines = (tmp_path / "train-v1.1.json").read_text().split("\n")
  number = int(re.search(r"json:(\d+):", str(error.value))[1])
  assert '"x7"' in lines[number - 1]


ENTITY = {"words": ["EU", "met"], "tags": ["B-ORG", "O"]}
CHOICE = {"context": "a", "question": "b", "options": ["c", "d"], "label": 1}
WITH = {"question": "q", "context": "a b", "answers": [{"text": "b", "answer_start": 2}], "is_impossible": False}


@pytest.mark.parametrize(
  ("task", "record", "message"),
  [
    ("rte", {"sentence1": ["a"], "sentence2": "b", "label": 1}, "'sentence1' is a list, where a text is needed"),
    ("rte", {"sentence1": "a", "sentence2": None, "label": 1}, "'sentence2' is missing, where a text is needed"),
    ("rte", {"sentence1": "a", "sentence2": "\ud83d", "label": 1}, "'sentence2' has half of a pair of surrogates"),
    ("rte", {"sentence1": "a", "sentence2": "b", "label": {}}, "'label' is an object, where a text is needed"),
    ("stsb", {"sentence1": "a", "sentence2": "b", "score": True}, "the score True is no number from 0 to 5"),
    ("stsb", {"sentence1": "a", "sentence2": "b", "score": [1]}, "the score [1] is no number from 0 to 5"),
    ("sst2", {"id": [3], "sentence": "a", "label": 1}, "'id' is a list, where a text is needed"),
    ("conll2003", ENTITY | {"words": 3}, "'words' is 3, where a list is needed"),
    ("conll2003", ENTITY | {"words": ["EU", None]}, "'words' is missing, where a text is needed"),
    ("conll2003", ENTITY | {"words": ["EU", " "]}, "a sentence of no words, or an empty word"),
    ("conll2003", ENTITY | {"tags": {"EU": "O"}}, "'tags' is an object, where a list is needed"),
    ("conll2003", ENTITY | {"tags": ["O", 1]}, "tag '1' is neither O nor like B-PER"),
    ("squad2", WITH | {"context": True}, "'context' is True, where a text is needed"),
    ("squad2", WITH | {"answers": "b"}, "question 0: 'answers' is 'b', where a list is needed"),
    ("squad2", WITH | {"answers": ["b"]}, "question 0: an answer is 'b', where {text, answer_start} is needed"),
    ("squad2", WITH | {"answers": {"text": ["b"]}}, "question 0: 'answers: answer_start' is missing, where a list is"),
    ("squad2", WITH | {"answers": {"text": ["b"], "answer_start": []}}, "question 0 has 1 answers and 0 starts"),
    ("squad2", WITH | {"answers": [{"text": "b"}]}, "question 0: 'answer_start' is missing, where a number of char"),
    ("squad2", WITH | {"answers": [{"text": "b", "answer_start": "2"}]}, "question 0: 'answer_start' is '2', where a"),
    ("squad2", WITH | {"answers": [{"text": [], "answer_start": 2}]}, "question 0: 'answers: text' is a list, where a"),
    ("squad2", WITH | {"is_impossible": "no"}, "question 0: 'is_impossible' is 'no'; write true or false"),
    ("squad2", WITH | {"is_impossible": True}, "question 0 has answers, and is_impossible=true; mend one of them"),
    ("squad2", WITH | {"answers": []}, "question 0 has neither answers nor is_impossible=true"),
    ("race", PASSAGE | {"questions": "A _ barks."}, "'questions' is 'A _ barks.', where a list is needed"),
    ("race", PASSAGE | {"questions": ["A _ barks.", 2, "c"]}, "'questions' and 'options' must be lists of one length"),
    ("race", PASSAGE | {"options": [["a", "b"], "cd"]}, "question 2: 'options' is 'cd', where a list is needed"),
    ("race", PASSAGE | {"options": [["a", "b"], ["a"]]}, "question 2: 'options' has 1 entries, where two or more"),
    ("race", PASSAGE | {"options": [["a", "b", "c"], ["a", []]]}, "question 2: 'options' is a list, where a text is"),
    ("race", PASSAGE | {"answers": "BD"}, "'answers' is 'BD', where a list is needed"),
    ("race", PASSAGE | {"article": ["Dogs bark."]}, "'article' is a list, where a text is needed"),
    (custom("choice"), CHOICE | {"options": "cd"}, "'options' is 'cd', where a list is needed"),
    (custom("choice"), CHOICE | {"label": True}, "label True is not one of the 2 options"),
    (custom("choice"), CHOICE | {"label": 0.5}, "label 0.5 is not one of the 2 options"),
    (custom("choice"), CHOICE | {"context": {}}, "'context' is an object, where a text is needed"),
    (OWN, {"text": float("nan"), "label": "yes"}, "'text' is nan, where a text is needed"),
  ],
)
def test_a_value_of_json_of_another_type_is_named_with_its_line(tmp_path, task, record, message):
  write(tmp_path / "dev.jsonl", json.dumps(record) + "\n")
  with pytest.raises(ValueError, match=re.escape(f"{tmp_path}/dev.jsonl:1: {message}")):
    read(task if isinstance(task, Task) else TASKS[task], tmp_path, "dev")


@pytest.mark.parametrize(
  ("content", "message"),
  [
    ([], "dev-v2.0.json:1: no 'data'"),
    ({"data": {}}, "dev-v2.0.json:1: 'data' is an object, where a list is needed"),
    ({"data": ["x"]}, "dev-v2.0.json:1: in 'data' an object {…} is needed, not str"),
    ({"data": [{}]}, "dev-v2.0.json:1: 'paragraphs' is missing, where a list is needed"),
    ({"data": [{"paragraphs": [{"context": "a"}]}]}, "dev-v2.0.json:1: 'qas' is missing, where a list is needed"),
    ({"data": [{"paragraphs": [{"qas": [NEVER]}]}]}, "dev-v2.0.json:1: 'context' is missing, where a text is needed"),
    ({"data": []}, "dev-v2.0.json:1: the dev split of task squad2 holds no examples"),
  ],
)
def test_a_file_of_squad_of_another_shape(tmp_path, content, message):
  write(tmp_path / "dev-v2.0.json", json.dumps(content))
  with pytest.raises(ValueError, match=re.escape(message)):
    read(TASKS["squad2"], tmp_path, "dev")


# A file of each layout, of two examples, in two lines or more.
GOOD = {
  "tsv": ("sst2", "dev.tsv", "index\tsentence\tlabel\n1\ta “b”\t1\n2\tb\t0\n"),
  "csv": (OWN, "dev.csv", 'id,text,label\n1,"a, ""b""",yes\n2,b,no\n'),
  "jsonl": (OWN, "dev.jsonl", '{"id": 1, "text": "a", "label": "yes"}\n{"id": 2, "text": "b", "label": "no"}\n'),
  "conll": ("conll2003", "dev.txt", "EU I-ORG\nmet O\n\nPeter I-PER\n"),
  "swag": ("swag", "val.csv", SWAG.replace("start", "id,start") + "1,x,a,b,c,d,1\n2,x,a,b,c,d,0\n"),
  "squad": ("squad2", "dev-v2.0.json", squad(WHERE, NEVER, indent=1)),
  "race": ("race_high", "dev/high/all.txt", "\n".join(json.dumps(PASSAGE | {"id": f"high{i}.txt"}) for i in "12")),
}


@pytest.fixture(params=GOOD)
def layout(request, tmp_path):
  """A layout's name, its good bytes, and how these or others are read."""
  task, name, text = GOOD[request.param]
  task, path = task if isinstance(task, Task) else TASKS[task], tmp_path / name
  path.parent.mkdir(parents=True, exist_ok=True)

  def reading(raw: bytes):
    path.write_bytes(raw)
    return read(task, tmp_path, "dev")

  return request.param, path, text.encode(), reading


def test_bytes_that_are_no_text(layout):
  _, path, good, reading = layout
  line = good.count(b"\n", 0, len(good) - 3) + 1
  with pytest.raises(ValueError, match=re.escape(f"{path}:{line}: not UTF-8; convert it: iconv -t UTF-8")):
    reading(good[:-3] + b"\xe9" + good[-3:])


@pytest.mark.parametrize("raw", [b"", b" \n\n", b"\xef\xbb\xbf\r\n"])
def test_an_empty_file(layout, raw):
  _, path, _, reading = layout
  with pytest.raises(ValueError, match=re.escape(f"{path}:1: the file is empty")):
    reading(raw)


def test_a_mark_and_windows_line_ends_change_no_example(layout, capsys):
  name, path, good, reading = layout
  expected = reading(good)
  assert capsys.readouterr().err == ""
  assert reading(b"\xef\xbb\xbf" + good.replace(b"\n", b"\r\n")) == expected
  notes = [f"note: {path}:1: a byte-order mark, left out"]
  if name != "squad":  # there a line end is no part of any text
    notes.append(f"note: {path}:1: Windows line ends (CRLF), read as plain ones")
  assert capsys.readouterr().err.splitlines() == notes


@pytest.mark.parametrize(
  ("name", "good", "twice", "line"),
  [
    ("tsv", b"\n2\t", b"\n1\t", 3),
    ("csv", b"\n2,", b"\n1,", 3),
    ("jsonl", b'"id": 2', b'"id": "1"', 2),
    ("swag", b"\n2,", b"\n1,", 3),
    ("squad", b'"id": "b"', b'"id": "a"', 22),
    ("race", b"high2.txt", b"high1.txt", 2),
  ],
)
def test_an_id_that_two_examples_have(tmp_path, name, good, twice, line):
  task, file, text = GOOD[name]
  write(tmp_path / file, text.encode().replace(good, twice).decode())
  with pytest.raises(ValueError, match=rf"{file}:{line}: the id '\S+' is also that of .*{file}:\d+; give each its own"):
    read(task if isinstance(task, Task) else TASKS[task], tmp_path, "dev")


def test_a_compressed_file(tmp_path):
  (tmp_path / "train.tsv").write_bytes(gzip.compress(b"text\tlabel\na\tyes\n"))
  with pytest.raises(ValueError, match=r"train\.tsv is compressed; unpack it: gunzip"):
    read(OWN, tmp_path, "train")


def test_blanks_around_labels_and_names_of_columns_are_no_part_of_them(tmp_path):
  write(tmp_path / "train.csv", "text, label\n a, yes\nb,yes \n")
  assert [(e.texts, e.label) for e in read(OWN, tmp_path, "train")] == [((" a",), "yes"), (("b",), "yes")]


def test_a_second_file_of_a_split_is_said_not_to_be_read(tmp_path, capsys):
  write(tmp_path / "train.tsv", "text\tlabel\na\tyes\n")
  write(tmp_path / "train.csv", "text,label\nb,no\n")
  assert [e.label for e in read(OWN, tmp_path, "train")] == ["yes"]
  assert capsys.readouterr().err == (
    f"note: {tmp_path / 'train.tsv'} is the train split; train.csv is there, too, and not read\n"
  )


def test_a_column_that_two_have_the_name_of(tmp_path):
  write(tmp_path / "dev.tsv", "sentence\tlabel\tsentence\na\t1\tb\n")
  with pytest.raises(ValueError, match=r"dev.tsv:1: two columns 'sentence'; give one of them another name"):
    read(TASKS["sst2"], tmp_path, "dev")


def test_a_long_field_of_a_csv_file_is_a_text(tmp_path):
  write(tmp_path / "dev.csv", f"text,label\n{'a ' * 100_000},yes\n")
  assert len(read(OWN, tmp_path, "dev")[0].texts[0]) == 200_000


def test_columns_of_words_are_parted_by_blanks_and_tabs_alone(tmp_path):
  write(tmp_path / "dev.txt", "10\u00a0000\tO\n\u0085 B-PER\n")
  assert read(TASKS["conll2003"], tmp_path, "dev")[0].words == ("10\u00a0000", "\u0085")


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
  with pytest.raises(
    ValueError, match=r"3 columns \(a, b, c\), and a model reads one text or two; write files in which"
  ):
    custom("classification", texts=("a", "b", "c"))
  with pytest.raises(ValueError, match="task kind 'ranking' is not one of classification"):
    custom("ranking")
