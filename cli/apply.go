package cli

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/resourcefile"
)

// maxResourceFile bounds what is read from one file.
const maxResourceFile = 16 << 20

type applyOptions struct {
	files     []string
	recursive bool
	dryRun    bool
	confirmation
}

func (a *app) applyCommand() *cobra.Command {
	var o applyOptions
	cmd := &cobra.Command{
		Use: "apply -f FILE|DIR|-", Short: "Create or change resources as files declare them", Args: cobra.NoArgs,
		Long: "Reads resources from YAML or JSON files and makes the server match them. All files are checked before anything changes. A field that a\n" +
			"file leaves out gets its default. Nothing is deleted: a resource that no file declares stays as it is.\n\n" +
			"A resource has apiVersion (" + resourcefile.APIVersion + "), kind, metadata (name, labels, tenant) and spec, as kedge export writes it. The kinds are\n" +
			"Tenant, Credential, Repository, Agent, Environment, Grant, Member, GitLabProject and Deployment. The secret of a Credential is read from\n" +
			"spec.secretFrom.file or spec.secretFrom.env. An Agent has to be enrolled before.",
		Example: "kedge apply -f web.yaml\nkedge apply -f fleet/ -R --dry-run\nkedge export deployments -l team=web | kedge apply --tenant stage -f -",
		RunE: func(cmd *cobra.Command, _ []string) error {
			docs, err := a.readDocuments(o)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			return a.apply(cmd.Context(), c, docs, o)
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&o.files, "filename", "f", nil, "file or folder to apply, or - for standard input; may be repeated")
	f.BoolVarP(&o.recursive, "recursive", "R", false, "read the folders below a folder too")
	f.BoolVar(&o.dryRun, "dry-run", false, "check the files and print what would change, without changing anything")
	o.confirmation.flags(f)
	must(cmd.MarkFlagRequired("filename"))
	return cmd
}

// readDocuments reads all files.
func (a *app) readDocuments(o applyOptions) ([]resourcefile.Document, error) {
	var docs []resourcefile.Document
	for _, name := range o.files {
		paths := []string{name}
		if name != "-" {
			var err error
			if paths, err = filesOf(name, o.recursive); err != nil {
				return nil, failure("reading "+name+": "+err.Error(), "")
			}
		}
		for _, path := range paths {
			data, err := a.readResourceFile(path)
			if err != nil {
				return nil, failure("reading "+path+": "+err.Error(), "")
			}
			found, err := resourcefile.Parse(path, data)
			if err != nil {
				return nil, &exitError{exitUsage, err.Error(), "kedge apply --help; kedge export shows the form"}
			}
			docs = append(docs, found...)
		}
	}
	if len(docs) == 0 {
		return nil, &exitError{exitUsage, "the files hold no resource", "kedge export shows the form"}
	}
	return docs, nil
}

func (a *app) readResourceFile(path string) ([]byte, error) {
	if path != "-" {
		return os.ReadFile(path)
	}
	if a.In == nil {
		return nil, nil
	}
	return io.ReadAll(io.LimitReader(a.In, maxResourceFile))
}

// filesOf are the files to apply of a file or a folder, in the order of their names.
func filesOf(name string, recursive bool) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil || !info.IsDir() {
		return []string{name}, err
	}
	var out []string
	err = filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != name && !recursive:
			return fs.SkipDir
		case !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
			out = append(out, path)
		}
		return nil
	})
	return out, err
}

// change is a document with what the server has of it.
type change struct {
	doc  resourcefile.Document
	kind declaredKind
	rank int // order of kinds
	spec any
	c    *client.Client
	now  *current // nil when it does not exist
}

// name is KIND/NAME as apply prints it.
func (ch change) name() string { return strings.ToLower(ch.kind.kind) + "/" + ch.doc.Metadata.Name }

// apply checks everything, and then changes what differs.
func (a *app) apply(ctx context.Context, c *client.Client, docs []resourcefile.Document, o applyOptions) error {
	changes, err := a.plan(ctx, c, docs)
	if err != nil {
		return err
	}
	if err := a.confirmApply(ctx, changes, o); err != nil {
		return err
	}
	for i, ch := range changes {
		outcome, err := a.applyOne(ctx, ch, o.dryRun)
		if err != nil {
			return failedAt(ch, len(changes)-i-1, err)
		}
		if o.dryRun {
			outcome += " (dry run)"
		}
		if err := a.say("%s %s", ch.name(), outcome); err != nil {
			return err
		}
	}
	return nil
}

// failedAt says which resource the server refused and what was not done after it.
func failedAt(ch change, left int, err error) error {
	exit := refused(err)
	exit.text = fmt.Sprintf("%s: %s: %s", ch.doc.Source, ch.name(), exit.text)
	if left > 0 {
		exit.text += fmt.Sprintf("; %s after it not applied", count(left, "resource"))
	}
	return exit
}

// plan checks all documents and reads what the server has of them. Nothing is changed.
func (a *app) plan(ctx context.Context, c *client.Client, docs []resourcefile.Document) ([]change, error) {
	kinds := a.declaredKinds()
	var out []change
	var problems errorList
	wrong := func(format string, args ...any) {
		problems = append(problems, &exitError{exitUsage, fmt.Sprintf(format, args...), ""})
	}
	seen := map[string]string{}
	for _, doc := range docs {
		kind, rank, err := kindNamed(kinds, doc.Kind)
		if err != nil {
			wrong("%s: %v", doc.Source, err)
			continue
		}
		ch := change{doc: doc, kind: kind, rank: rank, c: c}
		if doc.Metadata.Tenant != "" && !kind.global {
			ch.c = c.WithTenant(doc.Metadata.Tenant)
		}
		key := ch.c.Tenant() + " " + ch.name()
		if before, twice := seen[key]; twice {
			wrong("%s: %s is in %s already", doc.Source, ch.name(), before)
		}
		seen[key] = doc.Source
		if len(doc.Metadata.Labels) > 0 && !kind.labelled {
			wrong("%s: %s: the kind %s has no labels", doc.Source, ch.name(), kind.kind)
		}
		if ch.spec, err = kind.parse(doc); err != nil {
			wrong("%v", err)
			continue
		}
		out = append(out, ch)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return out, a.readCurrent(ctx, out)
}

// readCurrent reads what the server has of the documents, checks what cannot be created, and sorts by kind.
func (a *app) readCurrent(ctx context.Context, changes []change) error {
	var problems errorList
	newTenants := map[string]bool{}
	slices.SortStableFunc(changes, func(x, y change) int { return x.rank - y.rank })
	for i := range changes {
		ch := &changes[i]
		var err error
		if !newTenants[ch.c.Tenant()] || ch.kind.global {
			if ch.now, err = ch.kind.read(ctx, ch.c, ch.doc.Metadata.Name); err != nil {
				return err
			}
		}
		if ch.now != nil && ch.now.managed != "" {
			problems = append(problems, &exitError{exitUsage, fmt.Sprintf("%s: %s is declared by %s: change it there", ch.doc.Source, ch.name(), ch.now.managed), ""})
		}
		if ch.now == nil && ch.kind.kind == "Tenant" {
			newTenants[ch.doc.Metadata.Name] = true
		}
		if ch.now == nil && ch.kind.check != nil {
			if err := ch.kind.check(ch.doc.Metadata, ch.spec); err != nil {
				problems = append(problems, &exitError{exitUsage, fmt.Sprintf("%s: %v", ch.doc.Source, err), ""})
			}
		}
	}
	return append(problems, a.checkReferences(ctx, changes, newTenants)...).orNil()
}

// confirmApply asks before agents may leave environments whose deployments delete their objects there.
func (a *app) confirmApply(ctx context.Context, changes []change, o applyOptions) error {
	if o.dryRun {
		return nil
	}
	for _, ch := range changes {
		if ch.now == nil || ch.kind.same(*ch.now, ch.doc.Metadata, ch.spec) {
			continue
		}
		if err := a.confirmChange(ctx, ch, o.confirmation, "kedge apply -f …"); err != nil {
			return err
		}
	}
	return nil
}

// confirmChange asks about one change of an agent or an environment.
func (a *app) confirmChange(ctx context.Context, ch change, confirm confirmation, command string) error {
	var environments []string
	switch ch.kind.kind {
	case "Environment":
		environments = []string{ch.doc.Metadata.Name}
	case "Agent":
		var err error
		if environments, err = leaves(ctx, ch.c, ch.doc.Metadata.Name); err != nil {
			return err
		}
	}
	for _, env := range environments {
		if err := confirm.askLeaving(ctx, a, ch.c, env, command); err != nil {
			return err
		}
	}
	return nil
}

// applyOne makes one resource match its file and says what that took, in the words of kubectl.
func (a *app) applyOne(ctx context.Context, ch change, dryRun bool) (string, error) {
	switch {
	case ch.now == nil && dryRun:
		return "created", nil
	case ch.now == nil:
		return "created", ch.kind.create(ctx, ch.c, ch.doc.Metadata, ch.spec)
	case ch.kind.same(*ch.now, ch.doc.Metadata, ch.spec):
		return "unchanged", nil
	case dryRun:
		return "configured", nil
	}
	tag, err := ch.kind.update(ctx, ch.c, *ch.now, ch.doc.Metadata, ch.spec)
	if err == nil && tag != "" && tag == ch.now.tag {
		return "unchanged", nil // the server reads it as the same
	}
	return "configured", err
}
