"""Which text a command works on: the flags that tools.train_tokenizer and tools.prepare_corpus share."""

import argparse
import os

from absl import logging

from data import corpora, documents, sentences


def add(parser: argparse.ArgumentParser) -> None:
  """Adds the flags; `open_corpus` reads them."""
  default = documents.Format()
  source = parser.add_argument_group("the text, one of").add_mutually_exclusive_group(required=True)
  source.add_argument("--corpus", choices=["wikipedia_sample"], help="96 articles that come with the gensim package")
  source.add_argument("--input", nargs="+", metavar="GLOB", help=".txt, .txt.gz, .jsonl, .jsonl.gz; local, gs://, …")
  source.add_argument("--tfds", metavar="NAME", help="any TFDS text data set, for example wikipedia/20230601.en")
  files = parser.add_argument_group("with --input")
  files.add_argument(
    "--documents",
    default=default.documents,
    metavar="RULE",
    help="what holds a document: blank_line (lines up to a blank one), file, line, json:FIELD [%(default)s]",
  )
  files.add_argument("--heldout_input", nargs="+", default=[], metavar="GLOB", help="files to hold out")
  files.add_argument("--encoding_errors", choices=["strict", "replace"], default=default.encoding_errors)
  files.add_argument("--max_line_bytes", type=int, default=default.max_line_bytes, help="[%(default)s]")
  files.add_argument("--max_document_bytes", type=int, default=default.max_document_bytes, help="[%(default)s]")
  named = parser.add_argument_group("with --tfds")
  named.add_argument("--text_field", default="text", help="the feature that holds the text [%(default)s]")
  named.add_argument("--train_split", default="train", help="in TFDS's notation [%(default)s]")
  named.add_argument("--heldout_split", default="", help="likewise; without it the last of --train_split is held out")
  every = parser.add_argument_group("with any")
  every.add_argument(
    "--heldout",
    type=float,
    help="fraction to hold out, with --input by a hash of each document, with --tfds the last [0.05]",
  )
  every.add_argument("--data_dir", help="where TFDS keeps the documents [TFDS_DATA_DIR or ~/tensorflow_datasets]")
  every.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="[%(default)s]")


def open_corpus(args: argparse.Namespace) -> dict[str, corpora.Documents]:
  """Builds the corpus that the flags name, unless that was done before, and returns its splits."""
  logging.set_verbosity(logging.ERROR)  # TFDS reports each of its steps as a warning
  if args.corpus:
    return corpora.wikipedia_sample(args.data_dir)
  if args.tfds:
    heldout = 0.05 if args.heldout is None and not args.heldout_split else args.heldout or 0.0
    return corpora.tfds_corpus(args.tfds, args.text_field, args.train_split, args.heldout_split, heldout, args.data_dir)
  fmt = documents.Format(args.documents, args.encoding_errors, args.max_line_bytes, args.max_document_bytes)
  heldout = 0.05 if args.heldout is None and not args.heldout_input else args.heldout or 0.0
  return corpora.text_files(args.input, fmt, heldout, args.heldout_input, args.data_dir, args.processes)


def add_sentences(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
    "--sentences",
    choices=sentences.SENTENCES,
    default="split",
    help="a sentence is a line of a document, or is found by a splitter [%(default)s]",
  )
  parser.add_argument("--language", default="en", help="the splitter's rules, ISO 639-1 [%(default)s]")
