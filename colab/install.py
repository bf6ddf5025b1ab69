"""Installs what the notebooks need into the Python that runs it, in the versions of requirements.lock.

    python colab/install.py

A runtime with an accelerator brings its own jax, which fits its drivers. It stays, unless requirements.txt asks for a
newer one: then the lock's comes with the accelerator's plugin of that version.
"""

import importlib.metadata
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping

ROOT = pathlib.Path(__file__).resolve().parent.parent
WANTED = ("requirements.txt", "requirements-quickstart.txt", "requirements-report.txt")
PLUGINS = {"libtpu": "tpu", "jax-cuda13-plugin": "cuda13", "jax-cuda12-plugin": "cuda12"}  # package → jax's extra
OURS = ("jax", "jaxlib")


def plan(installed: Mapping[str, str], lock: str, requirements: str) -> tuple[list[str], list[str]]:
  """Returns (requirements beside the files in WANTED, constraints).

  Args:
    installed: versions of the runtime's packages, by name.
    lock: the text of requirements.lock.
    requirements: the text of requirements.txt.
  """
  pins = [line for line in lock.splitlines() if "==" in line]
  extra = next((extra for package, extra in PLUGINS.items() if package in installed), None)
  if extra is None or not set(OURS) <= installed.keys():
    return [], pins
  oldest = re.search(r"^jax>=([\d.]+)", requirements, flags=re.MULTILINE)[1]
  if _numbers(installed["jax"]) < _numbers(oldest):
    return [f"jax[{extra}]"], pins
  others = [pin for pin in pins if pin.split("==")[0] not in OURS]
  return [], others + [f"{name}=={installed[name]}" for name in OURS]


def _numbers(version: str) -> list[int]:
  return [int(number) for number in re.match(r"[\d.]*\d", version)[0].split(".")]


def main() -> None:
  installed = {
    distribution.name.lower().replace("_", "-"): distribution.version
    for distribution in importlib.metadata.distributions()
  }
  read = lambda name: (ROOT / name).read_text(encoding="utf-8")
  more, constraints = plan(installed, read("requirements.lock"), read("requirements.txt"))
  with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder) / "constraints.txt"
    file.write_text("".join(f"{line}\n" for line in constraints))
    files = [argument for name in WANTED for argument in ("-r", str(ROOT / name))]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(file)]
    subprocess.run([*pip, *files, *more], check=True)


if __name__ == "__main__":
  main()
