package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/profile"
)

func (a *app) contextCommand() *cobra.Command {
	list := &cobra.Command{Use: "get", Short: "List the logins that are remembered", Args: cobra.NoArgs}
	list.RunE = func(*cobra.Command, []string) error {
		return a.withProfile(func(file *profile.File) (bool, error) {
			t := table{header: []string{"CURRENT", "NAME", "SERVER", "TENANT"}, colour: a.colour()}
			for _, c := range file.Contexts {
				current := ""
				if c.Name == file.Current {
					current = "*"
				}
				t.rows = append(t.rows, []string{current, c.Name, c.Server, orDash(c.Tenant)})
			}
			return false, t.write(a.Out)
		})
	}
	use := &cobra.Command{Use: "use NAME", Short: "Use this login from now on", Args: cobra.ExactArgs(1)}
	use.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withProfile(func(file *profile.File) (bool, error) {
			i := slices.IndexFunc(file.Contexts, func(c profile.Context) bool { return c.Name == args[0] })
			if i < 0 {
				return false, noContext(args[0])
			}
			file.Current = args[0]
			if cmd.Flags().Changed("tenant") {
				file.Contexts[i].Tenant = a.flags.tenant
			}
			return true, a.say("Using %s, tenant %q.", args[0], file.Contexts[i].Tenant)
		})
	}
	use.Long = "Uses a login from now on; with --tenant also that tenant."
	forget := &cobra.Command{Use: "delete NAME", Short: "Forget a login and its token", Args: cobra.ExactArgs(1)}
	forget.RunE = func(_ *cobra.Command, args []string) error {
		return a.withProfile(func(file *profile.File) (bool, error) {
			before := len(file.Contexts)
			file.Contexts = slices.DeleteFunc(file.Contexts, func(c profile.Context) bool { return c.Name == args[0] })
			if len(file.Contexts) == before {
				return false, noContext(args[0])
			}
			if file.Current == args[0] {
				file.Current = ""
			}
			return true, a.say("Login %s is forgotten. Its token stays valid: kedge token revoke ends one.", args[0])
		})
	}
	return group("context", "Choose between servers and tenants that you are logged in to", list, use, forget)
}

func noContext(name string) error {
	return failure(fmt.Sprintf("there is no login named %q", name), "kedge context get lists them; kedge login URL makes one")
}

// withProfile works on what is remembered and saves it when change says so.
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
