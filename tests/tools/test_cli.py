"""What every command line shares."""

import errno
import os

import pytest

from tools import cli


@pytest.mark.parametrize(
  ("error", "line"),
  [
    (ValueError("a is bad"), "error: a is bad\n"),
    (FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "d"), "error: d: No such file or directory\n"),
    (FileNotFoundError("no file matches b"), "error: no file matches b\n"),
    (
      OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "c"),
      "error: c: No space left on device; free some space and run the same command again\n",
    ),
  ],
)
def test_a_users_mistake_is_one_line(capsys, error, line):
  def main():
    raise error

  with pytest.raises(SystemExit) as caught:
    cli.run(main)
  assert caught.value.code == 1
  assert capsys.readouterr() == ("", line)


def test_an_interrupt_says_nothing(capsys):
  def main():
    raise KeyboardInterrupt

  with pytest.raises(SystemExit) as caught:
    cli.run(main)
  assert caught.value.code == 130
  assert capsys.readouterr() == ("", "")


def test_a_bug_keeps_its_traceback():
  with pytest.raises(RuntimeError):
    cli.run(lambda: (_ for _ in ()).throw(RuntimeError("ours")))
