"""Apache Beam makes the corpus that processes here make, byte for byte, whatever its workers go through.

Beam holds protobuf and NumPy back, so it is not among the packages of `make test`; `make beam` runs this file in an
environment of its own.
"""

import pathlib
import sys

import pytest
import tensorflow_datasets as tfds

from data import corpora, documents, prepare, shards
from data.corpus import Corpus
from tests.data.test_prepare import SMALL, TOKENIZER, contents
from tools import cli, prepare_corpus

apache_beam = pytest.importorskip("apache_beam", reason="no Apache Beam: see requirements-beam.txt, or `make beam`")
beam = pytest.importorskip("data.beam")

FLAGS = "--direct_num_workers=2 --direct_running_mode="


@pytest.fixture
def files(tmp_path) -> str:
  """Three hundred documents in three files; a third are copies of others, in other files too."""
  for number in range(3):
    texts = [f"the cat sat on mat {i % 200}. and the dog ran far.\na taco." for i in range(number * 100, 300, 2)]
    (tmp_path / f"{number}.txt").write_text("\n\n".join(texts))
  return str(tmp_path / "*.txt")


def build(files: str, folder: pathlib.Path, run: shards.Run) -> dict[str, str | None]:
  """Makes a corpus as the command does, of many small parts; returns its contents, and the names of the parts."""
  splits = corpora.text_files([files], documents.Format(), 0.2, data_dir=str(folder / "tfds"), run=run)
  prepare.prepare(folder / "corpus", splits, TOKENIZER, run=run, shard_bytes=SMALL)
  # The fields of a TFDS example are in no order.
  return {**contents(folder / "corpus"), **dict.fromkeys(contents(folder / "tfds"))}


@pytest.mark.parametrize("flags", ["--direct_runner_bundle_repeat=2", FLAGS + "multi_threading"])
def test_threads_and_bundles_done_again_do_not_show(files, tmp_path, monkeypatch, flags):
  monkeypatch.setattr(corpora, "_PART_BYTES", 3000)
  monkeypatch.setattr(prepare, "_RANGE_DOCUMENTS", 64)
  here = build(files, tmp_path / "here", shards.run)
  assert build(files, tmp_path / "there", beam.Beam("DirectRunner", flags)) == here
  assert len([name for name in here if name.endswith(".array_record")]) > 3
  assert len([name for name in here if "text_files-" in name]) > 6
  assert Corpus.open(tmp_path / "there" / "corpus", "train").index.report["train"]["duplicates"] > 50


def test_workers_are_processes_and_the_command_is_the_same(files, tmp_path, monkeypatch, capfd):
  TOKENIZER.save(tmp_path / "tokenizer")
  run_here, run_there = ["--processes=1"], ["--runner=DirectRunner", f"--beam_options={FLAGS}multi_processing"]
  for place, flags in (("here", run_here), ("there", run_there)):
    command = [f"--input={files}", "--heldout=0.2", f"--tokenizer={tmp_path}/tokenizer", *flags]
    command += [f"--output={tmp_path}/{place}/corpus", f"--data_dir={tmp_path}/{place}/tfds"]
    monkeypatch.setattr(sys, "argv", ["prepare_corpus", *command])
    prepare_corpus.main()
  assert contents(tmp_path / "there" / "corpus") == contents(tmp_path / "here" / "corpus")
  assert "DirectRunner: 2 × hash, then 1 × compare, then 2 × tokenize" in capfd.readouterr().err


class BeamText(tfds.core.BeamBasedBuilder):
  """Twenty texts, as TFDS makes Wikipedia."""

  VERSION = tfds.core.Version("1.0.0")
  code_path = None

  def _info(self):
    return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict({"text": tfds.features.Text()}))

  def _split_generators(self, dl_manager):
    return {"train": self._generate_examples()}

  def _generate_examples(self):
    return apache_beam.Create(range(20)) | apache_beam.Map(lambda i: (i, {"text": f"t{i} ü"}))


def test_what_tfds_makes_on_beam_is_made_there(tmp_path):
  run, data_dir = beam.Beam("DirectRunner"), str(tmp_path / "tfds")
  splits = corpora.tfds_corpus("beam_text", heldout=0.1, data_dir=data_dir, download=run.download_config())
  texts = [*splits["train"].read(0, 18), *splits["heldout"].read(0, 2)]
  assert sorted(texts) == sorted(f"t{i} ü" for i in range(20))


def test_a_worker_that_fails_says_why_in_a_line(files, tmp_path, monkeypatch, capsys):
  (tmp_path / "1.txt").write_bytes(b"fine\n\xff\n")
  with pytest.raises(SystemExit):
    cli.run(lambda: build(files, tmp_path, beam.Beam("DirectRunner")))
  last = capsys.readouterr().err.splitlines()[-1]
  assert last.startswith(f"error: DirectRunner: {tmp_path}/1.txt, line 2: byte 0xff is not UTF-8; convert the file")
  assert "while running" not in last
  (tmp_path / "1.txt").write_bytes(b"fine\n")
  build(files, tmp_path, beam.Beam("DirectRunner"))


@pytest.mark.parametrize(
  ("runner", "flags", "message"),
  [
    ("NoRunner", "", "--runner=NoRunner: Unexpected pipeline runner"),
    ("DataflowRunner", "", "--runner=DataflowRunner: "),
  ],
)
def test_a_runner_that_cannot_run(runner, flags, message):
  with pytest.raises(ValueError, match=message):
    beam.Beam(runner, flags)
