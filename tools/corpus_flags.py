"""Which text a command works on: the flags that tools.train_tokenizer and tools.prepare_corpus share."""

import argparse
import dataclasses
import functools
import os

import tensorflow_datasets as tfds
from absl import logging

from data import corpora, documents, sentences, shards

_HELDOUT = 0.05
_FORMAT = documents.Format()
# The flags that go with one source only, and their defaults.
_FLAGS = {
  "input": {**dataclasses.asdict(_FORMAT), "heldout_input": []},
  "tfds": {"text_field": "text", "train_split": "train", "heldout_split": ""},
  "input,tfds": {"heldout": None},
}


def add(parser: argparse.ArgumentParser) -> None:
  """Adds the flags; `open_corpus` reads them."""
  source = parser.add_argument_group("the text, one of").add_mutually_exclusive_group(required=True)
  source.add_argument("--corpus", choices=["wikipedia_sample"], help="96 articles that come with the gensim package")
  source.add_argument("--input", nargs="+", metavar="GLOB", help=".txt, .txt.gz, .jsonl, .jsonl.gz; local, gs://, …")
  source.add_argument("--tfds", metavar="NAME", help="any TFDS text data set, for example wikipedia/20230601.en")
  files = parser.add_argument_group("with --input")
  files.add_argument(
    "--documents",
    metavar="RULE",
    help="what holds a document: blank_line (lines up to a blank one), file, line, json:FIELD [%(default)s]",
  )
  files.add_argument("--heldout_input", nargs="+", metavar="GLOB", help="files to hold out, instead of a fraction")
  files.add_argument("--encoding_errors", choices=["strict", "replace"], help="[%(default)s]")
  files.add_argument("--max_line_bytes", type=int, help="[%(default)s]")
  files.add_argument("--max_document_bytes", type=int, help="[%(default)s]")
  named = parser.add_argument_group("with --tfds")
  named.add_argument("--text_field", help="the feature that holds the text [%(default)s]")
  named.add_argument("--train_split", help="in TFDS's notation [%(default)s]")
  named.add_argument("--heldout_split", help="likewise, instead of a fraction")
  parser.add_argument(
    "--heldout",
    type=float,
    help=f"fraction to hold out: with --input by a hash of each document, with --tfds the last; give the "
    f"vocabulary and the corpus the same [{_HELDOUT}]",
  )
  parser.add_argument("--data_dir", help="where TFDS keeps the documents [TFDS_DATA_DIR or ~/tensorflow_datasets]")
  parser.add_argument("--processes", type=int, default=_cores(), help="[%(default)s]")
  for defaults in _FLAGS.values():
    parser.set_defaults(**defaults)


def _cores() -> int:
  return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def open_corpus(
  args: argparse.Namespace, run: shards.Run | None = None, download: tfds.download.DownloadConfig | None = None
) -> dict[str, corpora.Documents]:
  """Builds the corpus that the flags name, unless that was done before, and returns its splits.

  Args:
    args: the flags.
    run: does the work [`args.processes` processes].
    download: how TFDS prepares a data set.

  Raises:
    ValueError: a flag that goes with another source of text, or what `data.corpora` refuses.
  """
  logging.set_verbosity(logging.ERROR)  # TFDS reports each of its steps as a warning
  source = "input" if args.input else "tfds" if args.tfds else "corpus"
  for other, defaults in _FLAGS.items():
    changed = [name for name, default in defaults.items() if getattr(args, name) != default]
    if changed and source not in other.split(","):
      raise ValueError(f"--{changed[0]} does not go with --{source}")
  if source == "corpus":
    return corpora.wikipedia_sample(args.data_dir)
  heldout = args.heldout
  if heldout is None:
    heldout = 0.0 if args.heldout_input or args.heldout_split else _HELDOUT
  if source == "tfds":
    splits = (args.train_split, args.heldout_split, heldout)
    return corpora.tfds_corpus(args.tfds, args.text_field, *splits, args.data_dir, download)
  fmt = documents.Format(args.documents, args.encoding_errors, args.max_line_bytes, args.max_document_bytes)
  run = run or functools.partial(shards.run, processes=args.processes)
  return corpora.text_files(args.input, fmt, heldout, args.heldout_input, args.data_dir, run)


def add_sentences(parser: argparse.ArgumentParser) -> None:
  """Adds the flags that say what a sentence is: --sentences, --language."""
  parser.add_argument(
    "--sentences",
    choices=sentences.SENTENCES,
    default="split",
    help="a sentence is a line of a document, or is found by a splitter [%(default)s]",
  )
  parser.add_argument("--language", default="en", help="the splitter's rules, ISO 639-1 [%(default)s]")
