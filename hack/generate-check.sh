#!/usr/bin/env bash
# Fails if generated code differs from the output of "make generate". It generates in a copy, so the work tree stays
# unchanged and uncommitted changes count too.
set -euo pipefail
cd "$(dirname "$0")/.."

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir "$copy/before"
# Copy tracked files and files that git would add. Skip files that are deleted and not committed.
git ls-files --cached --others --exclude-standard -z |
  while IFS= read -r -d '' file; do if [ -e "$file" ]; then printf '%s\0' "$file"; fi; done |
  tar --null --files-from=- --create --file=- | tar --extract --file=- --directory="$copy/before"
cp -R "$copy/before" "$copy/after"
make -C "$copy/after" generate

if ! diff -r -u "$copy/before" "$copy/after" >"$copy/diff"; then
  sed "s|$copy/||g" "$copy/diff" | head -n 100 >&2
  echo "generated code is stale: run make generate and commit the result" >&2
  exit 1
fi
echo "generated code is fresh"
