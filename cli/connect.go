package cli

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/profile"
	"github.com/kedge-dev/kedge/internal/fleet"
)

var errNotLoggedIn = failure("not logged in", "kedge login URL")

// connect makes the client of this run: flags go before the environment, and that before the login.
func (a *app) connect() (*client.Client, error) {
	login, err := a.login()
	if err != nil {
		return nil, err
	}
	server := cmp.Or(a.flags.server, a.Env("KEDGE_SERVER"), login.Server)
	if server == "" {
		return nil, errNotLoggedIn
	}
	if strings.TrimRight(server, "/") != login.Server {
		// The token of a login goes to the server that it is for, never to another one, which has other tenants too.
		login = profile.Context{}
	}
	token, err := a.token(login.Token)
	if err != nil {
		return nil, err
	}
	ca, err := a.ca(login.CA)
	if err != nil {
		return nil, err
	}
	return a.client(server, token, ca, cmp.Or(a.tenant(), login.Tenant))
}

// tenant is the tenant that the command line or the environment names; "" for none.
func (a *app) tenant() string { return cmp.Or(a.flags.tenant, a.Env("KEDGE_TENANT")) }

func (a *app) client(server, token string, ca []byte, tenant string) (*client.Client, error) {
	return client.New(client.Config{
		Server: server, Token: token, CA: ca, Tenant: cmp.Or(tenant, fleet.DefaultTenant), Agent: "kedge/" + a.Version,
	})
}

// login is what an earlier kedge login has stored; zero when there was none.
func (a *app) login() (profile.Context, error) {
	path, noHome := profile.Path(a.Env)
	if noHome != nil {
		return profile.Context{}, nil // everything can still come from flags
	}
	file, err := profile.Load(path)
	if err != nil {
		return profile.Context{}, err
	}
	found, ok := file.Find(a.flags.context)
	if !ok && a.flags.context != "" {
		return profile.Context{}, failure(fmt.Sprintf("there is no login named %q", a.flags.context), "kedge login URL --context "+a.flags.context)
	}
	return found, nil
}

func (a *app) token(stored string) (string, error) {
	if a.flags.tokenFile != "" {
		return readToken(a.flags.tokenFile)
	}
	token := cmp.Or(a.Env("KEDGE_TOKEN"), stored)
	if token == "" {
		return "", failure("no token for this server", "kedge login URL, or pass --token-file FILE")
	}
	return token, nil
}

func readToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", failure("reading the token: "+err.Error(), "write the token that the server printed at its first start into a file that only you can read")
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", failure("the token file "+path+" is empty", "write the token that the server printed at its first start into it")
	}
	return token, nil
}

func (a *app) ca(stored string) ([]byte, error) {
	if a.flags.caFile == "" {
		return []byte(stored), nil
	}
	text, err := os.ReadFile(a.flags.caFile)
	if err != nil {
		return nil, fmt.Errorf("reading the CA: %w", err)
	}
	return text, nil
}
