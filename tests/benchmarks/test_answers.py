"""The count of answers that come back through windows."""

import json
import os
import pathlib

import pytest

from benchmarks import answers
from data.tasks import answers as fates
from data.tasks.readers import read
from data.tasks.table import TASKS
from data.tokenizers import load_tokenizer
from tests.data.tasks import small
from tools import cli


def test_each_answer_is_counted_once_with_its_reason(tmp_path, monkeypatch, capsys):
  context = "The cats  sat on a mat."
  gold = [("cats", 4), ("sat on", 10), ("cat", 4), ("cat", 4), ("at", 11), ("he", 1), ("s  sat", 7), ("The", 0)]
  given = [{"text": text, "answer_start": at} for text, at in gold]
  questions = [
    {"id": "a", "question": "who sat?", "answers": given, "is_impossible": False},
    {"id": "b", "question": "who?", "answers": [], "is_impossible": True},
  ]
  squad = {"data": [{"paragraphs": [{"context": context, "qas": questions}]}]}
  (tmp_path / "dev-v2.0.json").write_text(json.dumps(squad))
  small.word_pieces().save(tmp_path / "pieces")
  flags = [f"--source={tmp_path}", "--tokenizer", str(tmp_path / "pieces"), "--length=12", "--doc_stride=2"]
  monkeypatch.setattr("sys.argv", ["answers", *flags, "--json"])
  cli.run(answers.main)
  # the cat ##s sat on a mat .
  expected = {fates.EXACT: 5, fates.BEGINS: 2}
  assert json.loads(capsys.readouterr().out) == {"tokenizer": str(tmp_path / "pieces"), "answers": 7} | expected
  monkeypatch.setattr("sys.argv", ["answers", *flags, "--show=1"])
  cli.run(answers.main)
  lines = capsys.readouterr().out.splitlines()
  assert lines[0].endswith("pieces: 7 answers")
  assert lines[2:] == [f"  {fates.BEGINS:<22}       2  0.2857", "    he cats  s[at] on a mat."]


@pytest.mark.parity
@pytest.mark.parametrize(
  "file",
  [
    "bert-base-uncased-vocab.txt",
    "bert-base-cased-vocab.txt",
    "albert-30k-clean.rebuilt.model",
    "xlnet-spiece.model",
  ],
)
def test_released_vocabularies_lose_only_answers_cut_inside_a_piece(file):
  vocabularies, squad = (os.environ.get(name) for name in ("BIDIR_VOCABULARIES", "BIDIR_SQUAD"))
  if not vocabularies or not squad:
    pytest.skip("BIDIR_VOCABULARIES and BIDIR_SQUAD do not name folders with vocabularies and dev-v2.0.json")
  tokenizer = load_tokenizer(pathlib.Path(vocabularies) / file)
  counts, _ = answers.count(read(TASKS["squad2"], squad, "dev"), tokenizer, 384, 128)
  assert counts.keys() <= {fates.EXACT, fates.BEGINS, fates.ENDS}
  assert counts[fates.EXACT] > 0.995 * counts.total()
