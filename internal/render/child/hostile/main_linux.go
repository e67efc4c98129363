// Command hostile is a child for tests of its parent and of its confinement. The path of a job names the
// actions that it attempts. Its result has one object for each action that succeeded.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/render/child"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

func main() {
	if !child.Requested(os.Args) {
		fmt.Fprintln(os.Stderr, "hostile is only for tests")
		os.Exit(2)
	}
	os.Exit(child.Main(os.Args, map[fleet.SourceKind]child.Renderer{fleet.SourceHelm: render}))
}

// render executes the path: a list of attempts, each of which becomes an object if it succeeds, or one misdeed.
func render(ctx context.Context, files treefs.Files, req child.Request) (child.Result, error) {
	if misdeed, ok := misdeeds[req.Path]; ok {
		_, _ = files.Stat(ctx, "looked-at") // so that the read set is not empty, however it ends
		return misdeed(ctx, files)
	}
	var out child.Result
	for name := range strings.SplitSeq(req.Path, ",") {
		attempt, ok := attempts[name]
		if !ok {
			return out, fmt.Errorf("there is no attempt %q", name)
		}
		if err := attempt(req.Namespace); err != nil {
			out.Notes = append(out.Notes, name+": "+err.Error())
			continue
		}
		out.Objects = append(out.Objects, object(name, "done"))
	}
	return out, nil
}

// object returns a ConfigMap with a text.
func object(name, text string) manifest.Object {
	return manifest.Object{
		Ref: fleet.ObjectRef{Kind: "ConfigMap", Name: name}, Source: "hostile",
		Content: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": name}, "data": map[string]any{"text": text},
		},
	}
}
