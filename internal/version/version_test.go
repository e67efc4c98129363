package version

import (
	"runtime/debug"
	"testing"
)

func TestFromSettings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, reason, want string
		settings           []debug.BuildSetting
	}{
		{name: "no revision", reason: "go run and tests have none", want: "dev"},
		{
			name: "clean", reason: "a build from a commit names it", want: "dev+0123456789ab",
			settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "false"}},
		},
		{
			name: "dirty", reason: "uncommitted changes must be visible", want: "dev+0123-dirty",
			settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123"}, {Key: "vcs.modified", Value: "true"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := fromSettings("dev", tt.settings); got != tt.want {
				t.Errorf("fromSettings() = %q, want %q: %s", got, tt.want, tt.reason)
			}
		})
	}
}
