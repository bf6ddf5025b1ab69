#!/bin/bash
# Puts what runs need on this host: Python, and the packages as they were tested. The checkout it lies in is unpacked.
#   install.sh COMMIT
set -eu
commit=$1
home=$HOME/bidir
checkout=$home/checkout

# The images' own Python is older than 3.11; uv brings one. 3.11 is what requirements.lock has the libtpu for v3 with.
if ! python3 -m uv --version > /dev/null 2>&1; then
  # A young host is still updating itself, and has apt's lock.
  python3 -m pip --version > /dev/null 2>&1 ||
    sudo apt-get -o DPkg::Lock::Timeout=600 install --yes --quiet python3-pip
  # Newer images guard their Python against pip, which leaves no other way than to insist.
  python3 -m pip install --quiet --user uv 2> /dev/null || python3 -m pip install --quiet --user --break-system-packages uv
fi
# A workdir on this host's disk outlives the checkout.
mkdir -p "$home/runs"
ln -sfn "$home/runs" "$checkout/runs"

test -x "$home/venv/bin/python" || python3 -m uv venv --quiet --python 3.11 "$home/venv"
python3 -m uv pip install --quiet --python "$home/venv/bin/python" --constraint "$checkout/requirements.lock" \
  --requirement "$checkout/requirements-tpu.txt"
echo "$commit" > "$checkout/COMMIT"
echo "launch: $(hostname) has commit $commit"
