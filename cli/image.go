package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/output"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (a *app) imageCommand() *cobra.Command {
	cmd := group("image", "See and change which images a deployment runs, in its repository", a.imageSetCommand(), a.imageListCommand())
	cmd.Aliases = []string{"images"}
	return cmd
}

func (a *app) imageSetCommand() *cobra.Command {
	var req apiv1.SetImages
	var out outputFlags
	cmd := &cobra.Command{
		Use: "set DEPLOYMENT NAME=REF…", Short: "Commit new images to the repository of a deployment", Args: cobra.MinimumNArgs(2),
		Long: "Changes the images where the source says them: the images of a kustomization, the values of a chart, or the containers of plain\n" +
			"manifests. Comments and formatting stay as they are. The commit goes to the branch that the deployment follows, and is deployed like any\n" +
			"other; when the host protects that branch, it goes to a new one, whose name and page are printed.\n\n" +
			"NAME is the image without tag. REF is REPOSITORY:TAG, REPOSITORY@DIGEST, :TAG or @DIGEST.",
		Example: "kedge image set web nginx=:1.28.1\nkedge image set web ghcr.io/team/web=ghcr.io/team/web@sha256:… --dry-run",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := out.parse(); err != nil {
			return err
		}
		req.Images = nil
		for _, arg := range args[1:] {
			name, ref, ok := strings.Cut(arg, "=")
			if !ok || name == "" || ref == "" {
				return &exitError{exitUsage, fmt.Sprintf("%q is not NAME=REF", arg), "kedge image set web nginx=:1.28.1"}
			}
			req.Images = append(req.Images, apiv1.ImageChange{Name: name, Ref: ref})
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		update, err := client.Send[apiv1.ImageUpdate](cmd.Context(), c, http.MethodPost, c.In("deployments", args[0], "images"), req)
		if err != nil {
			return err
		}
		return a.printOne(out, update, "deployment/"+args[0], func() error { return a.printUpdate(args[0], update, req) })
	}
	f := cmd.Flags()
	f.StringVarP(&req.Message, "message", "m", "", "message of the commit (default: what changes)")
	f.StringVar(&req.Branch, "branch", "", "commit to a new branch of this name")
	f.BoolVar(&req.DryRun, "dry-run", false, "print what would change, and change nothing")
	out.add(cmd, output.TableFormat, output.JSON, output.YAML, output.JSONPath+"=")
	return cmd
}

// printUpdate shows what changes as a diff of fields: the lines around them may hold what is not meant for
// the eyes of everybody.
func (a *app) printUpdate(deployment string, u apiv1.ImageUpdate, req apiv1.SetImages) error {
	paint := a.painter()
	changed := 0
	for _, p := range u.Places {
		if p.Old == p.Text {
			continue
		}
		changed++
		fmt.Fprintln(a.Out, paint(bold, fmt.Sprintf("@@ %s %s @@", position(p), field(p))))
		if p.Old != "" {
			fmt.Fprintln(a.Out, paint(red, "-"+printable(p.Old)))
		}
		fmt.Fprintln(a.Out, paint(green, "+"+printable(p.Text)))
		if p.Note != "" {
			fmt.Fprintln(a.Out, "  "+printable(p.Note))
		}
	}
	return a.concludeUpdate(deployment, u, changed, req)
}

func (a *app) concludeUpdate(deployment string, u apiv1.ImageUpdate, changed int, req apiv1.SetImages) error {
	switch {
	case changed == 0:
		return a.say("Nothing to change: commit %s on branch %q has these images already.", shortCommit(u.Base), u.Branch)
	case req.DryRun:
		return a.say("%s would change on branch %q; nothing was changed.", count(changed, "field"), u.Branch)
	case u.Protected != "":
		fmt.Fprintf(a.Err, "The host protects the branch that deployment %q follows: %s\n", deployment, printable(u.Protected))
		if !u.Changed {
			return a.say("The same change waits on branch %q already.%s", u.Branch, proposeAt(u))
		}
		return a.say("Commit %s is on the new branch %q: propose it for merging.%s", shortCommit(u.Commit), u.Branch, proposeAt(u))
	case req.Branch != "":
		return a.say("Commit %s is on the new branch %q.%s", shortCommit(u.Commit), u.Branch, proposeAt(u))
	}
	fmt.Fprintf(a.Err, "To follow it: kedge status %s --watch\n", deployment)
	return a.say("Commit %s is pushed to branch %q.", shortCommit(u.Commit), u.Branch)
}

func proposeAt(u apiv1.ImageUpdate) string {
	if u.URL == "" {
		return ""
	}
	return "\n" + printable(u.URL)
}

func position(p apiv1.ImagePlace) string {
	if p.Line == 0 {
		return printable(p.File)
	}
	return fmt.Sprintf("%s:%d", printable(p.File), p.Line)
}

func field(p apiv1.ImagePlace) string {
	if p.Object == "" {
		return printable(p.Field)
	}
	return printable(p.Object + " " + p.Field)
}

func (a *app) imageListCommand() *cobra.Command {
	var out outputFlags
	cmd := a.verb("list DEPLOYMENT", "List the images of a deployment and where its repository names them", 1, func(ctx context.Context, c *client.Client, args []string) error {
		if err := out.parse(); err != nil {
			return err
		}
		images, err := client.Get[apiv1.Images](ctx, c, c.In("deployments", args[0], "images"))
		if err != nil {
			return err
		}
		switch {
		case out.IsName():
			for _, p := range images.Items {
				fmt.Fprintln(a.Out, printable(p.Image))
			}
			return nil
		case !out.IsTable():
			return out.Encode(a.Out, images)
		case len(images.Items) == 0:
			fmt.Fprintln(a.Err, "No images found.")
			return nil
		}
		t := a.table(out, []string{"IMAGE", "FILE", "FIELD", "NOTE"})
		for _, p := range images.Items {
			t.Rows = append(t.Rows, []string{printable(p.Image), position(p), field(p), cell(orDash(printable(strings.TrimSpace(p.Fixed + " " + p.Note))))})
		}
		return t.Write(a.Out)
	})
	cmd.Aliases = []string{"get", "ls"}
	out.add(cmd)
	return cmd
}
