#!/usr/bin/env bash
# Runs each fuzz target separately, as go test requires: hack/fuzz.sh TIME PACKAGE …
# All targets run, even if one fails. The failing input is then in testdata/fuzz of its package. Keep it as a test.
set -euo pipefail
cd "$(dirname "$0")/.."

time=$1
shift
failed=()
folders=$(go list -f '{{.Dir}}' "$@")
for folder in $folders; do
	targets=$(find "$folder" -maxdepth 1 -name '*_test.go' -exec sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' {} +)
	for target in $targets; do
		echo "== ${folder#"$PWD"/} $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$folder" </dev/null || failed+=("${folder#"$PWD"/} $target")
	done
done

if ((${#failed[@]})); then
	printf 'failed: %s\n' "${failed[@]}" >&2
	exit 1
fi
