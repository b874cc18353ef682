#!/usr/bin/env bash
# Runs a command with `ziggurat` importable, where the project is not installed and nothing can be fetched:
#
#     benchmarks/on_device.sh python3 benchmarks/gpu_report.py "$OUT/report.json"
#
# The rooms of the house are linked together under one name, as pyproject.toml's package-dir says.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
site="${ZIGGURAT_SITE:-/tmp/site}"

mkdir -p "$site/ziggurat"
find "$site/ziggurat" -maxdepth 1 -type l -delete
ln -s "$root"/api/* "$site/ziggurat/"
for room in codemodel frontends transforms backend; do
    ln -s "$root/$room" "$site/ziggurat/$room"
done

export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
cd "$root"
exec "$@"
