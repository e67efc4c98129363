package cli

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/profile"
)

func (a *app) contextCommand() *cobra.Command {
	cmd := group("context", "Choose between the servers and tenants that you are logged in to",
		a.contextGetCommand(), a.contextUseCommand(), a.contextDeleteCommand())
	cmd.Aliases = []string{"contexts", "ctx"}
	return cmd
}

// contextView is a context without its token.
type contextView struct {
	Name    string `json:"name"`
	Server  string `json:"server"`
	Tenant  string `json:"tenant,omitempty"`
	Current bool   `json:"current"`
}

func (a *app) contextGetCommand() *cobra.Command {
	var out outputFlags
	cmd := &cobra.Command{Use: "get", Aliases: listAliases, Short: "List contexts: servers and tenants with a stored login", Args: cobra.NoArgs}
	cmd.RunE = func(*cobra.Command, []string) error {
		if err := out.parse(); err != nil {
			return err
		}
		return a.withProfile(func(file *profile.File) (bool, error) {
			views := []contextView{}
			for _, c := range file.Contexts {
				views = append(views, contextView{c.Name, c.Server, c.Tenant, c.Name == file.Current})
			}
			return false, a.printContexts(views, out)
		})
	}
	out.add(cmd)
	return cmd
}

func (a *app) printContexts(views []contextView, out outputFlags) error {
	if !out.IsTable() && !out.IsName() {
		return out.Encode(a.Out, map[string]any{"items": views})
	}
	t := a.table(out, []string{"CURRENT", "NAME", "SERVER", "TENANT"})
	for _, v := range views {
		if out.IsName() {
			fmt.Fprintln(a.Out, v.Name)
		}
		t.Rows = append(t.Rows, []string{map[bool]string{true: "*"}[v.Current], v.Name, v.Server, orDash(v.Tenant)})
	}
	if out.IsName() {
		return nil
	}
	return t.Write(a.Out)
}

func (a *app) contextUseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "use NAME", Short: "Set the current context", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeContexts,
		Long: "Sets the context that later commands use. With --tenant the context also changes to that tenant.",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withProfile(func(file *profile.File) (bool, error) {
			i := slices.IndexFunc(file.Contexts, func(c profile.Context) bool { return c.Name == args[0] })
			if i < 0 {
				return false, noContext(args[0])
			}
			file.Current = args[0]
			if cmd.Flags().Changed("tenant") {
				file.Contexts[i].Tenant = a.flags.tenant
			}
			return true, a.say("Switched to context %q, tenant %q.", args[0], file.Contexts[i].Tenant)
		})
	}
	return cmd
}

func (a *app) contextDeleteCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "delete NAME", Short: "Delete a context and its stored token", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeContexts}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return a.withProfile(func(file *profile.File) (bool, error) {
			if !file.Remove(args[0]) {
				return false, noContext(args[0])
			}
			return true, a.say("Deleted context %q. Its token is still valid: kedge token revoke ID revokes one.", args[0])
		})
	}
	return cmd
}

func (a *app) completeContexts(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	err := a.withProfile(func(file *profile.File) (bool, error) {
		for _, c := range file.Contexts {
			names = append(names, c.Name)
		}
		return false, nil
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func noContext(name string) error {
	return failure(fmt.Sprintf("context %q not found", cmp.Or(name, "(current)")), "kedge context get lists contexts; kedge login URL creates one")
}

// withProfile works on the stored contexts and saves them when change says so.
func (a *app) withProfile(change func(*profile.File) (save bool, err error)) error {
	path, err := profile.Path(a.Env)
	if err != nil {
		return err
	}
	file, err := profile.Load(path)
	if err != nil {
		return err
	}
	save, err := change(&file)
	if err != nil || !save {
		return err
	}
	return file.Save(path)
}
