package restapi_test

import (
	"context"
	"errors"
	"strings"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/filetree/memtree"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

// podCommit is the commit of every revision of every repository of memGit.
var podCommit = strings.Repeat("c0ffee", 6) + "c0ff"

// memGit is a Git in which every repository has one commit with a pod. It accepts every push, but protects the
// branch main.
type memGit struct{}

func (memGit) CheckURL(url string) (string, error) { return url, nil }

func (memGit) Fetch(_ context.Context, _ gitsource.Access, revisions []string) (map[string]gitsource.Ref, error) {
	refs := map[string]gitsource.Ref{}
	for _, revision := range revisions {
		refs[revision] = gitsource.Ref{Name: "refs/heads/main", Commit: podCommit}
	}
	return refs, nil
}

func (memGit) Tree(context.Context, gitsource.Access, string) (filetree.Tree, error) {
	return memtree.New(map[string]string{
		"pod/pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - name: web\n    image: nginx:1.0\n",
	}), nil
}

func (memGit) Commit(_ context.Context, _ gitsource.Access, req gitsource.CommitRequest) (gitsource.Pushed, error) {
	if req.PushBranch == "" {
		return gitsource.Pushed{}, &gitsource.ProtectedError{Branch: req.Branch, Message: "protected branch hook declined"}
	}
	return gitsource.Pushed{Commit: strings.Repeat("decade", 6) + "deca", Branch: req.PushBranch}, nil
}

// awayGit is a Git whose hosts are away. It counts the fetches.
type awayGit struct {
	memGit
	fetches int
}

func (g *awayGit) Fetch(context.Context, gitsource.Access, []string) (map[string]gitsource.Ref, error) {
	g.fetches++
	return nil, errors.New("the host is away")
}

// blockedGit is a Git whose hosts do not answer.
type blockedGit struct{ memGit }

func (blockedGit) Fetch(ctx context.Context, _ gitsource.Access, _ []string) (map[string]gitsource.Ref, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
