// Package oidcserver is an identity provider for tests: the authorization code flow with PKCE, for users that a
// test defines. Discovery, keys, and signatures come from the test server of go-oidc.
package oidcserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/coreos/go-oidc/v3/oidc/oidctest"
)

const keyID = "test"

// User is a user of the provider.
type User struct {
	Subject, Email, PreferredUsername string
	EmailVerified                     bool
	Groups                            []string
}

// Provider is a running identity provider. Its methods are safe for concurrent use.
type Provider struct {
	ClientID, ClientSecret string
	// OnAuthorize, if not nil, gets the query of every login and may change it. Set it before the first login.
	OnAuthorize func(query url.Values)

	server *httptest.Server
	base   oidctest.Server
	key    *ecdsa.PrivateKey

	mu    sync.Mutex
	users []User
	codes map[string]login
	ahead time.Duration
}

// login is the login of a code.
type login struct {
	user             User
	nonce, challenge string
}

// Start runs a provider until the end of the test.
func Start(t testing.TB) *Provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &Provider{ClientID: "kedge-test", ClientSecret: rand.Text(), key: key, codes: map[string]login{}}
	p.base = oidctest.Server{
		PublicKeys: []oidctest.PublicKey{{PublicKey: key.Public(), KeyID: keyID, Algorithm: oidc.ES256}}, Algorithms: []string{oidc.ES256},
	}
	mux := http.NewServeMux()
	mux.Handle("/", &p.base)
	mux.HandleFunc("GET /auth", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	p.server = httptest.NewServer(mux)
	t.Cleanup(p.server.Close)
	p.base.SetIssuer(p.server.URL)
	return p
}

// Issuer returns the URL of the provider.
func (p *Provider) Issuer() string { return p.server.URL }

// QueueUser adds a user for a further login, after those that were queued before.
func (p *Provider) QueueUser(u User) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users = append(p.users, u)
}

// FastForward advances the clock of the provider.
func (p *Provider) FastForward(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ahead += d
}

func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if p.OnAuthorize != nil {
		p.OnAuthorize(query)
	}
	if query.Get("client_id") != p.ClientID || query.Get("response_type") != "code" || query.Get("code_challenge_method") != "S256" {
		http.Error(w, "unknown login", http.StatusBadRequest)
		return
	}
	to, err := url.Parse(query.Get("redirect_uri"))
	if err != nil {
		http.Error(w, "not a redirect URI", http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	user := User{Subject: "nobody", Email: "nobody@example.com", EmailVerified: true, PreferredUsername: "nobody"}
	if len(p.users) > 0 {
		user, p.users = p.users[0], p.users[1:]
	}
	code := rand.Text()
	p.codes[code] = login{user: user, nonce: query.Get("nonce"), challenge: query.Get("code_challenge")}
	p.mu.Unlock()
	to.RawQuery = url.Values{"code": {code}, "state": {query.Get("state")}}.Encode()
	http.Redirect(w, r, to.String(), http.StatusFound)
}

// token exchanges a code for an ID token, once.
func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	id, secret, ok := r.BasicAuth()
	if !ok {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	p.mu.Lock()
	given, known := p.codes[r.PostFormValue("code")]
	delete(p.codes, r.PostFormValue("code"))
	now := time.Now().Add(p.ahead)
	p.mu.Unlock()
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	w.Header().Set("Content-Type", "application/json")
	switch {
	case id != p.ClientID || secret != p.ClientSecret:
		refuse(w, http.StatusUnauthorized, "invalid_client")
	case !known || given.challenge != base64.RawURLEncoding.EncodeToString(sum[:]):
		refuse(w, http.StatusBadRequest, "invalid_grant")
	default:
		_ = json.NewEncoder(w).Encode(map[string]any{
			"access_token": rand.Text(), "token_type": "Bearer", "expires_in": 600, "id_token": p.sign(given, now),
		})
	}
}

func refuse(w http.ResponseWriter, code int, reason string) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": reason})
}

func (p *Provider) sign(given login, now time.Time) string {
	claims, err := json.Marshal(map[string]any{
		"iss": p.Issuer(), "aud": p.ClientID, "sub": given.user.Subject, "nonce": given.nonce,
		"iat": now.Unix(), "exp": now.Add(10 * time.Minute).Unix(),
		"email": given.user.Email, "email_verified": given.user.EmailVerified,
		"preferred_username": given.user.PreferredUsername, "groups": given.user.Groups,
	})
	if err != nil {
		panic(err) // only texts and numbers are in it
	}
	return oidctest.SignIDToken(p.key, keyID, oidc.ES256, string(claims))
}
