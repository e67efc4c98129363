#!/usr/bin/env bash
# Builds the application controller and the repo server of Argo CD, which tests of the Argo CD engine run on, from Go
# modules alone, and prints the folder that holds them: ARGOCD=$(hack/argocd/build.sh). The CRDs, the roles and the default
# settings of the same version are in its folder manifests.
# Built once per version and kept outside the work tree; a build that was killed is begun again.
set -euo pipefail
cd "$(dirname "$0")"

say() { echo "argocd: $*" >&2; }
version_of() { awk -v module="$1" '$1 == module && $2 ~ /^v/ { print $2; exit }' go.mod; }
checksum() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }

# Read from go.mod rather than asked of the go command: that is instant, and needs no module cache.
module=github.com/argoproj/argo-cd/v3
version=$(version_of "$module")
sources=$(cat go.mod go.sum main.go build.sh | checksum | cut -c1-12)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/kedge/argocd
out=$cache/$version-$sources

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

ticker=
log=$(mktemp)
finish() {
  if [ -n "$ticker" ]; then kill "$ticker" 2>/dev/null || true; fi
  rm -f "$log"
}
trap finish EXIT

# tick: says every 15 seconds that something is happening; go build itself is silent for minutes.
# The wait is a read that never gets anything: a sleep would outlive the ticker and hold our output open.
tick() {
  local begun=$SECONDS
  exec 8<> <(:)
  while ! read -r -t 15 <&8; do
    say "  still building: $((SECONDS - begun)) s, $(wc -l <"$log") packages so far"
  done
}

export CGO_ENABLED=0 GOWORK=off
started=$SECONDS status=0
say "building Argo CD $version from Go modules: once, about 7 minutes on two cores"
tick 9>&- >/dev/null &
ticker=$!
go build -v -trimpath -ldflags "-s -w -X $module/common.version=${version#v}" -o "$out/.argocd" . 2>"$log" 9>&- || status=$?
kill "$ticker" && { wait "$ticker" || true; } 2>/dev/null
ticker=
if [ "$status" -ne 0 ]; then
  tail -n 30 "$log" >&2
  say "building failed"
  exit "$status"
fi
mv "$out/.argocd" "$out/argocd"
for name in argocd-application-controller argocd-repo-server; do
  ln -sf argocd "$out/$name"
done

source=$(go list -m -f '{{.Dir}}' "$module")
# The repo server calls it for every commit. Its image has it on the PATH.
install -m 0755 "$source/hack/git-verify-wrapper.sh" "$out/"
# The manifests of an installation, without its workloads. Modules are read-only in the module cache; the copies are not.
for folder in crds base/config base/application-controller-roles; do
  mkdir -p "$out/manifests/$folder"
  install -m 0644 "$source/manifests/$folder"/*.yaml "$out/manifests/$folder/"
done
touch "$out/complete"
say "Argo CD is in $out (built in $((SECONDS - started)) s)"
for old in "$cache"/*/; do
  if [ "${old%/}" != "$out" ]; then say "an older build is left in ${old%/}; remove it if no other checkout uses it"; fi
done
echo "$out"
