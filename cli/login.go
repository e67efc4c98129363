package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/profile"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// maxToken bounds what is read from standard input.
const maxToken = 64 << 10

func (a *app) loginCommand() *cobra.Command {
	var sso bool
	cmd := &cobra.Command{
		Use:   "login URL",
		Short: "Log in to a server and store the login as a context",
		Long: "Checks the token with the server and stores it, readable only by you, in $XDG_CONFIG_HOME/kedge/config.yaml (or $KEDGE_CONFIG). The\n" +
			"tenant is --tenant or $KEDGE_TENANT, else \"" + fleet.DefaultTenant + "\" if the token may use it, else the first that it may use. The context is\n" +
			"named after the server, and with --tenant after server and tenant (HOST/TENANT); --context chooses another name. The token comes from\n" +
			"--token-file, from standard input or from a prompt. With --sso you log in with a browser.",
		Example: "kedge login https://kedge.example.com --token-file token\nkedge login http://127.0.0.1:8080 < token",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.runLogin(cmd.Context(), args[0], sso) },
	}
	cmd.Flags().BoolVar(&sso, "sso", false, "log in with a browser at the server's identity provider")
	return cmd
}

func (a *app) runLogin(ctx context.Context, address string, sso bool) error {
	address = strings.TrimRight(address, "/")
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return failure(fmt.Sprintf("%q is not the address of a server", address), "kedge login https://HOST[:PORT]")
	}
	ca, err := a.ca("")
	if err != nil {
		return err
	}
	token, err := a.loginToken(ctx, address, ca, sso)
	if err != nil {
		return err
	}
	c, err := a.client(address, token, ca, "")
	if err != nil {
		return failure(err.Error(), "kedge login https://HOST[:PORT]")
	}
	who, err := client.Get[apiv1.Whoami](ctx, c, c.Top("whoami"))
	if err != nil {
		return err
	}
	if u.Scheme == "http" && !loopback(u.Hostname()) {
		fmt.Fprintln(a.Err, "Warning: this address is not encrypted: everyone on the way can read the token. Use https://.")
	}
	name, tenant := cmp.Or(a.flags.context, contextName(u.Host, a.tenant())), cmp.Or(a.tenant(), tenantOf(who))
	if err := a.remember(profile.Context{Name: name, Server: address, Token: token, CA: string(ca), Tenant: tenant}); err != nil {
		return err
	}
	return a.say("Logged in to %s as %s (%s), tenant %q. The context is %q.", address, who.Name, cmp.Or(who.Role, "no role yet"), tenant, name)
}

// contextName is the name of the context of a login: one per server, and one per server and tenant that was named.
func contextName(host, tenant string) string {
	if tenant == "" {
		return host
	}
	return host + "/" + tenant
}

// tenantOf is the tenant to work in when none is named: "default" for whoever may use it, else the first of the caller's.
func tenantOf(who apiv1.Whoami) string {
	isDefault := func(m apiv1.Membership) bool { return m.Tenant == fleet.DefaultTenant }
	if len(who.Tenants) == 0 || slices.ContainsFunc(who.Tenants, isDefault) {
		return fleet.DefaultTenant // a fleet admin has no memberships
	}
	return who.Tenants[0].Tenant
}

func (a *app) loginToken(ctx context.Context, address string, ca []byte, sso bool) (string, error) {
	if sso {
		return a.ssoToken(ctx, address, ca)
	}
	return a.askToken()
}

func (a *app) remember(c profile.Context) error {
	path, err := profile.Path(a.Env)
	if err != nil {
		return err
	}
	file, err := profile.Load(path)
	if err != nil {
		return err
	}
	file.Set(c)
	return file.Save(path)
}

func (a *app) askToken() (string, error) {
	if a.flags.tokenFile != "" {
		return readToken(a.flags.tokenFile)
	}
	text, err := a.readSecret()
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	if text = strings.TrimSpace(text); text != "" {
		return text, nil
	}
	return "", failure("no token given", "pass --token-file FILE or pipe the token in; the server prints it at its first start")
}

// readSecret does not echo on a terminal.
func (a *app) readSecret() (string, error) {
	if a.In == nil {
		return "", nil
	}
	if f, ok := a.In.(*os.File); ok && isTerminal(f) {
		fmt.Fprint(a.Err, "Token: ")
		text, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(a.Err)
		return string(text), err
	}
	text, err := io.ReadAll(io.LimitReader(a.In, maxToken))
	return string(text), err
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}
