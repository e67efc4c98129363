package cli

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/output"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (a *app) credentialCommand() *cobra.Command {
	cmd := group("credential", "Manage passwords, tokens and keys for Git", a.credentialCreateCommand(), a.credentialSetCommand(),
		getCommand(a, "get", credentialResource()),
		a.removeVerb("credential", "Deletes a credential that no repository uses.", credentialResource().words(), func(c *client.Client, name string) string { return c.In("credentials", name) }))
	cmd.Aliases = []string{"credentials", "cred", "creds"}
	return cmd
}

// secretOf reads a secret from a file. A key ends with a line break, and that belongs to it; a
// password does not, whatever wrote the file.
func secretOf(path, kind string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", failure("reading the secret: "+err.Error(), "name a file that holds the password, token or private key")
	}
	if kind != "ssh" {
		return strings.TrimRight(string(text), "\r\n"), nil
	}
	return string(text), nil
}

func knownHostsOf(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", failure("reading the known hosts: "+err.Error(), "name a file that holds what ssh-keyscan HOST prints")
	}
	return string(text), nil
}

func (a *app) credentialCreateCommand() *cobra.Command {
	var req apiv1.CreateCredential
	var secretFile, hostsFile string
	cmd := a.verb("create NAME --secret-file FILE", "Create a credential; its secret cannot be read back", 1, func(ctx context.Context, c *client.Client, args []string) error {
		var err error
		if req.Secret, err = secretOf(secretFile, req.Kind); err != nil {
			return err
		}
		if hostsFile != "" {
			if req.KnownHosts, err = knownHostsOf(hostsFile); err != nil {
				return err
			}
		}
		req.Name = args[0]
		if err := client.Do(ctx, c, http.MethodPost, c.In("credentials"), req); err != nil {
			return err
		}
		fmt.Fprintf(a.Err, "To use it: kedge repo add URL --credential %s\n", args[0])
		return a.say("Credential %q created.", args[0])
	})
	cmd.Example = "kedge credential create github --secret-file token\nkedge credential create deploy-key --kind ssh --secret-file id_ed25519 --known-hosts-file known_hosts"
	f := cmd.Flags()
	f.StringVar(&req.Kind, "kind", "https", "https (password or token) or ssh (private key)")
	f.StringVar(&req.Username, "username", "", "user name, where the Git host wants a certain one")
	f.StringVar(&secretFile, "secret-file", "", "file with the password, token or private key")
	f.StringVar(&hostsFile, "known-hosts-file", "", "for ssh: file with lines of known_hosts")
	must(cmd.MarkFlagRequired("secret-file"))
	return cmd
}

func (a *app) credentialSetCommand() *cobra.Command {
	var secretFile, hostsFile, username string
	var cmd *cobra.Command
	cmd = a.verb("set NAME", "Change a credential; the server re-reads the repositories that use it", 1, func(ctx context.Context, c *client.Client, args []string) error {
		var req apiv1.UpdateCredential
		if secretFile != "" {
			now, err := client.Get[apiv1.Credential](ctx, c, c.In("credentials", args[0]))
			if err != nil {
				return err
			}
			secret, err := secretOf(secretFile, now.Kind)
			if err != nil {
				return err
			}
			req.Secret = &secret
		}
		if hostsFile != "" {
			hosts, err := knownHostsOf(hostsFile)
			if err != nil {
				return err
			}
			req.KnownHosts = &hosts
		}
		if cmd.Flags().Changed("username") {
			req.Username = &username
		}
		if err := client.Do(ctx, c, http.MethodPatch, c.In("credentials", args[0]), req); err != nil {
			return err
		}
		return a.say("Credential %q changed.", args[0])
	})
	cmd.Flags().StringVar(&username, "username", "", "user name, where the Git host wants a certain one")
	cmd.Flags().StringVar(&secretFile, "secret-file", "", "file with the new password, token or private key")
	cmd.Flags().StringVar(&hostsFile, "known-hosts-file", "", "for ssh: file with lines of known_hosts")
	return cmd
}

func credentialResource() resource[apiv1.Credential] {
	name := func(v apiv1.Credential) string { return v.Name }
	return resource[apiv1.Credential]{
		kind: "credential", use: "credentials", aliases: []string{"cred", "creds"}, short: "List credentials, without their secrets", changes: []string{"credential"},
		list: func(ctx context.Context, c *client.Client) ([]apiv1.Credential, error) {
			return client.List[apiv1.Credential](ctx, c, c.In("credentials"), nil, 0)
		},
		get: func(ctx context.Context, c *client.Client, name string) (apiv1.Credential, error) {
			return client.Get[apiv1.Credential](ctx, c, c.In("credentials", name))
		},
		key: name, name: name, header: []string{"NAME", "KIND", "USERNAME", "CHANGED", "AGE"},
		rows: func(v apiv1.Credential, now time.Time) [][]string {
			return [][]string{{v.Name, v.Kind, orDash(v.Username), output.Age(v.UpdatedAt, now), output.Age(v.CreatedAt, now)}}
		},
	}
}
