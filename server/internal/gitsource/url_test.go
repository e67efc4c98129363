package gitsource_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

// defect: B16
func TestCheckURL(t *testing.T) {
	t.Parallel()
	strict := []string{"https", "ssh"}
	all := []string{"https", "ssh", "http", "file"}
	tests := []struct {
		reason string
		url    string
		allow  []string
		want   string // "" if it is rejected
	}{
		{"https", "https://github.com/org/repo.git", strict, "https://github.com/org/repo.git"},
		{"case and slashes do not matter", " HTTPS://GitHub.com/Org/Repo/ ", strict, "https://github.com/Org/Repo"},
		{"ssh with a user", "ssh://git@host:2222/org/repo", strict, "ssh://git@host:2222/org/repo"},
		{"scp form", "git@host:org/repo.git", strict, "git@host:org/repo.git"},
		{"http becomes https", "http://host/repo", strict, "https://host/repo"},
		{"and loses the port of http", "http://host:80/repo", strict, "https://host/repo"},
		{"http where allowed", "http://127.0.0.1:3000/repo", all, "http://127.0.0.1:3000/repo"},
		{"file where allowed", "file:///srv/git/repo.git", all, "file:///srv/git/repo.git"},
		{"IPv6", "https://[::1]:8443/repo", strict, "https://[::1]:8443/repo"},
		{"file elsewhere", "file:///srv/git/repo.git", strict, ""},
		{"file on a host", "file://host/srv/repo.git", all, ""},
		{"scp without ssh", "git@host:repo", []string{"https"}, ""},
		{"a path", "/srv/git/repo.git", all, ""},
		{"a relative path", "../repo.git", all, ""},
		{"a remote helper", "ext::sh -c touch% /tmp/x", all, ""},
		{"a remote helper without spaces", "ext::sh", all, ""},
		{"a remote helper around a URL", "http::https://host/repo", all, ""},
		{"another transport", "git://host/repo", all, ""},
		{"ftp", "ftp://host/repo", all, ""},
		{"an option", "--upload-pack=touch", all, ""},
		{"an option as host", "ssh://-oProxyCommand=touch/repo", all, ""},
		{"an option as scp host", "-oProxyCommand=touch:repo", all, ""},
		{"an option as scp path", "host:-repo", all, ""},
		{"an option as user", "ssh://-l@host/repo", all, ""},
		{"a password", "https://user:s3cret@host/repo", all, ""},
		{"a token", "https://s3cret@host/repo", all, ""},
		{"a password in ssh", "ssh://git:s3cret@host/repo", all, ""},
		{"a password in scp form", "git:s3cret@host:repo", all, ""},
		{"a token in a query", "https://host/repo?token=s3cret", all, ""},
		{"a fragment", "https://host/repo#s3cret", all, ""},
		{"a password in an invalid URL", "https://user:s3cret@ho%zzst/repo", all, ""},
		{"a line feed", "https://host/repo\nfoo", all, ""},
		{"a hidden line feed", "https://host/repo%0afoo", all, ""},
		{"a hidden line feed in the host", "https://host%0afoo/repo", all, ""},
		{"white space", "https://host/re po", all, ""},
		{"no repository", "https://host/", all, ""},
		{"no repository in scp form", "host:/", all, ""},
		{"no host", "https:///repo", all, ""},
		{"empty", "", all, ""},
		{"too long", "https://host/" + strings.Repeat("a", 3000), all, ""},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			got, err := gitsource.CheckURL(tt.url, tt.allow)
			var bad *gitsource.URLError
			switch {
			case tt.want != "" && (err != nil || got != tt.want):
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			case tt.want == "" && !errors.As(err, &bad):
				t.Errorf("got %q, %v, want a URLError", got, err)
			case err != nil && strings.Contains(err.Error(), "s3cret"):
				t.Errorf("the error repeats the secret: %v", err)
			}
		})
	}
}

func FuzzCheckURL(f *testing.F) {
	for _, seed := range []string{"https://host/repo", "git@host:repo", "ssh://git@host/r", "ext::sh", "file:///x", "http://h/%0a"} {
		f.Add(seed)
	}
	allow := []string{"https", "ssh", "http", "file"}
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := gitsource.CheckURL(raw, allow)
		if err != nil {
			return
		}
		if strings.HasPrefix(got, "-") || strings.ContainsAny(got, "\x00\n\r ") {
			t.Errorf("%q became %q", raw, got)
		}
		again, err := gitsource.CheckURL(got, allow)
		if err != nil || again != got {
			t.Errorf("%q became %q and then %q, %v", raw, got, again, err)
		}
	})
}

func TestSpellingsOfOneRepository(t *testing.T) {
	t.Parallel()
	all := []string{"https", "ssh", "http", "file"}
	checked := func(raw string) string {
		t.Helper()
		url, err := gitsource.CheckURL(raw, all)
		check(t, err)
		return url
	}
	const one = "https://git.example.com/acme/apps.git"
	for _, other := range []string{
		"https://git.example.com/acme/apps", "https://git.example.com/acme/apps.git/", "https://GIT.example.com:443/acme/apps", "https://git.example.com./acme/apps",
		"https://git.example.com//acme/./x/../apps", "https://git.example.com/acme/%61pps", "https://git.example.com/Acme/Apps.git", "http://git.example.com/acme/apps",
		"ssh://git@git.example.com:2222/acme/apps.git", "ssh://other@git.example.com/acme/apps", "git@git.example.com:acme/apps.git", "git.example.com:/acme/apps/",
	} {
		if !gitsource.SameRepository(checked(one), checked(other)) {
			t.Errorf("%s counts as another repository than %s", other, one)
		}
	}
	for _, other := range []string{
		"https://git.example.com/acme/apps2", "https://git.example.com/other/apps", "https://example.com/acme/apps", "file:///git.example.com/acme/apps",
		"git@git.example.com:apps",
	} {
		if gitsource.SameRepository(checked(one), checked(other)) {
			t.Errorf("%s counts as the same repository as %s", other, one)
		}
	}
	if !gitsource.SameRepository("file:///srv/a.git", "file:///srv/a") || gitsource.SameRepository("file:///srv/a", "file:///srv/A") {
		t.Error("file paths are not compared case-sensitively")
	}
}

// A URL that was stored while http was allowed may be another repository over https.
func TestStoredHTTPIsNotReadAsHTTPS(t *testing.T) {
	t.Parallel()
	m, err := gitsource.New(gitsource.Config{Dir: t.TempDir(), Allow: []string{"https"}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var wrong *gitsource.URLError
	_, err = m.Fetch(t.Context(), gitsource.Access{Owner: "a", URL: "http://127.0.0.1:1/repo"}, []string{""})
	if !errors.As(err, &wrong) || !strings.Contains(wrong.Problem, "--git-allow") {
		t.Errorf("got %v, want an error that http is no longer allowed", err)
	}
}
