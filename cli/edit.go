package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/resourcefile"
)

func (a *app) editCommand() *cobra.Command {
	var confirm confirmation
	kinds := a.declaredKinds()
	cmd := &cobra.Command{
		Use: "edit TYPE NAME | TYPE/NAME", Short: "Edit a resource in your editor", Args: cobra.RangeArgs(1, 2),
		Long: "Opens a resource as YAML in $KUBE_EDITOR, $EDITOR or vi, and sends your changes when the editor ends. If the resource changed on the\n" +
			"server meanwhile, nothing is changed and your edit is kept in a file.",
		Example:           "kedge edit deployment web\nKUBE_EDITOR=nano kedge edit env/eu",
		ValidArgsFunction: completeKinds(kinds),
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen, names, err := chooseKinds(cmd, kinds, args, false)
			if err != nil {
				return err
			}
			if len(names) != 1 {
				return &exitError{exitUsage, cmd.CommandPath() + " needs TYPE NAME or TYPE/NAME", cmd.CommandPath() + " --help"}
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			e := editor{app: a, c: c, kind: chosen[0], confirm: confirm}
			return e.edit(cmd.Context(), names[0])
		},
	}
	confirm.flags(cmd.Flags())
	return cmd
}

// editor edits one resource.
type editor struct {
	app     *app
	c       *client.Client
	kind    declaredKind
	confirm confirmation
}

func (e editor) edit(ctx context.Context, name string) error {
	now, err := e.kind.read(ctx, e.c, name)
	switch {
	case err != nil:
		return err
	case now == nil:
		return failure(fmt.Sprintf("%s %q not found", strings.ToLower(e.kind.kind), name), "kedge get "+e.kind.words[0])
	case now.managed != "":
		return failure(fmt.Sprintf("%s %q is declared by %s: change it there", strings.ToLower(e.kind.kind), name, now.managed), "")
	}
	doc, err := e.kind.document(*now)
	if err != nil {
		return err
	}
	text, err := resourcefile.Encode(doc)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp("", "kedge-edit-*.yaml")
	if err != nil {
		return fmt.Errorf("creating a file to edit: %w", err)
	}
	_ = file.Close()
	return e.loop(ctx, *now, file.Name(), text)
}

// loop opens the editor until the edit is accepted, or nothing has changed. An edit that is refused comes back with the
// reason above it, as with kubectl.
func (e editor) loop(ctx context.Context, now current, path string, original []byte) error {
	const header = "# Edit the resource below. Lines that begin with # are ignored. An unchanged file changes nothing.\n"
	content, problem := original, error(nil)
	for {
		top := header
		if problem != nil {
			top += "#\n# " + strings.Join(strings.Fields(problem.Error()), " ") + "\n"
		}
		edited, err := e.open(ctx, path, append([]byte(top), content...))
		if err != nil {
			return err
		}
		if bytes.Equal(edited, content) {
			if problem != nil {
				return e.keep(path, problem)
			}
			_ = os.Remove(path)
			return e.app.say("Edit cancelled: no changes made.")
		}
		content = edited
		err = e.send(ctx, now, path, edited)
		switch status := client.Status(err); {
		case err == nil:
			_ = os.Remove(path)
			return nil
		case status == http.StatusPreconditionFailed:
			return e.keep(path, fmt.Errorf("%s %q changed on the server since you began to edit it, and nothing was changed", strings.ToLower(e.kind.kind), now.metadata.Name))
		case status != 0 && status != http.StatusBadRequest && status != http.StatusUnprocessableEntity && status != http.StatusConflict:
			return e.keep(path, err)
		}
		problem = err
	}
}

// keep says where an edit is that was not accepted.
func (e editor) keep(path string, err error) error {
	exit := refused(err)
	exit.next = "your edit is in " + path
	return exit
}

// send makes the change, if the resource is still as it was read.
func (e editor) send(ctx context.Context, now current, path string, text []byte) error {
	docs, err := resourcefile.Parse(filepath.Base(path), text)
	if err != nil {
		return err
	}
	if len(docs) != 1 || docs[0].Kind != e.kind.kind || docs[0].Metadata.Name != now.metadata.Name {
		return fmt.Errorf("kind and name cannot be edited: want %s %q", e.kind.kind, now.metadata.Name)
	}
	ch := change{doc: docs[0], kind: e.kind, c: e.c, now: &now}
	if ch.spec, err = e.kind.parse(docs[0]); err != nil {
		return err
	}
	if e.kind.same(now, docs[0].Metadata, ch.spec) {
		return e.app.say("%s unchanged", ch.name())
	}
	if err := e.app.confirmChange(ctx, ch, e.confirm, "kedge edit "+ch.name()); err != nil {
		return err
	}
	if _, err := e.kind.update(ctx, e.c, now, docs[0].Metadata, ch.spec); err != nil {
		return err
	}
	return e.app.say("%s edited", ch.name())
}

// open lets the user edit the text and returns it without comments.
func (e editor) open(ctx context.Context, path string, text []byte) ([]byte, error) {
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, fmt.Errorf("writing the file to edit: %w", err)
	}
	program := cmp.Or(e.app.Env("KUBE_EDITOR"), e.app.Env("EDITOR"), "vi")
	// The variable may hold arguments, as for kubectl.
	cmd := exec.CommandContext(ctx, "sh", "-c", program+` "$1"`, "sh", path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = e.app.In, e.app.Out, e.app.Err
	if err := cmd.Run(); err != nil {
		return nil, failure(fmt.Sprintf("the editor %q failed: %v", program, err), "set $KUBE_EDITOR or $EDITOR to your editor; your edit is in "+path)
	}
	edited, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the edited file: %w", err)
	}
	lines := slices.DeleteFunc(slices.Collect(strings.Lines(string(edited))), func(line string) bool { return strings.HasPrefix(line, "#") })
	return []byte(strings.Join(lines, "")), nil
}
