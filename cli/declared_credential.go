package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/resourcefile"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

// credentialSpec never holds the secret itself: no server returns it, and no file should.
type credentialSpec struct {
	Kind       string      `json:"kind,omitempty"`
	Username   string      `json:"username,omitempty"`
	KnownHosts string      `json:"knownHosts,omitempty"`
	SecretFrom *secretFrom `json:"secretFrom,omitempty"`
}

// secretFrom says where apply reads a secret on this machine.
type secretFrom struct {
	File string `json:"file,omitempty"`
	Env  string `json:"env,omitempty"`
}

// secret reads the secret; "" when the file names none.
func (s credentialSpec) secret(a *app) (string, error) {
	switch from := s.SecretFrom; {
	case from == nil:
		return "", nil
	case (from.File == "") == (from.Env == ""):
		return "", errors.New("spec.secretFrom needs either file or env")
	case from.Env != "":
		value := a.Env(from.Env)
		if value == "" {
			return "", fmt.Errorf("spec.secretFrom.env: the environment variable %s is empty", from.Env)
		}
		return value, nil
	default:
		return secretOf(from.File, s.Kind)
	}
}

func credentialKind(a *app) declaredKind {
	as := func(v apiv1.Credential) current {
		return current{metadata: resourcefile.Metadata{Name: v.Name}, spec: credentialSpec{Kind: v.Kind, Username: v.Username, KnownHosts: v.KnownHosts}}
	}
	return declaredKind{
		kind: "Credential", words: credentialResource().words(),
		parse: parseSpec(func(s *credentialSpec) error {
			if s.Kind == "" {
				s.Kind = "https"
			}
			_, err := s.secret(a)
			return err
		}),
		list: func(ctx context.Context, c *client.Client) ([]current, error) {
			return listAll(ctx, c, c.In("credentials"), as, every)
		},
		read: func(ctx context.Context, c *client.Client, name string) (*current, error) {
			return readOne(ctx, c, c.In("credentials", name), as)
		},
		check: func(m resourcefile.Metadata, spec any) error {
			if spec.(credentialSpec).SecretFrom == nil {
				return fmt.Errorf("credential %q does not exist and the file names no secret: add spec.secretFrom.file or spec.secretFrom.env, or run kedge credential create %s", m.Name, m.Name)
			}
			return nil
		},
		create: func(ctx context.Context, c *client.Client, m resourcefile.Metadata, spec any) error {
			s := spec.(credentialSpec)
			secret, err := s.secret(a)
			if err != nil {
				return err
			}
			return client.Do(ctx, c, http.MethodPost, c.In("credentials"), apiv1.CreateCredential{
				Name: m.Name, Kind: s.Kind, Username: s.Username, KnownHosts: s.KnownHosts, Secret: secret,
			})
		},
		update: func(ctx context.Context, c *client.Client, now current, m resourcefile.Metadata, spec any) (string, error) {
			s := spec.(credentialSpec)
			if kind := now.spec.(credentialSpec).Kind; kind != s.Kind {
				return "", failure(fmt.Sprintf("credential %q is of kind %s, which cannot change", m.Name, kind), "delete it, or choose another name")
			}
			req := apiv1.UpdateCredential{Username: &s.Username, KnownHosts: &s.KnownHosts}
			if s.SecretFrom != nil {
				secret, err := s.secret(a)
				if err != nil {
					return "", err
				}
				req.Secret = &secret
			}
			return patch(ctx, c, now, req)
		},
	}
}
