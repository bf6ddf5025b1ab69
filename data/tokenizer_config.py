"""The JSON files of Hugging Face's layout: `tokenizer_config.json`, which says what a vocabulary alone does not, and
`tokenizer.json`, in which the library `tokenizers` keeps all it knows."""

import json
import pathlib
from typing import Any

from data import shards

FILE = "tokenizer_config.json"
LIBRARY_FILE = "tokenizer.json"


def read(path: pathlib.Path) -> dict[str, Any]:
  """Returns what a JSON file holds; nothing where there is no file.

  Raises:
    ValueError: it is not JSON.
  """
  if not path.exists():
    return {}
  try:
    return json.loads(path.read_text(encoding="utf-8"))
  except ValueError as error:
    raise ValueError(f"{path}: not JSON ({error})") from None


def save(folder: pathlib.Path, config: dict[str, Any], name: str, vocabulary: bytes) -> None:
  """Writes a folder's `tokenizer_config.json`, and then the file `name` with its vocabulary.

  Whatever ends this early, the folder holds no vocabulary: never a piece of one, nor one beside another's settings.

  Raises:
    OSError: the disk is full.
  """
  settings = (json.dumps(config, indent=2) + "\n").encode()
  if _holds(folder / FILE, settings) and _holds(folder / name, vocabulary):
    return
  folder.mkdir(parents=True, exist_ok=True)
  (folder / name).unlink(missing_ok=True)
  shards.write_bytes(folder / FILE, [settings])
  shards.write_bytes(folder / name, [vocabulary])


def _holds(path: pathlib.Path, content: bytes) -> bool:
  return path.exists() and path.read_bytes() == content
