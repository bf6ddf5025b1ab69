"""Train a vocabulary: the same text gives the same bytes, on any number of processes.

  python -m tools.train_tokenizer --corpus=wikipedia_sample --vocab_size=2000 --output=runs/tokenizer
  python -m tools.train_tokenizer --input 'books/*.txt' --documents=file --vocab_size=30000 --output=DIR
  python -m tools.train_tokenizer --kind=sentencepiece --input 'books/*.txt' --documents=file --output=DIR

WordPiece (BERT) writes vocab.txt, SentencePiece (ALBERT, XLNet) spiece.model, each with tokenizer_config.json, which
Hugging Face's tokenizers read too. Held-out text is not read: give tools.prepare_corpus the same text and --heldout, so
that both hold out the same documents, and the same --data_dir, so that the text is read only once.
"""

import argparse
import pathlib
import time

from data import corpora, sentencepiece, sentencepiece_training, wordpiece, wordpiece_training
from tools import cli, corpus_flags

_FILES = {"wordpiece": wordpiece.FILE, "sentencepiece": sentencepiece.FILE}
# The flags that go with one kind only, and their defaults.
_FLAGS = {
  "wordpiece": {"criterion": "frequency", "min_frequency": 2, "max_alphabet": None, "unused": 0},
  "sentencepiece": {"family": "albert", "keep_accents": False, "character_coverage": 0.99995},
}
# SentencePiece takes about 20 bytes of memory for a byte of text.
_SAMPLE_BYTES = {"wordpiece": 1e9, "sentencepiece": 1e8}


def main() -> None:
  parser = cli.parser(__doc__)
  parser.add_argument("--output", required=True, help="folder to write")
  parser.add_argument("--kind", choices=[*_FILES], default="wordpiece", help="[%(default)s]")
  parser.add_argument("--vocab_size", type=int, default=30000, help="[%(default)s]")
  parser.add_argument("--cased", action="store_true", help="keep capitals, and with WordPiece accents")
  parser.add_argument(
    "--sample_bytes",
    type=float,
    help="text to learn from, spread over the corpus; 0 takes all [{wordpiece:g}; SentencePiece {sentencepiece:g}, "
    "and 20 times as much memory]".format(**_SAMPLE_BYTES),
  )
  group = parser.add_argument_group("with --kind=wordpiece")
  group.add_argument(
    "--criterion",
    choices=wordpiece_training.CRITERIA,
    help="what is merged next: the pair that is most frequent, or that raises the likelihood most [%(default)s]",
  )
  group.add_argument("--min_frequency", type=int, help="a rarer pair is never merged [%(default)s]")
  group.add_argument("--max_alphabet", type=int, help="characters kept [a twentieth of the vocabulary, 100 to 1000]")
  group.add_argument("--unused", type=int, help="[unusedN] slots for pieces added later [%(default)s]")
  group = parser.add_argument_group("with --kind=sentencepiece")
  group.add_argument("--family", choices=[*sentencepiece.FAMILIES], help="whose special pieces [%(default)s]")
  group.add_argument("--keep_accents", action="store_true", help="keep accents and compatibility forms")
  group.add_argument("--character_coverage", type=float, help="share of characters that are pieces [%(default)s]")
  for defaults in _FLAGS.values():
    parser.set_defaults(**defaults)
  corpus_flags.add(parser)
  args = parser.parse_args()
  _check(args)

  started = time.perf_counter()
  documents = corpus_flags.open_corpus(args)[corpora.TRAIN]
  sample_bytes = int(_SAMPLE_BYTES[args.kind] if args.sample_bytes is None else args.sample_bytes)
  if args.kind == "sentencepiece":
    tokenizer, read = _train_sentencepiece(args, documents, sample_bytes)
  else:
    tokenizer, read = _train_wordpiece(args, documents, sample_bytes)
  tokenizer.save(args.output)
  if tokenizer.vocab_size < args.vocab_size:
    print(f"note: {tokenizer.vocab_size} pieces only, the text does not hold more; give it more text")
  print(f"{args.output}: {tokenizer.vocab_size:,} pieces from {read} ({time.perf_counter() - started:.1f} s)")


def _check(args: argparse.Namespace) -> None:
  for kind, defaults in _FLAGS.items():
    changed = [name for name, default in defaults.items() if getattr(args, name) != default]
    if changed and kind != args.kind:
      raise ValueError(f"--{changed[0]} does not go with --kind={args.kind}")
  for kind, file in _FILES.items():
    if kind != args.kind and (pathlib.Path(args.output) / file).exists():
      raise ValueError(f"{args.output} holds a {kind} vocabulary ({file}); delete it or choose another --output")


def _train_wordpiece(args: argparse.Namespace, documents: corpora.Documents, sample_bytes: int):
  words = wordpiece_training.count_words(documents, not args.cased, sample_bytes, args.processes)
  pieces = wordpiece_training.train(
    words, args.vocab_size, args.criterion, args.min_frequency, args.max_alphabet, args.unused
  )
  read = f"{sum(words.values()):,} words, {len(words):,} distinct"
  return wordpiece.WordPiece(pieces, lowercase=not args.cased), read


def _train_sentencepiece(args: argparse.Namespace, documents: corpora.Documents, sample_bytes: int):
  model = sentencepiece_training.train(
    documents,
    sentencepiece.FAMILIES[args.family],
    args.vocab_size,
    lowercase=not args.cased,
    keep_accents=args.keep_accents,
    character_coverage=args.character_coverage,
    sample_bytes=sample_bytes,
  )
  whole = len(documents) * documents.example_bytes
  read = f"about {min(sample_bytes or whole, whole) / 1e6:,.1f} MB of text"
  return sentencepiece.SentencePiece(model, not args.cased, args.keep_accents), read


if __name__ == "__main__":
  cli.run(main)
