"""Convert a trained model: to a folder that Hugging Face's transformers load, or to one of ours.

  python -m tools.convert --src=runs/quickstart-bert --dst=exported --to=hf --check
  python -m tools.convert --src=hf:google-bert/bert-base-uncased --dst=bert-base --to=bidir --vocab=words.txt

The source is a workdir, a folder in Hugging Face layout, hf:ORG/NAME[@REVISION] on its hub, or a TF1 checkpoint of the
originals. `--to=hf` writes config.json, model.safetensors and the tokenizer's files, for AutoModel… and AutoTokenizer;
`--to=bidir` a folder that `--config.init_from` and every tool's --checkpoint accept. Fine-tuned heads go along. --check
needs transformers (benchmarks/requirements.txt): it runs both models on the same rows and prints the largest
difference.
"""

import dataclasses
import pathlib
import tempfile

from models.config import EncoderConfig
from pretrained import export, hf, hub
from pretrained.load import Pretrained, load
from pretrained.words import add_words
from tools import cli


def main() -> None:
  parser = cli.parser(__doc__)
  parser.add_argument(
    "--src", required=True, help="WORKDIR[@STEP], model folder, hf:ORG/NAME[@REVISION] or TF1 checkpoint"
  )
  parser.add_argument("--dst", required=True, help="folder to write; new or empty")
  parser.add_argument("--to", required=True, choices=["hf", "bidir"], help="layout to write")
  parser.add_argument("--body_only", action="store_true", help="leave heads out, known to us or not")
  parser.add_argument(
    "--vocab", metavar="FILE", help="words to put into a WordPiece vocabulary, one a line: into [unusedN] slots first"
  )
  parser.add_argument("--max_length", type=int, help="keep only so many of an encoder's positions")
  parser.add_argument("--check", action="store_true", help="compare with transformers' model, side by side")
  args = parser.parse_args()

  pretrained = load(args.src, heads=not args.body_only)
  if args.max_length is not None:
    pretrained = shorten(pretrained, args.max_length)
  if args.vocab:
    with open(args.vocab, encoding="utf-8") as file:
      try:
        pretrained, new = add_words(pretrained, file)
      except ValueError as error:
        raise ValueError(f"{args.vocab}: {error}") from None
    print(f"{len(new)} new words in a vocabulary of {pretrained.tokenizer.vocab_size}")
  written = export.write(pretrained, args.dst, args.to)
  print(f"{args.dst}: {_describe(written)}")
  if args.check:
    changed = args.vocab or args.max_length is not None or args.body_only
    check(args.dst, None if changed else args.src)


def shorten(pretrained: Pretrained, max_length: int) -> Pretrained:
  """Returns the model with the first `max_length` rows of its position table.

  Raises:
    ValueError: it has no such table, or a shorter one; training alone can make positions.
  """
  config = pretrained.config
  if not isinstance(config, EncoderConfig):
    raise ValueError("--max_length: this model has no position table, and reads rows of any length")
  if not 1 <= max_length <= config.max_length:
    raise ValueError(
      f"--max_length={max_length} must lie in 1 to the model's {config.max_length}; "
      "more positions come from training (--config.init_from with a larger --config.model.max_length)"
    )
  embeddings = pretrained.params["encoder"]["embeddings"]
  table = {"embedding": embeddings["position"]["embedding"][:max_length]}
  encoder = pretrained.params["encoder"] | {"embeddings": embeddings | {"position": table}}
  return dataclasses.replace(
    pretrained,
    config=dataclasses.replace(config, max_length=max_length),
    params=pretrained.params | {"encoder": encoder},
  )


def _describe(pretrained: Pretrained) -> str:
  family = hf.family_of(pretrained.config).PREFIX.replace("transformer", "xlnet")
  head = f", {pretrained.head.kind}" if pretrained.head else ""
  missing = f", without {' and '.join(pretrained.missing)}" if pretrained.missing and not pretrained.head else ""
  return f"{family}{head}, {', '.join(sorted(pretrained.params))}{missing}"


def check(dst: str, src: str | None) -> None:
  """Prints the largest difference between what was written to `dst` and their model of the same weights.

  Theirs reads `dst` where that is in their layout, else the source where that is, and else `dst` written once more.

  Raises:
    ValueError: transformers is not installed, or the outputs differ by more than rounding.
  """
  from tools import side_by_side

  ours = load(dst)
  with tempfile.TemporaryDirectory() as folder:
    original = hub.folder(src) if src and src.startswith(hub.PREFIX) else pathlib.Path(src or dst)
    theirs = next((path for path in (pathlib.Path(dst), original) if hf.is_folder(path)), pathlib.Path(folder) / "hf")
    if not theirs.exists():
      export.write(ours, theirs, "hf")
    differences = side_by_side.compare(ours, theirs)
  for name, difference in differences.items():
    print(f"{name}: largest difference {difference:.2g}")
  if max(differences.values()) > side_by_side.TOLERANCE:
    raise ValueError(f"the outputs differ by more than {side_by_side.TOLERANCE:g}")


if __name__ == "__main__":
  cli.run(main)
