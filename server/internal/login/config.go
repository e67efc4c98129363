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

// Config is what a Login may be told. Zero fields take their defaults.
type Config struct {
	// Issuer is the URL of the provider, exactly as it names itself.
	Issuer string
	// ClientID and ClientSecret are what the provider knows this server by. A public client has no
	// secret.
	ClientID, ClientSecret string
	// Scopes that are asked for; default openid, profile and email. Some providers give groups only
	// for a scope of their own.
	Scopes []string
	// UserClaim names the claim of the ID token that memberships name people by; default email, which
	// counts only when the provider has verified the address. Whom a name stands for is kept with the
	// first login: see control.Login.
	UserClaim string
	// GroupsClaim names the claim that lists groups; default groups.
	GroupsClaim string
	// AdminGroups are the groups whose people are fleet admins.
	AdminGroups []string
	// SessionTTL is how long a session lasts; default 12 h.
	SessionTTL time.Duration

	// ExternalURL is how browsers reach this server, without a slash at its end.
	ExternalURL func() string
	// Key is the server's own secret, at least 32 bytes, the same on all replicas.
	Key []byte
	// Client speaks to the provider; default one that gives up after 10 s.
	Client *http.Client
	// Now is the clock; default time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Control is what a login needs from the room that decides.
type Control interface {
	StartSession(ctx context.Context, who control.Login) (secret string, session fleet.APIToken, err error)
	EndSession(ctx context.Context, p auth.Principal) error
	Authenticate(ctx context.Context, token string) (auth.Principal, error)
	// ClaimReply is how a one-time code is taken once, by one replica.
	ClaimReply(ctx context.Context, p auth.Principal, r store.Reply) (store.Reply, bool, error)
}

// Login is the handler of /api/v1/auth/. It is safe for concurrent use.
type Login struct {
	cfg      Config
	control  Control
	attempts sealer // what a login is about, in a cookie
	asked    sealer // whom a CLI login would let in, in the form that asks the person
	codes    sealer // whom a CLI login let in, in a code
	provider provider
	cross    *http.CrossOriginProtection
	mux      *http.ServeMux
}

// New makes a Login. It does no I/O: a provider that cannot be reached fails logins, not the server.
func New(cfg Config, c Control) (*Login, error) {
	issuer, err := url.Parse(cfg.Issuer)
	if err != nil || issuer.Host == "" || (issuer.Scheme != "https" && issuer.Scheme != "http") {
		return nil, fmt.Errorf("login: the issuer %q is no URL of an identity provider", cfg.Issuer)
	}
	if cfg.ClientID == "" || cfg.ExternalURL == nil {
		return nil, errors.New("login: a client id and an external URL are needed")
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
	if l.asked, err = newSealer(cfg.Key, "kedge login question"); err != nil {
		return nil, err
	}
	if l.codes, err = newSealer(cfg.Key, "kedge login code"); err != nil {
		return nil, err
	}
	l.routes()
	return l, nil
}
