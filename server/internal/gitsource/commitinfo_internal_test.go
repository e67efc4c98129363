package gitsource

import (
	"strings"
	"testing"
)

func TestCommitInfoIsPlainText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]CommitInfo{
		"tree x\nauthor Ann Lee <ann@example.com> 1 +0000\ncommitter Bot <b@x> 1 +0000\n\nAdd a page\n\nauthor nobody\n": {"Ann Lee", "Add a page"},
		"author \x1b[31mEve <e@x> 1 +0000\n\n\n\x1b]0;title\x07Subject\twith\x00 control\n":                              {"[31mEve", "]0;title Subject with control"},
		"author A <a> 1 +0000\n\n" + strings.Repeat("x", 300):                                                            {"A", strings.Repeat("x", 199) + "…"},
		"author \xff\xfe <a> 1\n\n\xffbad":                                                                               {"", "bad"},
		"":                                                                                                               {},
	} {
		if got := commitInfo([]byte(text)); got != want {
			t.Errorf("%.40q reads %+v, want %+v", text, got, want)
		}
	}
}
