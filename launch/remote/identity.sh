#!/bin/bash
# Prints which run a file of arguments and the installed commit are, in one word; launch/hosts.py forms the same.
#   identity.sh ARGUMENTS
set -eu
commit=$(cut -c 1-12 "$HOME/bidir/checkout/COMMIT")
arguments=$(sha256sum < "$1" | cut -c 1-12)
echo "$commit.$arguments"
