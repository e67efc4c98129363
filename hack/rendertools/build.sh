#!/usr/bin/env bash
# Builds the command-line programs that renders are compared with, kustomize and helm, from Go modules alone, and prints
# the folder that holds them: TOOLS=$(hack/rendertools/build.sh). They share no build with the libraries that we link.
# Built once per version and kept outside the work tree; a build that was killed is begun again.
set -euo pipefail
cd "$(dirname "$0")"

say() { echo "rendertools: $*" >&2; }
version_of() { awk -v module="$1" '$1 == module && $2 ~ /^v/ { print $2; exit }' go.mod; }
checksum() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }

helm=$(version_of helm.sh/helm/v4)
kustomize=$(version_of sigs.k8s.io/kustomize/kustomize/v5)
sources=$(cat go.mod go.sum build.sh | checksum | cut -c1-12)
out=${XDG_CACHE_HOME:-$HOME/.cache}/kedge/tools/render-$sources

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

# step NAME PACKAGE LDFLAGS: builds one program and moves it into place whole.
step() {
  local begun=$SECONDS
  say "building $1 …"
  CGO_ENABLED=0 GOWORK=off go build -trimpath -ldflags "-s -w $3" -o "$out/.$1" "$2" >&2 9>&-
  mv "$out/.$1" "$out/$1"
  say "built $1 in $((SECONDS - begun)) s"
}

say "building kustomize $kustomize and helm $helm from Go modules: once, about 4 minutes on two cores"
step kustomize sigs.k8s.io/kustomize/kustomize/v5 ""
step helm helm.sh/helm/v4/cmd/helm "-X helm.sh/helm/v4/internal/version.version=$helm"
touch "$out/complete"
echo "$out"
