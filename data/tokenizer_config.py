"""The JSON files of Hugging Face's layout: `tokenizer_config.json`, which says what a vocabulary alone does not, and
`tokenizer.json`, in which the library `tokenizers` keeps all it knows."""

import json
import pathlib
from typing import Any

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


def write(folder: pathlib.Path, config: dict[str, Any]) -> None:
  """Writes `tokenizer_config.json` in a folder."""
  (folder / FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
