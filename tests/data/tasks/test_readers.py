"""The official layouts are read as they are."""

import json

import pytest

from data.tasks.examples import ChoiceExample, SpanExample, TagExample, TextExample
from data.tasks.readers import read, with_labels
from data.tasks.table import TASKS, custom, find_task
from data.tasks.tags import to_iob2


def write(path, text: str):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(text.encode())
  return path.parent


def test_cola_has_a_header_in_its_test_set_alone(tmp_path):
  write(tmp_path / "CoLA/dev.tsv", 'gj04\t1\t\tThe "sailors" rode.\ncj99\t0\t*\tAs you eat\n')
  write(tmp_path / "CoLA/test.tsv", "index\tsentence\n7\tBill whistled.\n")
  assert read(TASKS["cola"], tmp_path, "dev") == [
    TextExample("0", ('The "sailors" rode.',), "1"),
    TextExample("1", ("As you eat",), "0"),
  ]
  assert read(TASKS["cola"], tmp_path / "CoLA", "dev")[1].where == f"{tmp_path}/CoLA/dev.tsv:2"
  assert read(TASKS["cola"], tmp_path, "test") == [TextExample("7", ("Bill whistled.",))]


def test_quotes_and_line_separators_are_text_in_glue(tmp_path):
  write(tmp_path / "dev.tsv", 'sentence\tlabel\n"a "" b\u2028 c\t1\n d\x85 "\t0\n')
  assert [e.texts[0] for e in read(TASKS["sst2"], tmp_path, "dev")] == ['"a "" b\u2028 c', ' d\x85 "']


def test_columns_go_by_name(tmp_path):
  write(tmp_path / "MRPC/train.tsv", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t9\t8\tA b\tC d\n")
  write(tmp_path / "MRPC/test.tsv", "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n3\t9\t8\tE\tF\n")
  assert read(TASKS["mrpc"], tmp_path, "train") == [TextExample("0", ("A b", "C d"), "1")]
  assert read(TASKS["mrpc"], tmp_path, "test") == [TextExample("3", ("E", "F"))]
  header = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
  write(tmp_path / "STS-B/dev.tsv", header + "\tscore\n4\tg\tf\ty\to\ts\ts\tA\tB\t3.250\n")
  assert read(TASKS["stsb"], tmp_path, "dev") == [TextExample("4", ("A", "B"), 3.25)]


def test_mnli_has_two_dev_sets(tmp_path):
  write(
    tmp_path / "MNLI/dev_matched.tsv", "index\tsentence1\tsentence2\tlabel1\tgold_label\n0\tA\tB\tneutral\tentailment\n"
  )
  write(tmp_path / "MNLI/dev_mismatched.tsv", "index\tsentence1\tsentence2\tgold_label\n0\tC\tD\tcontradiction\n")
  assert read(TASKS["mnli"], tmp_path, "dev") == [TextExample("0", ("A", "B"), "entailment")]
  assert read(TASKS["mnli"], tmp_path, "dev_mismatched")[0].label == "contradiction"
  assert TASKS["mnli"].labels == TASKS["ax"].labels == ("contradiction", "entailment", "neutral")


def test_broken_lines_of_qqp_are_left_out_with_a_note(tmp_path, capsys):
  header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
  write(tmp_path / "train.tsv", header + "1\t1\t2\tA?\tB?\t0\n2\tbroken\n5\t3\t4\tC?\t\t1\n")
  assert read(TASKS["qqp"], tmp_path, "train") == [
    TextExample("1", ("A?", "B?"), "0"),
    TextExample("5", ("C?", ""), "1"),
  ]
  assert f"note: {tmp_path}/train.tsv:3: 1 lines with another number of fields were left out" in capsys.readouterr().err


def test_a_mark_and_windows_line_ends_are_mended_with_a_note(tmp_path, capsys):
  write(tmp_path / "dev.tsv", "\ufeffsentence\tlabel\r\na\t1\r\nb\t0\r\n")
  assert read(TASKS["sst2"], tmp_path, "dev") == [TextExample("0", ("a",), "1"), TextExample("1", ("b",), "0")]
  assert capsys.readouterr().err == (
    f"note: {tmp_path}/dev.tsv:1: a byte-order mark, left out\n"
    f"note: {tmp_path}/dev.tsv:1: Windows line ends (CRLF), read as plain ones\n"
  )


def test_reviews_are_quoted_and_escaped(tmp_path):
  write(tmp_path / "yelp_review_full_csv/train.csv", '"5","dr. ""Gold""\\n, nice \\""so\\"""\n"1","two\nlines"\n')
  assert read(TASKS["yelp5"], tmp_path, "train") == [
    TextExample("0", ('dr. "Gold" , nice "so"',), "5"),
    TextExample("1", ("two\nlines",), "1"),
  ]
  write(tmp_path / "ag_news_csv/test.csv", '"3","Title","Text, more"\n"4","","Text"\n')
  assert read(TASKS["ag"], tmp_path, "dev") == [
    TextExample("0", ("Title Text, more",), "3"),
    TextExample("1", ("Text",), "4"),
  ]


def test_imdb_keeps_a_class_in_a_folder(tmp_path):
  for name, text in (("neg/2_1", "Bad.<br /><br />No"), ("neg/10_3", "Worse"), ("pos/0_9", "Good")):
    write(tmp_path / f"aclImdb/train/{name}.txt", text)
  assert read(TASKS["imdb"], tmp_path, "train") == [
    TextExample("neg/2_1", ("Bad. No",), "neg"),
    TextExample("neg/10_3", ("Worse",), "neg"),
    TextExample("pos/0_9", ("Good",), "pos"),
  ]


def test_a_continuation_of_swag_begins_with_the_second_sentence(tmp_path):
  header = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
  write(tmp_path / "val.csv", header + '0,v,1,x,"A man, old.",He,gold,runs.,"sits, ""well"".",a,b,2\n')
  options = ("He runs.", 'He sits, "well".', "He a", "He b")
  assert read(TASKS["swag"], tmp_path, "dev") == [ChoiceExample("0", "A man, old.", options, 2)]


PASSAGE = {
  "article": "Dogs bark.",
  "questions": ["A _ barks.", "Who barks?"],
  "options": [["cat", "dog", "ape", "cow"], ["Cats", "Dogs", "Apes", "Cows"]],
  "answers": ["B", "D"],
}


def test_race_has_a_folder_a_level_and_a_file_a_passage(tmp_path):
  for name in ("middle/10.txt", "middle/9.txt", "high/3.txt"):
    number = name.replace("/", "")
    write(tmp_path / "RACE/dev" / name, json.dumps(PASSAGE | {"id": number}))
  found = read(TASKS["race"], tmp_path, "dev")
  assert [(e.id, e.group, e.label) for e in found] == [
    ("middle9.txt-0", "middle", 1),
    ("middle9.txt-1", "middle", 3),
    ("middle10.txt-0", "middle", 1),
    ("middle10.txt-1", "middle", 3),
    ("high3.txt-0", "high", 1),
    ("high3.txt-1", "high", 3),
  ]
  assert found[0].options == ("A cat barks.", "A dog barks.", "A ape barks.", "A cow barks.")
  assert found[1].options == ("Who barks? Cats", "Who barks? Dogs", "Who barks? Apes", "Who barks? Cows")
  assert found[0].context == "Dogs bark."
  assert len(read(TASKS["race_high"], tmp_path / "RACE", "dev")) == 2


def test_race_may_be_all_in_one_file(tmp_path):
  lines = [json.dumps(PASSAGE | {"id": f"middle{i}.txt"}) for i in range(2)]
  write(tmp_path / "test/middle/all.txt", "\n".join(lines) + "\n")
  found = read(TASKS["race_middle"], tmp_path, "test")
  assert [e.where for e in found] == [f"{tmp_path}/test/middle/all.txt:{i}" for i in (1, 1, 2, 2)]


TAGS = ("O", "B-PER", "B-PER", "I-PER", "B-LOC", "O", "B-LOC")


@pytest.mark.parametrize(
  "scheme",
  [
    ("O", "I-PER", "B-PER", "I-PER", "I-LOC", "O", "I-LOC"),  # IOB1
    TAGS,  # IOB2
    ("O", "S-PER", "B-PER", "E-PER", "S-LOC", "O", "S-LOC"),  # BIOES
    ("O", "U-PER", "B-PER", "L-PER", "U-LOC", "O", "U-LOC"),  # BILOU
  ],
)
def test_tags_of_every_scheme_become_iob2(tmp_path, scheme):
  words = [f"w{i}\tNN {tag}" for i, tag in enumerate(scheme)]
  write(tmp_path / "eng.testa", "-DOCSTART- -X- O\n\n" + "\n".join(words) + "\n\n\n-DOCSTART- -X- O\n\nx NN O\n")
  assert read(TASKS["conll2003"], tmp_path, "dev") == [
    TagExample("0", tuple(f"w{i}" for i in range(7)), TAGS),
    TagExample("1", ("x",), ("O",)),
  ]


def test_a_word_behind_the_end_of_an_entity_begins_another():
  """conlleval's startOfChunk."""
  tags = ("E-PER", "I-PER", "S-PER", "I-PER", "I-PER")
  assert to_iob2(tags, [""] * 5) == ("B-PER", "B-PER", "B-PER", "B-PER", "I-PER")


def squad(*questions: dict, context: str = "The Normans lived in France.", indent: int | None = None) -> str:
  article = {"title": "Normans", "paragraphs": [{"context": context, "qas": list(questions)}]}
  return json.dumps({"version": "v2.0", "data": [article]}, indent=indent)


WHERE = {"question": "Where?", "id": "a", "answers": [{"text": "France", "answer_start": 21}]}
NEVER = {"question": "When?", "id": "b", "answers": [], "is_impossible": True}


def test_squad_is_read_with_its_answers(tmp_path):
  write(tmp_path / "dev-v2.0.json", squad(WHERE | {"is_impossible": False}, NEVER))
  write(tmp_path / "dev-v1.1.json", squad(WHERE))
  context = "The Normans lived in France."
  where = SpanExample("a", "Where?", context, (("France", 21),), False, "Normans")
  assert read(TASKS["squad2"], tmp_path, "dev") == [where, SpanExample("b", "When?", context, (), True, "Normans")]
  assert read(TASKS["squad1"], tmp_path, "dev") == [where]
  write(tmp_path / "test-v1.1.json", squad({"question": "Where?", "id": "a"}))
  assert read(TASKS["squad1"], tmp_path, "test") == [SpanExample("a", "Where?", context, (), None, "Normans")]


def test_the_line_of_a_question_is_that_of_its_id(tmp_path):
  text = squad(WHERE, WHERE | {"id": "c"}, indent=1)
  write(tmp_path / "train-v1.1.json", text)
  lines = text.split("\n")
  for example in read(TASKS["squad1"], tmp_path, "train"):
    assert f'"{example.id}"' in lines[int(example.where.split(":")[1]) - 1]


@pytest.mark.parametrize(
  ("task", "record", "expected"),
  [
    (TASKS["sst2"], {"sentence": "a", "label": 1}, TextExample("0", ("a",), "1")),
    (TASKS["stsb"], {"id": "x", "sentence1": "a", "sentence2": "b", "score": 2}, TextExample("x", ("a", "b"), 2.0)),
    (
      TASKS["conll2003"],
      {"words": ["EU", "met"], "tags": ["I-ORG", "O"]},
      TagExample("0", ("EU", "met"), ("B-ORG", "O")),
    ),
    (TASKS["conll2003"], {"tokens": "EU met"}, TagExample("0", ("EU", "met"))),
    (
      TASKS["squad1"],
      {"question": "q", "context": "a b", "answers": {"text": ["b"], "answer_start": [2]}},
      SpanExample("0", "q", "a b", (("b", 2),), False),
    ),
    (TASKS["squad2"], {"question": "q", "context": "a b"}, SpanExample("0", "q", "a b")),
    (
      TASKS["squad2"],
      {"question": "q", "context": "a b", "answers": []},
      SpanExample("0", "q", "a b", (), True),
    ),
    (
      TASKS["race"],
      {"article": "a", "question": "b _", "options": ["c", "d"], "answer": "B", "id": "high1"},
      ChoiceExample("high1", "a", ("b c", "b d"), 1, "high"),
    ),
    (
      custom("choice"),
      {"context": "a", "question": "q?", "options": ["c", "d", "e"], "label": 2},
      ChoiceExample("0", "a", ("q? c", "q? d", "q? e"), 2),
    ),
  ],
)
def test_every_task_reads_json_lines(tmp_path, task, record, expected):
  write(tmp_path / "test.jsonl", json.dumps(record) + "\n")
  assert read(task, tmp_path / "test.jsonl", "test") == [expected]
  assert read(task, tmp_path, "test") == [expected]


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl"])
def test_a_task_of_ones_own_finds_its_labels(tmp_path, suffix):
  rows = [("good", "b, c", "yes"), ("bad", "d", "no"), ("odd", "e", "maybe")]
  if suffix == "jsonl":
    text = "".join(json.dumps({"id": i, "text": t, "class": c}) + "\n" for i, t, c in rows)
  else:
    quoted = '"{1}"' if suffix == "csv" else "{1}"
    line = "\t".join(("{0}", quoted, "{2}")) if suffix == "tsv" else ",".join(("{0}", quoted, "{2}"))
    text = line.replace('"', "").format("id", "text", "class") + "\n" + "".join(line.format(*r) + "\n" for r in rows)
  write(tmp_path / f"train.{suffix}", text)
  task = custom("classification", texts=("text",), label="class")
  examples = read(task, tmp_path, "train")
  assert examples == [TextExample(i, (t,), c) for i, t, c in rows]
  task = with_labels(task, examples)
  assert task.labels == ("maybe", "no", "yes")
  assert with_labels(TASKS["sst2"], examples) is TASKS["sst2"]


def test_tags_of_ones_own_come_in_pairs(tmp_path):
  write(tmp_path / "train.txt", "a I-X\nb O\n\nc B-Q\n")
  examples = read(custom("tagging"), tmp_path, "train")
  assert with_labels(custom("tagging"), examples).labels == ("O", "B-Q", "I-Q", "B-X", "I-X")


def test_the_table_is_whole():
  glue = {"cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "ax", "qnli", "rte", "wnli"}
  others = {"squad1", "squad2", "swag", "race", "conll2003"}
  texts = {"imdb": 2, "yelp2": 2, "yelp5": 5, "ag": 4, "dbpedia": 14, "amazon2": 2, "amazon5": 5}
  assert glue | others | texts.keys() <= TASKS.keys()
  assert {name: len(TASKS[name].labels) for name in texts} == texts
  assert all(task.name == name for name, task in TASKS.items())
  with pytest.raises(ValueError, match="task 'colla' is unknown; use one of cola, sst2"):
    find_task("colla")
