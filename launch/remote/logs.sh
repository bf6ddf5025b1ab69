#!/bin/bash
# Prints the end of this host's log, and with --follow what is added to it.
#   logs.sh LINES [--follow]
set -eu
tail -n "$1" ${2:+"$2"} "$HOME/bidir/train.log"
