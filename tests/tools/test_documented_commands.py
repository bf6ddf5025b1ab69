"""The commands that the documents and the Makefile show: each would be taken, and those on one text agree about it."""

import argparse
import importlib
import itertools
import pathlib
import re
import shlex
import string

import pytest

from launch import command
from tools import corpus_flags
from training import run_flags

ROOT = pathlib.Path(__file__).parents[2]
DOCUMENTS = ["README.md", "colab/README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
RECIPES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "configs").rglob("*.py"))
OTHER = (
  "--output",
  "--tokenizer",
  "--vocab_size",
  "--kind",
  "--family",
  "--cased",
  "$(VOCABULARY_FLAGS)",
)  # what is not about the text
_COMMAND = re.compile(r"\bpython (train\.py|-m (?:tools|benchmarks|launch)\.\w+)([^`;]*)")


def commands(path: pathlib.Path) -> list[tuple[str, list[str]]]:
  """Returns (tool, arguments) of the commands that make a vocabulary or a corpus, in order."""
  lines = path.read_text().replace("\\\n", " ").splitlines()
  pattern = r"-m tools\.(train_tokenizer|prepare_corpus) ([^;&]*)"
  return [(tool, shlex.split(rest)) for line in lines for tool, rest in re.findall(pattern, line)]


def shown(text: str) -> list[tuple[str, list[str]]]:
  """Returns ("train.py" or a module, arguments) of the commands in a text; what `NAME="…"` and `for NAME in …` above
  say is put in."""
  found, variables = [], {}
  for line in text.replace("\\\n", " ").splitlines():
    if assigned := re.match(r'([A-Z]+)="(.*)"$', line):
      variables[assigned[1]] = [assigned[2]]
    if loop := re.search(r"for ([A-Z]+) in (.*); do", line):
      variables[loop[1]] = loop[2].split()
    for what, rest in _COMMAND.findall(line):
      rest = re.sub(r"\s#.*", "", rest)
      names = sorted(set(re.findall(r"\$([A-Z]+)\b", rest)))
      for values in itertools.product(*(variables[name] for name in names)):
        whole = string.Template(rest).safe_substitute(dict(zip(names, values, strict=True)))
        if "…" not in rest:
          found.append((what.removeprefix("-m "), shlex.split(whole)))
  return found


def test_commands_are_found_with_their_variables():
  text = (
    'RUN="--a=1"\n$ python train.py $RUN --b \\\n  "c d"  # why\n`python -m tools.x` and `python -m tools.y --z=…`\n'
  )
  text += "for X in 1 2; do\n  python -m tools.z $X-$RUN\ndone"
  of_loop = [("tools.z", ["1---a=1"]), ("tools.z", ["2---a=1"])]
  assert shown(text) == [("train.py", ["--a=1", "--b", "c d"]), ("tools.x", []), *of_loop]


class Parsed(Exception):
  """A tool has made its parser, and asked it."""


def take(monkeypatch, module: str, arguments: list[str]) -> list[str]:
  """Returns what the parser of a module leaves of the arguments.

  Raises:
    argparse.ArgumentError, SystemExit: it does not take them.
  """

  def stop(asked):
    def ask(parser, args=None, namespace=None):
      try:
        left = asked(parser, arguments, namespace)
      except SystemExit:
        raise AssertionError(f"{module} does not take {shlex.join(arguments)}") from None
      raise Parsed(left[1] if isinstance(left, tuple) else [])

    return ask

  with monkeypatch.context() as patch:
    for name in ("parse_known_args", "parse_args"):
      patch.setattr(argparse.ArgumentParser, name, stop(getattr(argparse.ArgumentParser, name)))
    patch.setattr("sys.argv", [module])
    with pytest.raises(Parsed) as asked:
      importlib.import_module(module).main()
  return asked.value.args[0]


@pytest.mark.parametrize("file", DOCUMENTS + RECIPES)
def test_what_is_shown_is_taken(file, monkeypatch):
  monkeypatch.chdir(ROOT)
  for what, arguments in shown((ROOT / file).read_text()):
    own, train = command.split(arguments) if what.startswith("launch.") else (arguments, [])
    if what != "train.py":
      own = take(monkeypatch, what, own)
    if what == "tools.ablations" and own:  # the rest is about the text
      parser = argparse.ArgumentParser(allow_abbrev=False)
      corpus_flags.add(parser)
      parser.parse_args(own)
    elif what == "train.py":
      run_flags.parsed(own)
    elif own or train:
      recipe = [argument for argument in arguments if argument.startswith("--config=")]
      run_flags.parsed(["--workdir=-", *recipe, *own, *train])


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
