"""Models of the Hugging Face hub by name: `hf:ORG/NAME`, or `hf:ORG/NAME@REVISION` (a branch, a tag or a commit)."""

import pathlib
import re

from pretrained import files, hf

PREFIX = "hf:"
_NAME = re.compile(r"hf:(?P<repo>\w[\w.-]*(?:/\w[\w.-]*)?)(?:@(?P<revision>[^@\s]+))?")
_SMALL = ("config.json", *hf.TOKENIZER)
_SAFE = [f"{files.SAFE}*", "model-*.safetensors"]
_PICKLED = [f"{files.PICKLED}*", "pytorch_model-*.bin"]


def folder(name: str) -> pathlib.Path:
  """Returns the folder of a model in huggingface_hub's cache, downloaded unless it is there.

  The library's own settings hold: HF_HOME and HF_HUB_CACHE say where the cache is, with HF_HUB_OFFLINE=1 the network is
  left alone. Pickled weights are fetched only where there are no others. No code of a model is fetched.

  Raises:
    ValueError: no name of a model, or huggingface_hub is not installed.
    FileNotFoundError: no such model, or no network and not in the cache.
  """
  match = _NAME.fullmatch(name)
  if not match:
    raise ValueError(f"{name!r} is not hf:ORG/NAME or hf:ORG/NAME@REVISION")
  try:
    import huggingface_hub
  except ImportError:
    raise ValueError(f"{name}: pip install huggingface_hub, or name a folder") from None

  def download(patterns: list[str]) -> pathlib.Path:
    try:
      found = huggingface_hub.snapshot_download(match["repo"], revision=match["revision"], allow_patterns=patterns)
    except Exception as error:  # of the library, of its network clients
      said = (str(error).strip() or type(error).__name__).splitlines()[0]
      raise FileNotFoundError(f"{name}: not in the cache and not to be had ({type(error).__name__}: {said})") from None
    return pathlib.Path(found)

  path = download([*_SMALL, *_SAFE])
  return path if files.has_weights(path) else download([*_SMALL, *_PICKLED])
