package imageupdate

import "testing"

// covers: I1 (the URL of the branch)
func TestProposalURL(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ reason, repo, base, want string }{
		{"GitHub", "https://github.com/x/y.git", "main", "https://github.com/x/y/compare/main...kedge/image/a-1"},
		{"GitHub by ssh", "ssh://git@github.com/x/y.git", "", "https://github.com/x/y/compare/kedge/image/a-1"},
		{"GitHub as scp writes it", "git@github.example.com:x/y.git", "rel/1", "https://github.example.com/x/y/compare/rel/1...kedge/image/a-1"},
		{"GitLab with groups", "https://gitlab.example.com:8443/a/b/c.git", "main", "https://gitlab.example.com:8443/a/b/c/-/merge_requests/new?merge_request%5Bsource_branch%5D=kedge%2Fimage%2Fa-1&merge_request%5Btarget_branch%5D=main"},
		{"Gitea", "http://gitea.local:3000/x/y", "main", "http://gitea.local:3000/x/y/compare/main...kedge/image/a-1"},
		{"Forgejo", "https://codeberg.org/x/y/", "main", "https://codeberg.org/x/y/compare/main...kedge/image/a-1"},
		{"Bitbucket", "https://bitbucket.org/x/y.git", "", "https://bitbucket.org/x/y/pull-requests/new?source=kedge%2Fimage%2Fa-1"},
		{"an unknown host", "https://git.example.com/x/y.git", "main", ""},
		{"a file", "file:///srv/github/x.git", "main", ""},
	} {
		if got := proposalURL(tc.repo, tc.base, "kedge/image/a-1"); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
		}
	}
}
