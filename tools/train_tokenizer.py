"""Train a WordPiece vocabulary: the same text gives the same bytes, on any machine and any number of processes.

  python -m tools.train_tokenizer --corpus=wikipedia_sample --vocab_size=2000 --output=runs/tokenizer
  python -m tools.train_tokenizer --input 'books/*.txt' --documents=file --vocab_size=30000 --output=DIR

It writes vocab.txt and tokenizer_config.json, which Hugging Face's BertTokenizer reads too. Held-out text is not read.
"""

import pathlib
import time

from data import corpora, wordpiece, wordpiece_training
from tools import cli, corpus_flags


def main() -> None:
  parser = cli.parser(__doc__)
  parser.add_argument("--output", required=True, help="folder to write")
  parser.add_argument("--vocab_size", type=int, default=30000, help="[%(default)s]")
  parser.add_argument("--cased", action="store_true", help="keep capitals and accents")
  parser.add_argument(
    "--criterion",
    choices=wordpiece_training.CRITERIA,
    default="frequency",
    help="what is merged next: the pair that is most frequent, or that raises the likelihood most [%(default)s]",
  )
  parser.add_argument("--min_frequency", type=int, default=2, help="a rarer pair is never merged [%(default)s]")
  parser.add_argument("--max_alphabet", type=int, help="characters kept [a twentieth of the vocabulary, 100 to 1000]")
  parser.add_argument("--unused", type=int, default=0, help="[unusedN] slots for pieces added later [%(default)s]")
  parser.add_argument(
    "--sample_bytes", type=float, default=1e9, help="text to count, spread over the corpus; 0 counts all [%(default)g]"
  )
  corpus_flags.add(parser)
  args = parser.parse_args()

  started = time.perf_counter()
  documents = corpus_flags.open_corpus(args)[corpora.TRAIN]
  words = wordpiece_training.count_words(documents, not args.cased, int(args.sample_bytes), args.processes)
  pieces = wordpiece_training.train(
    words, args.vocab_size, args.criterion, args.min_frequency, args.max_alphabet, args.unused
  )
  tokenizer = wordpiece.WordPiece(pieces, lowercase=not args.cased)
  tokenizer.save(pathlib.Path(args.output))
  if len(pieces) < args.vocab_size:
    print(f"note: {len(pieces)} pieces only, no further pair occurs {args.min_frequency} times; give it more text")
  print(
    f"{args.output}: {len(pieces):,} pieces from {sum(words.values()):,} words, {len(words):,} distinct "
    f"({time.perf_counter() - started:.1f} s)"
  )


if __name__ == "__main__":
  cli.run(main)
