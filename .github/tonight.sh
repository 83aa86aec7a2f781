#!/usr/bin/env bash
# Replaces the proof records by those of tonight's runs: tonight.sh <folder of artifacts> <proofs/>.
# Records of the oldest torch get a name of their own beside those of the newest. Of a device that did not run tonight
# (no GPU machine, a job that fell over) the committed records stay.
set -euo pipefail
artifacts=$1 proofs=$2
if compgen -G "$artifacts/proofs-newest/*.cpu.json" >/dev/null; then
  rm -f "$proofs"/*.cpu.json
  cp "$artifacts"/proofs-newest/*.cpu.json "$proofs/"
fi
for record in "$artifacts"/proofs-oldest/*.cpu.json; do
  [ -e "$record" ] && cp "$record" "$proofs/$(basename "$record" .json).oldest.json"
done
for record in "$artifacts"/proofs-cuda/*.cuda.json; do
  [ -e "$record" ] && cp "$record" "$proofs/"
done
ls "$proofs" | wc -l
