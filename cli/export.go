package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/resourcefile"
)

type exportOptions struct {
	dir        string
	allTenants bool
}

func (a *app) exportCommand() *cobra.Command {
	var o exportOptions
	kinds := a.declaredKinds()
	cmd := &cobra.Command{
		Use: "export [TYPE [NAME…]]", Short: "Print resources as YAML that kedge apply reads", Args: cobra.ArbitraryArgs,
		Long: "Prints the resources of the tenant as YAML: all of them, those of one type, or those named. Secrets and tokens are not exported, nor\n" +
			"whether something is suspended. Deployments that a file in Git declares are left out, because only that file changes them. Tenants\n" +
			"are exported when named as the type, and with --all-tenants.",
		Example:           "kedge export > tenant.yaml\nkedge export deployments web api\nkedge export -A --output-dir fleet/",
		ValidArgsFunction: completeKinds(kinds),
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen, names, err := chooseKinds(cmd, kinds, args, o.allTenants)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			docs, err := a.export(cmd.Context(), c, chosen, names, o)
			if err != nil {
				return err
			}
			return a.writeExport(docs, o.dir)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.dir, "output-dir", "", "write one file per resource to this folder instead of printing them")
	f.BoolVarP(&o.allTenants, "all-tenants", "A", false, "export all tenants that you may read")
	return cmd
}

// chooseKinds are the kinds and names that the command line asks for.
func chooseKinds(cmd *cobra.Command, kinds []declaredKind, args []string, allTenants bool) ([]declaredKind, []string, error) {
	if len(args) == 0 {
		return slices.DeleteFunc(slices.Clone(kinds), func(k declaredKind) bool { return k.global && !allTenants }), nil, nil
	}
	word, name, typed := strings.Cut(args[0], "/")
	i := slices.IndexFunc(kinds, func(k declaredKind) bool { return slices.Contains(k.words, strings.ToLower(word)) })
	if i < 0 {
		var known []string
		for _, k := range kinds {
			known = append(known, k.words[0])
		}
		return nil, nil, &exitError{exitUsage, fmt.Sprintf("%q is not a type: use one of %s", word, strings.Join(known, ", ")), cmd.CommandPath() + " --help"}
	}
	names := slices.Clone(args[1:])
	if typed {
		names = append([]string{name}, names...)
	}
	for j := range names {
		names[j] = bareName(names[j], kinds[i].words)
	}
	return kinds[i : i+1], names, nil
}

func completeKinds(kinds []declaredKind) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		var words []string
		for _, k := range kinds {
			if len(args) == 0 {
				words = append(words, k.words[0])
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// export reads resources as documents.
func (a *app) export(ctx context.Context, c *client.Client, kinds []declaredKind, names []string, o exportOptions) ([]resourcefile.Document, error) {
	clients := []*client.Client{c}
	if o.allTenants {
		tenants, err := tenantResource().list(ctx, c)
		if err != nil {
			return nil, err
		}
		clients = nil
		for _, t := range tenants {
			clients = append(clients, c.WithTenant(t.Name))
		}
	}
	docs := []resourcefile.Document{}
	for i, c := range clients {
		for _, k := range kinds {
			if k.global && i > 0 {
				continue
			}
			found, err := a.exportKind(ctx, c, k, names)
			if err != nil {
				return nil, err
			}
			for _, now := range found {
				if o.allTenants && !k.global {
					now.metadata.Tenant = c.Tenant()
				}
				doc, err := k.document(now)
				if err != nil {
					return nil, err
				}
				docs = append(docs, doc)
			}
		}
	}
	return docs, nil
}

// exportKind reads the resources of one kind, or those named.
func (a *app) exportKind(ctx context.Context, c *client.Client, k declaredKind, names []string) ([]current, error) {
	var found []current
	for _, name := range names {
		now, err := k.read(ctx, c, name)
		if err != nil {
			return nil, err
		}
		if now == nil {
			return nil, failure(fmt.Sprintf("%s %q not found", strings.ToLower(k.kind), name), "kedge get "+k.words[0])
		}
		found = append(found, *now)
	}
	if len(names) == 0 {
		var err error
		if found, err = k.list(ctx, c); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(found, func(now current) bool {
		if now.managed != "" {
			fmt.Fprintf(a.Err, "%s/%s is not exported: %s declares it\n", strings.ToLower(k.kind), now.metadata.Name, now.managed)
		}
		return now.managed != ""
	}), nil
}

// writeExport prints documents, or writes each to a file of its own.
func (a *app) writeExport(docs []resourcefile.Document, dir string) error {
	if dir == "" {
		text, err := resourcefile.Encode(docs...)
		if err != nil {
			return err
		}
		_, err = a.Out.Write(text)
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("creating the folder: %w", err)
	}
	for _, doc := range docs {
		text, err := resourcefile.Encode(doc)
		if err != nil {
			return err
		}
		path := filepath.Join(dir, fileName(doc))
		if err := os.WriteFile(path, text, 0o644); err != nil { //nolint:gosec // it holds no secret
			return fmt.Errorf("writing a resource: %w", err)
		}
	}
	return a.say("%s written to %s", count(len(docs), "resource"), dir)
}

// fileName is a name for the file of a resource. Names may be URLs.
func fileName(doc resourcefile.Document) string {
	parts := []string{strings.ToLower(doc.Kind), doc.Metadata.Name}
	if doc.Metadata.Tenant != "" {
		parts = append([]string{doc.Metadata.Tenant}, parts...)
	}
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == '.' || r == '@' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '-'
	}, strings.Join(parts, "-")) + ".yaml"
}
