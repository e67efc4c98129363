package login

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Config configures a Login. Zero fields have defaults.
type Config struct {
	// Issuer is the URL of the provider, exactly as the provider spells it.
	Issuer string
	// ClientID and ClientSecret are the registration of this server at the provider. A public client has no
	// secret.
	ClientID, ClientSecret string
	// Scopes are the requested scopes; default openid, profile and email. Some providers send groups only for a
	// special scope.
	Scopes []string
	// UserClaim is the claim of the ID token that identifies people in memberships; default email, which is
	// accepted only if the provider has verified the address. The first login binds a name to a person: see
	// control.Login.
	UserClaim string
	// GroupsClaim is the claim that lists groups; default groups.
	GroupsClaim string
	// AdminGroups are the groups whose members are fleet admins.
	AdminGroups []string
	// SessionTTL is how long a session lasts; default 12 h.
	SessionTTL time.Duration

	// ExternalURL returns the URL of this server for browsers, without a slash at the end.
	ExternalURL func() string
	// Key is the secret of the server, at least 32 bytes, equal on all replicas.
	Key []byte
	// Client sends requests to the provider; default a client with a timeout of 10 s.
	Client *http.Client
	// Now is the clock; default time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Control manages sessions on behalf of a login.
type Control interface {
	StartSession(ctx context.Context, who control.Login) (secret string, session fleet.APIToken, err error)
	EndSession(ctx context.Context, p auth.Principal) error
	Authenticate(ctx context.Context, token string) (auth.Principal, error)
	// ClaimReply ensures that a one-time code is used once, over all replicas.
	ClaimReply(ctx context.Context, p auth.Principal, r store.Reply) (store.Reply, bool, error)
}

// Login is the handler of /api/v1/auth/. It is safe for concurrent use.
type Login struct {
	cfg           Config
	control       Control
	attempts      sealer // the state of a login, in a cookie
	confirmations sealer // the login of a CLI to confirm, in a form
	codes         sealer // the confirmed login of a CLI, in a code
	provider      provider
	cross         *http.CrossOriginProtection
	mux           *http.ServeMux
}

// New returns a Login. It does no I/O: if the provider is unreachable, logins fail, but not the server.
func New(cfg Config, c Control) (*Login, error) {
	issuer, err := url.Parse(cfg.Issuer)
	if err != nil || issuer.Host == "" || (issuer.Scheme != "https" && issuer.Scheme != "http") {
		return nil, fmt.Errorf("login: the issuer %q is not a URL", cfg.Issuer)
	}
	if cfg.ClientID == "" || cfg.ExternalURL == nil {
		return nil, errors.New("login: a client id and an external URL are required")
	}
	if len(cfg.Key) < 32 {
		return nil, errors.New("login: the server key is shorter than 32 bytes")
	}
	if len(cfg.Scopes) == 0 {
		cfg.Scopes = []string{oidc.ScopeOpenID, "profile", "email"}
	}
	cfg.UserClaim = cmp.Or(cfg.UserClaim, "email")
	cfg.GroupsClaim = cmp.Or(cfg.GroupsClaim, "groups")
	cfg.SessionTTL = cmp.Or(cfg.SessionTTL, 12*time.Hour)
	cfg.Client = cmp.Or(cfg.Client, &http.Client{Timeout: 10 * time.Second})
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)).With(obs.KeyComponent, "login")
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	l := &Login{cfg: cfg, control: c, cross: http.NewCrossOriginProtection()}
	if l.attempts, err = newSealer(cfg.Key, "kedge login attempt"); err != nil {
		return nil, err
	}
	if l.confirmations, err = newSealer(cfg.Key, "kedge login question"); err != nil {
		return nil, err
	}
	if l.codes, err = newSealer(cfg.Key, "kedge login code"); err != nil {
		return nil, err
	}
	l.routes()
	return l, nil
}
