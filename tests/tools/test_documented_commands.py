"""The commands that README and Makefile show together work on one text."""

import argparse
import pathlib
import re
import shlex

import pytest

from tools import corpus_flags

ROOT = pathlib.Path(__file__).parents[2]
OTHER = (
  "--output",
  "--tokenizer",
  "--vocab_size",
  "--kind",
  "--family",
  "--cased",
  "$(VOCABULARY_FLAGS)",
)  # what is not about the text


def commands(path: pathlib.Path) -> list[tuple[str, list[str]]]:
  """Returns (tool, arguments) of the commands that make a vocabulary or a corpus, in order."""
  lines = path.read_text().replace("\\\n", " ").splitlines()
  pattern = r"-m tools\.(train_tokenizer|prepare_corpus) ([^;&]*)"
  return [(tool, shlex.split(rest)) for line in lines for tool, rest in re.findall(pattern, line)]


@pytest.mark.parametrize("file", ["README.md", "Makefile"])
def test_vocabulary_and_corpus_are_of_the_same_documents(file):
  parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
  corpus_flags.add(parser)
  found = commands(ROOT / file)
  assert [tool for tool, _ in found] == ["train_tokenizer", "prepare_corpus"] * (len(found) // 2)
  assert found
  for (_, train), (_, prepare) in zip(found[::2], found[1::2], strict=True):
    (one, left), (other, right) = parser.parse_known_args(train), parser.parse_known_args(prepare)
    assert vars(one) == vars(other)
    assert all(argument.startswith(OTHER) for argument in left + right)
