#!/bin/bash
# What the service runs: train.py with the arguments that run.sh wrote down. Its status is train.py's, but for a run that
# was stopped because another host was asked to: this host was not, so it ends with 75 and the service begins again.
set -u
home=$HOME/bidir
export PYTHONUNBUFFERED=1 JAX_COMPILATION_CACHE_DIR=$home/cache
mapfile -t arguments < "$home/arguments"

asked=
trap 'asked=yes; kill -TERM "$child" 2> /dev/null' TERM
echo "launch: beginning on $(hostname), $(date --utc +%FT%TZ)"
"$home/venv/bin/python" "$home/checkout/train.py" --distributed "${arguments[@]}" &
child=$!
wait "$child"
status=$?
if test -n "$asked"; then
  wait "$child" # the first was cut short by the signal
  exit $?
fi
if test "$status" = 0 &&
  awk '/^launch: beginning/ { said = 0 } /^stopped by SIGTERM/ { said = 1 } END { exit !said }' "$home/train.log"; then
  exit 75
fi
exit "$status"
