#!/bin/bash
# Copies folders of buckets to this host's disk, to $HOME/bidir/staged/FIELD; what is there already is not copied again.
#   stage.sh FIELD=gs://BUCKET/FOLDER …
set -eu
for pair in "$@"; do
  field=${pair%%=*}
  source=${pair#*=}
  target=$HOME/bidir/staged/$field
  mkdir -p "$target"
  gcloud storage rsync --recursive --delete-unmatched-destination-objects "$source" "$target"
  test -n "$(ls -A "$target")" || {
    echo "launch: $source is empty, or no such folder" >&2
    exit 1
  }
  echo "launch: $(hostname) has $source in $target ($(du -sh "$target" | cut -f1))"
done
