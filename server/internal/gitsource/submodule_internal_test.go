package gitsource

import (
	"io/fs"
	"strings"
	"testing"
)

// A submodule with a relative URL is on the host of its parent, because it is read with the parent's credential.
func FuzzResolveURL(f *testing.F) {
	for _, raw := range []string{"../other.git", "./inner", "../../../../x", "./../@evil.example/x", "../:x", "../..//evil.example", "./\x00", "https://elsewhere.example/x"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		for _, base := range []string{"https://user@host.example:8443/org/team/app.git", "git@host.example:org/app.git", "ssh://git@host.example/~me/app"} {
			got, err := resolveURL(base, raw)
			relative := strings.HasPrefix(raw, "./") || strings.HasPrefix(raw, "../")
			if err != nil || !relative {
				continue
			}
			if got, err = CheckURL(got, nil); err == nil && hostKey(got) != hostKey(base) {
				t.Errorf("%q relative to %s is %s, on another host", raw, base, got)
			}
		}
	})
}

func FuzzParseGitmodules(f *testing.F) {
	f.Add("submodule.a.path\nlib/a\x00submodule.a.url\n../a.git\x00")
	f.Add("submodule.a.path\n../../etc\x00submodule.a.url\nx\x00.path\n.\x00.url\ny")
	f.Fuzz(func(t *testing.T, text string) {
		for at, url := range parseGitmodules(text) {
			if !fs.ValidPath(at) || url == "" {
				t.Errorf("%q is at %q", url, at)
			}
		}
	})
}
