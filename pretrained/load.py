"""Opens a trained model wherever it comes from: what `init_from` and every tool's `--checkpoint` accept."""

import dataclasses
import os
import pathlib

from data.tokenizers import Tokenizer, load_tokenizer
from models.config import EncoderConfig
from pretrained import hf


@dataclasses.dataclass(frozen=True)
class Pretrained:
  """A trained model.

  Attributes:
    config: the encoder's shape and arithmetic.
    params: PretrainingModel's parameters, float32 arrays on the host, without the modules in `missing`.
    tokenizer: the one it was trained with.
    missing: heads that the checkpoint does not hold, of "pooler", "mlm_head", "pair_head".
  """

  config: EncoderConfig
  params: dict
  tokenizer: Tokenizer
  missing: tuple[str, ...] = ()


def load(path: str | os.PathLike) -> Pretrained:
  """Reads a folder in Hugging Face layout.

  Raises:
    FileNotFoundError: no such folder, or no model in it.
    ValueError: the model is damaged or of another kind, or its tokenizer has more pieces than it.
  """
  path = pathlib.Path(path)
  if not path.exists():
    raise FileNotFoundError(f"{path}: no such checkpoint")
  if not hf.is_folder(path):
    raise FileNotFoundError(f"{path}: no model here; a model folder holds config.json and model.safetensors")
  config, params, missing = hf.read_folder(path)
  tokenizer = load_tokenizer(path)
  if tokenizer.vocab_size > config.vocab_size:
    raise ValueError(
      f"{path}: the tokenizer has {tokenizer.vocab_size} pieces and the model only {config.vocab_size}; "
      "they do not belong together"
    )
  return Pretrained(config, params, tokenizer, missing)
