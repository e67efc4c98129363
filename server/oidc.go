package server

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/server/internal/listen"
	"github.com/kedge-dev/kedge/server/internal/login"
	"github.com/kedge-dev/kedge/server/internal/restapi"
)

// OIDCConfig configures logins through an identity provider. The zero value disables them.
type OIDCConfig struct {
	// Issuer is the URL of the provider, exactly as the provider states it.
	Issuer string
	// ClientID is the id of this server at the provider; ClientSecretFile contains its secret, if it has one.
	ClientID, ClientSecretFile string
	// Scopes, UserClaim and GroupsClaim have the defaults of package login.
	Scopes                 []string
	UserClaim, GroupsClaim string
	// AdminGroups are the groups whose members are fleet admins.
	AdminGroups []string
	// SessionTTL is how long a login lasts; default 12 h.
	SessionTTL time.Duration
}

// newLogin returns the login handler, or nil without a provider.
func newLogin(cfg Config, r components, listener *listen.Server) (restapi.Login, error) {
	o := cfg.OIDC
	if o.Issuer == "" {
		return nil, nil
	}
	secret := ""
	if o.ClientSecretFile != "" {
		text, err := os.ReadFile(o.ClientSecretFile)
		if err != nil {
			return nil, fmt.Errorf("reading --oidc-client-secret-file: %w", err)
		}
		secret = strings.TrimSpace(string(text))
	}
	return login.New(login.Config{
		Issuer: o.Issuer, ClientID: o.ClientID, ClientSecret: secret, Scopes: o.Scopes, UserClaim: o.UserClaim, GroupsClaim: o.GroupsClaim,
		AdminGroups: o.AdminGroups, SessionTTL: o.SessionTTL,
		ExternalURL: func() string { return externalURL(cfg, listener) }, Key: r.key, Log: cfg.Log,
	}, r.control)
}
