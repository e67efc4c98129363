#!/usr/bin/env bash
# Builds the Kubernetes control plane that tests and the demo run on, from Go modules alone, and prints the folder
# that holds it: KUBE=$(hack/kube/build.sh). The same folder is right for envtest: KUBEBUILDER_ASSETS=$KUBE.
# Built once per version and kept outside the work tree; a build that was killed is begun again.
set -euo pipefail
cd "$(dirname "$0")"

say() { echo "kube: $*" >&2; }
version_of() { awk -v module="$1" '$1 == module && $2 ~ /^v/ { print $2; exit }' go.mod; }
checksum() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }

# Read from go.mod rather than asked of the go command: that is instant, and needs no module cache.
kubernetes=$(version_of k8s.io/kubernetes)
kwok=$(version_of sigs.k8s.io/kwok)
sources=$(cat go.mod go.sum cmd/kubernetes/main.go etcd/go.mod etcd/go.sum etcd/main.go build.sh | checksum | cut -c1-12)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/kedge/kube
out=$cache/$kubernetes-$sources

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

# tick NAME: says every 15 seconds that something is happening; go build itself is silent for minutes.
# The wait is a read that never gets anything: a sleep would outlive the ticker and hold our output open.
tick() {
  local begun=$SECONDS
  exec 8<> <(:)
  while ! read -r -t 15 <&8; do
    say "  still building $1: $((SECONDS - begun)) s, $(wc -l <"$log") packages so far"
  done
}

# step NAME MODULE-FOLDER PACKAGE [LDFLAGS]: builds one program and moves it into place whole.
step() {
  local begun=$SECONDS status=0
  say "building $1 …"
  tick "$1" 9>&- >/dev/null &
  ticker=$!
  (cd "$2" && CGO_ENABLED=0 GOWORK=off go build -v -trimpath -ldflags "-s -w ${4:-}" -o "$out/.$1" "$3") 2>"$log" 9>&- || status=$?
  kill "$ticker" && { wait "$ticker" || true; } 2>/dev/null
  ticker=
  if [ "$status" -ne 0 ]; then
    tail -n 30 "$log" >&2
    say "building $1 failed"
    exit "$status"
  fi
  mv "$out/.$1" "$out/$1"
  say "built $1 in $((SECONDS - begun)) s"
}

started=$SECONDS
say "building Kubernetes $kubernetes from Go modules: once, about 10 minutes on two cores"
major=${kubernetes#v}; major=${major%%.*}
minor=${kubernetes#v*.}; minor=${minor%%.*}
version=k8s.io/component-base/version
step etcd etcd .
step kubernetes . ./cmd/kubernetes "-X $version.gitVersion=$kubernetes -X $version.gitMajor=$major -X $version.gitMinor=$minor"
for name in kube-apiserver kube-controller-manager kube-scheduler kubectl; do
  ln -sf kubernetes "$out/$name"
done
step kwok . sigs.k8s.io/kwok/cmd/kwok "-X sigs.k8s.io/kwok/pkg/consts.Version=$kwok"
step kwokctl . sigs.k8s.io/kwok/cmd/kwokctl "-X sigs.k8s.io/kwok/pkg/consts.Version=$kwok"
touch "$out/complete"
say "the control plane is in $out (built in $((SECONDS - started)) s)"
for old in "$cache"/*/; do
  if [ "${old%/}" != "$out" ]; then say "an older build is left in ${old%/}; remove it if no other checkout uses it"; fi
done
echo "$out"
