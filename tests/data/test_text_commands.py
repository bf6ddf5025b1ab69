"""tools.train_tokenizer and tools.prepare_corpus: from files to a corpus, and every bad input in one line."""

import importlib
import json
import re
import sys

import pytest

from data.corpus import Corpus
from data.tokenizers import load_tokenizer
from data.wordpiece import SPECIAL
from tools import cli

TEXT = "\n\n".join(f"The cat sat on mat {i}. It was a good cat.\nThe dog ran, and ran again!" for i in range(60))


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
  """Runs a command in this process and returns (exit status, stdout, stderr)."""

  def run(name, *args):
    args = [*args, f"--data_dir={tmp_path}/tfds", "--processes=1"]
    monkeypatch.setattr(sys, "argv", [name, *args])
    try:
      cli.run(importlib.import_module(f"tools.{name}").main)
      status = 0
    except SystemExit as exit_:
      status = exit_.code or 0
    printed = capsys.readouterr()
    return status, printed.out, printed.err

  return run


@pytest.fixture
def vocabulary(tmp_path):
  (tmp_path / "vocab").mkdir()
  (tmp_path / "vocab" / "vocab.txt").write_text("\n".join((*SPECIAL, "the", "cat", "##s", "c", "##a", "##t", "x", ".")))
  return str(tmp_path / "vocab")


def test_from_files_to_a_corpus(command, tmp_path):
  (tmp_path / "a.txt").write_text(TEXT)
  files = f"--input={tmp_path}/*.txt"
  status, out, err = command("train_tokenizer", files, "--vocab_size=70", f"--output={tmp_path}/tokenizer")
  assert (status, err) == (0, "")
  assert f"{tmp_path}/tokenizer: 70 pieces" in out
  assert len(load_tokenizer(tmp_path / "tokenizer").pieces) == 70
  args = (files, "--heldout=0.2", f"--tokenizer={tmp_path}/tokenizer", f"--output={tmp_path}/corpus")
  status, out, err = command("prepare_corpus", *args)
  assert (status, err) == (0, "")
  index = Corpus.open(tmp_path / "corpus", "train").index
  assert index.splits["train"].total("documents") + index.splits["heldout"].total("documents") == 60
  assert index.splits["train"].total("sentences") == 3 * index.splits["train"].total("documents")
  assert f"train: {index.splits['train'].total('documents')} documents (0 duplicates dropped), " in out
  again = command("prepare_corpus", *args)
  assert again[1].splitlines()[:2] == out.splitlines()[:2]


def test_a_vocabulary_with_options(command, tmp_path):
  (tmp_path / "a.txt").write_text(TEXT)
  args = (f"--input={tmp_path}/a.txt", "--vocab_size=5000", "--cased", "--unused=3", "--max_alphabet=60")
  status, out, _ = command("train_tokenizer", *args, "--criterion=likelihood", f"--output={tmp_path}/tokenizer")
  tokenizer = load_tokenizer(tmp_path / "tokenizer")
  assert (status, tokenizer.lowercase, tokenizer.special.sum()) == (0, False, 8)
  assert "The" in tokenizer.pieces
  assert f"note: {len(tokenizer.pieces)} pieces only" in out


def test_from_files_to_a_corpus_with_sentencepiece(command, tmp_path):
  (tmp_path / "a.txt").write_text(TEXT)
  files = f"--input={tmp_path}/*.txt"
  train = ("train_tokenizer", "--kind=sentencepiece", files, "--vocab_size=45")
  status, out, err = command(*train, f"--output={tmp_path}/tokenizer")
  assert (status, err) == (0, "")
  assert f"{tmp_path}/tokenizer: 45 pieces from about 0.0 MB of text" in out
  assert command(*train, f"--output={tmp_path}/again")[0] == 0
  one, other = ((tmp_path / folder / "spiece.model").read_bytes() for folder in ("tokenizer", "again"))
  assert one == other
  args = (files, "--heldout=0.2", f"--tokenizer={tmp_path}/tokenizer", f"--output={tmp_path}/corpus")
  status, out, err = command("prepare_corpus", *args)
  assert (status, err) == (0, "")
  corpus = Corpus.open(tmp_path / "corpus", "heldout")
  tokenizer = load_tokenizer(tmp_path / "corpus" / "tokenizer")
  assert tokenizer == load_tokenizer(tmp_path / "tokenizer")
  corpus.require_tokenizer(tokenizer)
  first = tokenizer.decode(corpus.tokens(0, int(corpus.sentence_starts[1])))
  assert re.fullmatch(r"the cat sat on mat \d+\.", first)
  assert command("prepare_corpus", *args)[1].splitlines()[:2] == out.splitlines()[:2]


def test_a_vocabulary_of_xlnet(command, tmp_path):
  (tmp_path / "a.txt").write_text(TEXT)
  args = ("--kind=sentencepiece", "--family=xlnet", "--cased", "--keep_accents", f"--input={tmp_path}/a.txt")
  status, out, _ = command("train_tokenizer", *args, "--vocab_size=5000", f"--output={tmp_path}/tokenizer")
  tokenizer = load_tokenizer(tmp_path / "tokenizer")
  assert (status, tokenizer.lowercase, tokenizer.keep_accents, tokenizer.mask_id) == (0, False, True, 6)
  assert f"note: {tokenizer.vocab_size} pieces only" in out


@pytest.mark.parametrize(
  ("args", "message"),
  [
    (["--kind=sentencepiece", "--min_frequency=3"], "--min_frequency does not go with --kind=sentencepiece"),
    (["--keep_accents"], "--keep_accents does not go with --kind=wordpiece"),
    (["--kind=sentencepiece", "--vocab_size=9"], "Vocabulary size is smaller than required_chars"),
    (["--kind=sentencepiece", "--character_coverage=0"], "character_coverage=0.0 is no share"),
    (["--kind=sentencepiece", "--output=FOLDER"], "holds a wordpiece vocabulary (vocab.txt); delete it or choose"),
  ],
)
def test_a_vocabulary_that_cannot_be_trained(command, tmp_path, vocabulary, args, message):
  (tmp_path / "a.txt").write_text(TEXT)
  args = [f"--output={tmp_path}/new", *(arg.replace("FOLDER", vocabulary) for arg in args)]
  status, _, err = command("train_tokenizer", f"--input={tmp_path}/a.txt", *args)
  assert (status, err.count("\n")) == (1, 1)
  assert message in err
  assert not (tmp_path / "new").exists()


def test_documents_of_one_sentence_are_told(command, tmp_path, vocabulary):
  (tmp_path / "a.txt").write_text("Cats. The cat.\n\nCat.\n\nThe cats.")
  args = (f"--input={tmp_path}/a.txt", "--heldout=0", f"--tokenizer={vocabulary}", f"--output={tmp_path}/corpus")
  status, out, _ = command("prepare_corpus", *args)
  assert status == 0
  # [cats . the cat .] [cat .] [the cats .]: 7 + 2 + 4 tokens, "cats" is cat ##s
  assert "note: 2 documents of train are of one sentence (50.0% of its tokens)" in out
  assert "note: nothing is held out" in out


@pytest.mark.parametrize(
  ("content", "args", "message"),
  [
    (None, [], "no file matches"),
    (b"", [], "a.txt hold no text"),
    (b"\n \n\n", [], "no documents in the train split: "),
    (
      b"one document\n",
      ["--heldout=0.5"],
      "a.txt hold no text, or so few documents that none is left for it with --heldout=0.5",
    ),
    (b"\x7fELF\0\0\0", [], "a.txt, line 1: holds a NUL byte: is it a binary file?"),
    (b"fine\n\xff\n", [], "a.txt, line 2: byte 0xff is not UTF-8"),
    (
      b"fine\n" + b"word " * 200_001,
      [],
      "a.txt, line 2: longer than 1000000 bytes; break it up or raise --max_line_bytes",
    ),
    (b"{}\n", ["--documents=json:text"], "a.txt, line 1: no text in field 'text'"),
    (b"fine\n", ["--documents=paragraph"], "documents='paragraph' is none of blank_line, file, line, json:FIELD"),
    (b"fine\n", ["--heldout=1.5"], "heldout=1.5 is no fraction"),
    (b"fine\n", ["--text_field=body"], "--text_field does not go with --input"),
    (b"fine\n", ["--max_line_bytes=0"], "max_line_bytes=0 must be at least 1"),
    (b"fine\n", ["--tokenizer=nowhere"], "nowhere: no such tokenizer"),
    (b"fine\n", ["--tokenizer=FOLDER/bad"], "the vocabulary has no [MASK] piece"),
    (b"fine\n", ["--output=gs://bucket/corpus"], "gs://bucket/corpus cannot be reached"),
  ],
)
def test_bad_input_is_one_line(command, tmp_path, vocabulary, content, args, message):
  (tmp_path / "bad").mkdir()
  (tmp_path / "bad" / "vocab.txt").write_text("\n".join(SPECIAL[:4]))
  if content is not None:
    (tmp_path / "a.txt").write_bytes(content)
  args = [arg.replace("FOLDER", str(tmp_path)) for arg in args]
  args = [f"--input={tmp_path}/a.txt", "--heldout=0", f"--tokenizer={vocabulary}", f"--output={tmp_path}/corpus", *args]
  status, _, err = command("prepare_corpus", *args)
  assert status == 1
  assert err.startswith("error: ")
  assert err.count("\n") == 1
  assert message in err
  assert not (tmp_path / "corpus" / "corpus.json").exists()


def test_a_flag_of_another_source_is_not_ignored(command, tmp_path):
  for flag in ("--documents=line", "--heldout=0.1", "--train_split=test", "--heldout_input=a.txt"):
    status, _, err = command("train_tokenizer", "--corpus=wikipedia_sample", f"--output={tmp_path}", flag)
    assert (status, err) == (1, f"error: {flag.split('=')[0]} does not go with --corpus\n")


@pytest.mark.parametrize(
  ("flags", "message"),
  [
    (["--runner=DirectRunner"], "--runner needs Apache Beam, which is not installed: pip install -r requirements-beam"),
    (["--runner=DirectRunner", "--processes=77"], "--processes does not go with --runner; --beam_options says how"),
    (["--beam_options=--region=R"], "--beam_options goes with --runner"),
    (["--runner=DataflowRunner"], "--output=OUT: Dataflow's workers reach no disk of this machine; give a gs:// path"),
    (["--runner=DataflowRunner", "--output=gs://B/C"], "--data_dir=: Dataflow's workers reach no disk"),
  ],
)
def test_apache_beam_is_wanted_only_with_a_runner(monkeypatch, capsys, vocabulary, flags, message):
  monkeypatch.setitem(sys.modules, "apache_beam", None)
  monkeypatch.delitem(sys.modules, "data.beam", raising=False)
  monkeypatch.delattr("data.beam", raising=False)
  flags = ["--corpus=wikipedia_sample", f"--tokenizer={vocabulary}", "--output=OUT", *flags]
  monkeypatch.setattr(sys, "argv", ["prepare_corpus", *flags])
  with pytest.raises(SystemExit):
    cli.run(importlib.import_module("tools.prepare_corpus").main)
  assert capsys.readouterr().err.startswith(f"error: {message}")


@pytest.mark.parametrize("name", ["train_tokenizer", "prepare_corpus"])
def test_help_shows_an_example(command, name):
  status, out, _ = command(name, "--help")
  assert status == 0
  assert f"python -m tools.{name} --corpus=wikipedia_sample" in out


def test_sample_and_processes_leave_the_vocabulary_as_it_is(tmp_path, monkeypatch):
  from data import corpora, wordpiece_training
  from data.documents import Format

  (tmp_path / "a.txt").write_text(TEXT)
  documents = corpora.text_files([f"{tmp_path}/a.txt"], Format(), data_dir=f"{tmp_path}/tfds")["train"]
  whole = wordpiece_training.count_words(documents, True, 0)
  assert whole["cat"] == 120
  assert whole["!"] == 60
  monkeypatch.setattr(wordpiece_training, "_PART_BYTES", 500)
  assert wordpiece_training.count_words(documents, True, 0) == whole
  assert wordpiece_training.count_words(documents, True, 0, processes=2) == whole
  sampled = wordpiece_training.count_words(documents, True, 2000)
  assert 0.1 < sampled["cat"] / 120 < 0.6
  few = wordpiece_training.count_words(documents, True, 0, max_words=20)
  assert len(few) <= 20
  assert few["cat"] == 120
  assert json.dumps(few) == json.dumps(wordpiece_training.count_words(documents, True, 0, max_words=20))
