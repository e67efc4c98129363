// Package version has the version of this build.
package version

import (
	"runtime/debug"
)

// release is set by the linker: -ldflags "-X github.com/kedge-dev/kedge/internal/version.release=v1.2.3".
var release = "dev"

// String returns the release, or "dev+<revision>" for a build from a work tree.
func String() string {
	if release != "dev" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return release
	}
	return fromSettings(release, info.Settings)
}

func fromSettings(base string, settings []debug.BuildSetting) string {
	var revision, dirty string
	for _, s := range settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "-dirty"
			}
		}
	}
	if revision == "" {
		return base
	}
	return base + "+" + revision + dirty
}
