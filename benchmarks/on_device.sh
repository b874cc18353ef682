#!/usr/bin/env bash
# Runs a command with `ziggurat` importable, where the project is not installed and nothing can be fetched:
#
#     benchmarks/on_device.sh python3 benchmarks/gpu_report.py "$OUT/report.json"
#
# The folders are linked together under one name, as pyproject.toml's package-dir says. Python imports from wheels in
# build/wheels, too, after the folders of PYTHONPATH: a wheel that is no folder lacks packages without __init__.py.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
site="${ZIGGURAT_SITE:-/tmp/site}"

mkdir -p "$site/ziggurat"
find "$site/ziggurat" -maxdepth 1 -type l -delete
ln -s "$root"/api/* "$site/ziggurat/"
for folder in codemodel frontends transforms backend; do
    ln -s "$root/$folder" "$site/ziggurat/$folder"
done

wheels=$(find "$root/build/wheels" -name '*.whl' -printf ':%p' 2>/dev/null || true)
# Bytecode is kept as for an installed package, but outside of the tree.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}$wheels" PYTHONUNBUFFERED=1 PYTHONPYCACHEPREFIX="$site/bytecode"
cd "$root"
exec "$@"
