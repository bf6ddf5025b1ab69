"""The command that converts: its lines, its flags, its mistakes; tests/pretrained/test_export.py has what it writes."""

import importlib.util
import json
import pathlib

import numpy as np
import pytest

from pretrained.load import load
from tests import runs
from tests.pretrained.heads import FIXTURES
from tools import cli, convert


@pytest.fixture
def call(monkeypatch, capsys):
  def run(*arguments) -> str:
    monkeypatch.setattr("sys.argv", ["convert", *map(str, arguments)])
    cli.run(convert.main)
    return capsys.readouterr().out

  return run


def fails(call, capsys, *arguments) -> str:
  with pytest.raises(SystemExit) as raised:
    call(*arguments)
  assert raised.value.code == 1
  error = capsys.readouterr().err
  assert error.startswith("error: ")
  assert error.count("\n") == 1
  return error


def test_a_run_goes_out_and_comes_in(prepared_corpus, tmp_path, call):
  """A workdir to Hugging Face's layout, that to ours, and a run that starts from it where the first one ended."""
  straight = tmp_path / "straight"
  before = runs.run(straight, runs.config(prepared_corpus, steps=2))[-1]
  out = call(f"--src={straight}", f"--dst={tmp_path / 'hf'}", "--to=hf")
  assert out.splitlines()[-1] == f"{tmp_path / 'hf'}: bert, encoder, mlm_head, pair_head, pooler"
  call(f"--src={tmp_path / 'hf'}", f"--dst={tmp_path / 'ours'}", "--to=bidir")
  for folder in ("hf", "ours"):
    start = f"{tmp_path / folder}"
    after = runs.run(tmp_path / f"from-{folder}", runs.config(prepared_corpus, steps=2, init_from=start))[0]
    assert after["loss"] == pytest.approx(before["loss"], rel=1e-5)


def test_words_and_positions(tmp_path, call):
  words = pathlib.Path(tmp_path / "words.txt")
  words.write_text("cats\n")
  flags = (f"--vocab={words}", "--max_length=16")
  out = call(f"--src={FIXTURES / 'bert'}", f"--dst={tmp_path / 'a'}", "--to=hf", *flags)
  assert out.splitlines()[0] == "1 new words in a vocabulary of 96"
  loaded = load(tmp_path / "a")
  assert len(loaded.tokenizer.encode("cats")) == 1
  assert loaded.config.max_length == 16
  position = lambda one: one.params["encoder"]["embeddings"]["position"]["embedding"]
  np.testing.assert_array_equal(position(loaded), position(load(FIXTURES / "bert"))[:16])


def test_heads_are_left_out_on_request(tmp_path, call):
  call(f"--src={FIXTURES / 'bert'}", f"--dst={tmp_path / 'a'}", "--to=hf", "--body_only")
  assert load(tmp_path / "a").missing == ("mlm_head", "pair_head")
  assert json.loads((tmp_path / "a" / "config.json").read_text())["architectures"] == ["BertModel"]


@pytest.mark.parametrize(
  ("family", "flags", "said"),
  [
    ("bert", ["--max_length=25"], "--max_length=25 must lie in 1 to the model's 24"),
    ("xlnet", ["--max_length=8"], "this model has no position table"),
    ("bert", ["--vocab=/nowhere.txt"], "/nowhere.txt"),
    ("bert", ["--src=/nowhere"], "/nowhere: no such checkpoint"),
    ("bert", ["--src=hf:"], "'hf:' is not hf:ORG/NAME"),
  ],
)
def test_mistakes(family, flags, said, tmp_path, call, capsys):
  arguments = (f"--src={FIXTURES / family}", f"--dst={tmp_path / 'a'}", "--to=hf", *flags)
  assert said in fails(call, capsys, *arguments)
  assert not (tmp_path / "a").exists()


def test_the_check_needs_the_other_library(tmp_path, call, capsys, monkeypatch):
  there = importlib.util.find_spec
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "transformers" else there(name))
  error = fails(call, capsys, f"--src={FIXTURES / 'bert'}", f"--dst={tmp_path / 'a'}", "--to=hf", "--check")
  assert "--check needs transformers and torch" in error
