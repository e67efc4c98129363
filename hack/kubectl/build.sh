#!/usr/bin/env bash
# Builds an older kubectl from Go modules alone, and prints the folder that holds it: OLD=$(hack/kubectl/build.sh). It uses SPDY
# for sessions by default, and other requests than the kubectl of the control plane (hack/kube).
# Built once per version and kept outside the work tree; a build that was killed is begun again.
set -euo pipefail
cd "$(dirname "$0")"

say() { echo "kubectl: $*" >&2; }
checksum() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }

version=$(awk '$1 == "k8s.io/kubectl" { sub("v0", "v1", $2); print $2; exit }' go.mod)
sources=$(cat go.mod go.sum main.go build.sh | checksum | cut -c1-12)
out=${XDG_CACHE_HOME:-$HOME/.cache}/kedge/tools/kubectl-$sources

if [ -e "$out/complete" ]; then
  echo "$out"
  exit 0
fi

mkdir -p "$out"
# Two builds at once (two checkouts, or make -j) would write the same files. The lock goes with the process.
if command -v flock >/dev/null; then
  exec 9>"$out/lock"
  flock --nonblock 9 || { say "waiting for another build of the same"; flock 9; }
  if [ -e "$out/complete" ]; then
    echo "$out"
    exit 0
  fi
fi

say "building kubectl $version from Go modules: once, about 2 minutes on two cores"
CGO_ENABLED=0 GOWORK=off go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" -o "$out/.kubectl" . >&2 9>&-
mv "$out/.kubectl" "$out/kubectl"
touch "$out/complete"
echo "$out"
