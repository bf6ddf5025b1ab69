"""Vectors of texts from a trained encoder: of each text, of each word, or of each token.

  python -m tools.extract_features --checkpoint=runs/quickstart-bert --input=lines.txt --output=vectors.npz \\
      --pooling=mean --normalize

The checkpoint is a workdir, a folder in Hugging Face layout, hf:ORG/NAME, or a TF1 checkpoint of the originals. Each
line of the input is a text, or a pair of texts "A ||| B"; the output has their order. The name of the output chooses
its format:

  .npz           pooled: `embeddings` [lines, width], the chosen layers side by side.
                 Else: `hidden_rep` [tokens, layers, width] of all lines one after another, those of line i at
                 offsets[i] : offsets[i + 1], and beside it `tokens` (ids), `pieces` and `segment_ids`, or with --words
                 `words` and `segment_ids`; `cls_head` [lines, width] is the pooler's output, tanh of a dense layer over
                 [CLS], if the model has one (no XLNet has). `layers` are those of --layers.
  .jsonl         {"linex_index": 0, "embeddings": [...]}, or as BERT's extract_features.py writes it
                 {"linex_index": 0, "features": [{"token": "[CLS]", "layers": [{"index": -1, "values": [...]}]}]}
  .array_record  a record a line, np.load(io.BytesIO(record)): the arrays above, of this line alone

Layer 0 is the input of the first layer, -1 the output of the last. The mean and the maximum run over all tokens,
special ones included. An XLNet's rows end with their <cls>, and its vectors are the content stream's.
"""

import pathlib
import re
from collections.abc import Iterator, Sequence

import numpy as np
from etils import epath

from pretrained.load import load
from tools import cli, features
from tools.families import family_of
from tools.feature_files import FORMATS, Record

_SEPARATOR = re.compile(r"(?<!\S)\|\|\|(?!\S)")


def read_lines(path: str) -> Iterator[list[str]]:
  """Yields the text or the two texts of each line.

  Raises:
    ValueError: no UTF-8, more than two texts in a line, or no line; names file and line.
  """
  number = 0
  with epath.Path(path).open("rb") as file:
    for number, line in enumerate(file, 1):
      try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
      except UnicodeDecodeError:
        raise ValueError(f"line {number}: not UTF-8") from None
      texts = _SEPARATOR.split(text)
      if len(texts) > 2:
        raise ValueError(f"line {number}: {len(texts)} texts; a line holds one, or two with ||| between")
      yield texts
  if not number:
    raise ValueError("no lines")


def parse_layers(text: str, num_layers: int) -> list[int]:
  """Returns the layers that `--layers` names, as they are named.

  Raises:
    ValueError: no number, or no such layer.
  """
  if text == "all":
    return list(range(num_layers + 1))
  try:
    layers = [int(name) for name in text.split(",")]
  except ValueError:
    raise ValueError(f"--layers={text} is neither all nor numbers with commas between") from None
  for layer in layers:
    if not -num_layers - 1 <= layer <= num_layers:
      raise ValueError(
        f"--layers={layer}: this model has layers 0 to {num_layers}, counted from the end -1 to {-num_layers - 1}"
      )
  return layers


def records(
  vectors: Iterator[Record], rows: Sequence[features.Row], pieces: np.ndarray, words: str | None
) -> Iterator[Record]:
  """Adds to each line's vectors what they belong to: tokens, or words in their place."""
  for row, record in zip(rows, vectors, strict=True):
    if "hidden_rep" not in record:
      yield record
    elif words:
      of_words = features.of_words(record["hidden_rep"], row.spans, words)
      segment_ids = row.segment_ids[row.spans[:, 0]]
      yield record | {"hidden_rep": of_words, "words": np.array(row.words), "segment_ids": segment_ids}
    else:
      yield record | {"tokens": row.tokens, "pieces": pieces[row.tokens], "segment_ids": row.segment_ids}


def main() -> None:
  parser = cli.parser(__doc__)
  parser.add_argument("--checkpoint", required=True, help="WORKDIR[@STEP], model folder, hf:ORG/NAME or TF1 checkpoint")
  parser.add_argument("--input", required=True, help="UTF-8 text, a line a text; local or remote")
  parser.add_argument("--output", required=True, help="file to write: .npz, .jsonl or .array_record")
  parser.add_argument("--layers", default="-1", help="numbers with commas between, or all [%(default)s]")
  parser.add_argument(
    "--pooling", choices=features.POOLING, default="none", help="how a line's tokens become one vector [%(default)s]"
  )
  parser.add_argument("--normalize", action="store_true", help="scale pooled vectors to length 1")
  parser.add_argument(
    "--words",
    choices=features.WORDS,
    help="vectors of words (what white space separates): of a word's first piece, or the mean of its pieces",
  )
  parser.add_argument(
    "--max_length",
    type=int,
    help=f"tokens of a line, special ones included [the model's; {features.MAX_LENGTH} for an XLNet: it has no limit]",
  )
  parser.add_argument("--truncate", action="store_true", help="cut longer lines off; without it they are a mistake")
  parser.add_argument(
    "--batch_tokens", type=int, default=2048, help="tokens of a batch, padding included [%(default)s]"
  )
  args = parser.parse_args()
  output = pathlib.Path(args.output)
  if output.suffix not in FORMATS:
    raise ValueError(f"--output={output} must end in one of {', '.join(FORMATS)}")
  if args.normalize and args.pooling == "none":
    raise ValueError("--normalize goes with --pooling=cls, mean or max")
  if args.words and args.pooling != "none":
    raise ValueError("--words gives a vector a word; it goes with --pooling=none")
  if args.batch_tokens < 1:
    raise ValueError(f"--batch_tokens={args.batch_tokens} must be at least 1")

  pretrained = load(args.checkpoint)
  config, tokenizer = pretrained.config, pretrained.tokenizer
  layers = parse_layers(args.layers, config.num_layers)
  family = family_of(config)
  max_length = features.longest_row(config, args.max_length)
  if args.pooling == "cls" and getattr(config, "causal", False):
    raise ValueError("--pooling=cls: the first token of a left-to-right model sees no other; use mean or max")
  try:
    rows = features.make_rows(
      tokenizer,
      read_lines(args.input),
      max_length,
      truncate=args.truncate,
      by_words=bool(args.words),
      cls_last=family.cls_last,
    )
  except ValueError as error:
    raise ValueError(f"{args.input}, {error}") from None

  output.parent.mkdir(parents=True, exist_ok=True)
  vectors = features.vectors(
    pretrained,
    rows,
    [layer % (config.num_layers + 1) for layer in layers],
    pooling=args.pooling,
    normalize=args.normalize,
    batch_tokens=args.batch_tokens,
  )
  total = len(rows)
  if args.pooling == "none":
    total = sum(len(row.words) if args.words else len(row.tokens) for row in rows)
  FORMATS[output.suffix](output, records(vectors, rows, np.array(tokenizer.pieces), args.words), layers, total)
  inside = "" if args.pooling != "none" else f", {total} {'words' if args.words else 'tokens'}"
  print(f"{output}: {len(rows)} lines{inside}, layers {args.layers}, width {config.hidden_size}")


if __name__ == "__main__":
  cli.run(main)
