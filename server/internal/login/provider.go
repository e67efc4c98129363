package login

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/kedge-dev/kedge/internal/plaintext"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// discoverTimeout limits a discovery request to the issuer.
const discoverTimeout = 10 * time.Second

// provider caches the discovery document of the issuer.
type provider struct {
	mu      sync.Mutex
	found   *oidc.Provider
	current *discovery // in progress; nil if there is none
}

// discovery is one discovery request. All concurrent logins wait for the same one.
type discovery struct {
	done  chan struct{} // closed when the other fields are set
	found *oidc.Provider
	err   error
}

// discover returns the endpoints of the issuer. It holds no lock during the request: if the issuer does not
// answer, all logins fail after one timeout, and a canceled login returns at once.
func (l *Login) discover(ctx context.Context) (*oidc.Provider, error) {
	l.provider.mu.Lock()
	found, current := l.provider.found, l.provider.current
	if found == nil && current == nil {
		current = &discovery{done: make(chan struct{})}
		l.provider.current = current
		go l.runDiscovery(context.WithoutCancel(ctx), current)
	}
	l.provider.mu.Unlock()
	if found != nil {
		return found, nil
	}
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("reading the discovery document of %s: %w", l.cfg.Issuer, ctx.Err())
	case <-current.done:
	}
	if current.err != nil {
		return nil, fmt.Errorf("reading the discovery document of %s: %w", l.cfg.Issuer, current.err)
	}
	return current.found, nil
}

func (l *Login) runDiscovery(ctx context.Context, q *discovery) {
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	q.found, q.err = oidc.NewProvider(oidc.ClientContext(ctx, l.cfg.Client), l.cfg.Issuer)
	l.provider.mu.Lock()
	l.provider.found, l.provider.current = q.found, nil
	l.provider.mu.Unlock()
	close(q.done)
}

func (l *Login) oauth(p *oidc.Provider) *oauth2.Config {
	return &oauth2.Config{
		ClientID: l.cfg.ClientID, ClientSecret: l.cfg.ClientSecret, Endpoint: p.Endpoint(), Scopes: l.cfg.Scopes,
		RedirectURL: l.cfg.ExternalURL() + prefix + "callback",
	}
}

// verifyCode exchanges the code of the provider for an ID token, verifies it, and returns the login.
func (l *Login) verifyCode(ctx context.Context, a attempt, code string) (control.Login, error) {
	p, err := l.discover(ctx)
	if err != nil {
		return control.Login{}, err
	}
	ctx = oidc.ClientContext(ctx, l.cfg.Client)
	tokens, err := l.oauth(p).Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return control.Login{}, fmt.Errorf("exchanging the code for tokens: %w", withoutBody(err))
	}
	raw, ok := tokens.Extra("id_token").(string)
	if !ok {
		return control.Login{}, errors.New("the provider sent no ID token: check that the scopes include openid")
	}
	id, err := p.Verifier(&oidc.Config{ClientID: l.cfg.ClientID, Now: l.cfg.Now}).Verify(ctx, raw)
	if err != nil {
		return control.Login{}, fmt.Errorf("verifying the ID token: %w", err)
	}
	if a.Nonce == "" || id.Nonce != a.Nonce {
		return control.Login{}, errors.New("verifying the ID token: it is for another login")
	}
	var claims map[string]any
	if err := id.Claims(&claims); err != nil {
		return control.Login{}, fmt.Errorf("reading the ID token: %w", err)
	}
	return l.loginOf(id, claims)
}

// withoutBody removes the response body of the provider from an error, because it may contain the code.
func withoutBody(err error) error {
	var refusal *oauth2.RetrieveError
	if errors.As(err, &refusal) && refusal.Response != nil {
		return fmt.Errorf("the provider answered %q, %q", refusal.Response.Status, refusal.ErrorCode)
	}
	return err
}

// loginOf reads the configured claims. A missing claim has no fallback, because a fallback could identify another
// person.
func (l *Login) loginOf(id *oidc.IDToken, claims map[string]any) (control.Login, error) {
	name, _ := claims[l.cfg.UserClaim].(string)
	if name == "" {
		return control.Login{}, fmt.Errorf("the ID token has no claim %q: request another scope, or configure another claim", l.cfg.UserClaim)
	}
	if !plaintext.IsPlain(name) || strings.ContainsAny(name, "\n\t") {
		// Removing the characters could make two names equal.
		return control.Login{}, fmt.Errorf("the claim %q of the ID token contains control characters, which are not allowed in a name", l.cfg.UserClaim)
	}
	if verified, _ := claims["email_verified"].(bool); l.cfg.UserClaim == "email" && !verified {
		return control.Login{}, errors.New("the provider does not confirm that the email address is verified: " +
			"configure it to send email_verified, or select another claim with --oidc-user-claim")
	}
	display, _ := claims["name"].(string)
	groups := stringList(claims[l.cfg.GroupsClaim])
	return control.Login{
		Issuer: id.Issuer, Subject: id.Subject, Name: name, DisplayName: plainText(display), Groups: groups, TTL: l.cfg.SessionTTL,
		FleetAdmin: slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(l.cfg.AdminGroups, g) }),
	}, nil
}

// stringList reads a claim that is a list of strings or one string.
func stringList(claim any) []string {
	switch v := claim.(type) {
	case string:
		if !plaintext.IsPlain(v) {
			return nil
		}
		return []string{v}
	case []any:
		var out []string
		for _, one := range v {
			// Ignore a group with control characters: without them it could be another group.
			if text, ok := one.(string); ok && text != "" && plaintext.IsPlain(text) {
				out = append(out, text)
			}
		}
		return out
	default:
		return nil
	}
}
