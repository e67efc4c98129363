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

// discoverTimeout bounds how long the issuer may take to tell its endpoints.
const discoverTimeout = 10 * time.Second

// provider is what the issuer has told of itself, asked for once.
type provider struct {
	mu     sync.Mutex
	found  *oidc.Provider
	asking *inquiry // the one that is under way; nil when there is none
}

// inquiry is one question to the issuer, which everybody who logs in meanwhile waits for together.
type inquiry struct {
	done  chan struct{} // closed when the rest is set
	found *oidc.Provider
	err   error
}

// discover returns the endpoints of the issuer. No lock is held while the issuer is asked: of one that does not answer,
// everybody hears within one timeout, and whoever goes away waits no longer.
func (l *Login) discover(ctx context.Context) (*oidc.Provider, error) {
	l.provider.mu.Lock()
	found, asking := l.provider.found, l.provider.asking
	if found == nil && asking == nil {
		asking = &inquiry{done: make(chan struct{})}
		l.provider.asking = asking
		go l.ask(context.WithoutCancel(ctx), asking)
	}
	l.provider.mu.Unlock()
	if found != nil {
		return found, nil
	}
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("asking %s for its endpoints: %w", l.cfg.Issuer, ctx.Err())
	case <-asking.done:
	}
	if asking.err != nil {
		return nil, fmt.Errorf("asking %s for its endpoints: %w", l.cfg.Issuer, asking.err)
	}
	return asking.found, nil
}

func (l *Login) ask(ctx context.Context, q *inquiry) {
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	q.found, q.err = oidc.NewProvider(oidc.ClientContext(ctx, l.cfg.Client), l.cfg.Issuer)
	l.provider.mu.Lock()
	l.provider.found, l.provider.asking = q.found, nil
	l.provider.mu.Unlock()
	close(q.done)
}

func (l *Login) oauth(p *oidc.Provider) *oauth2.Config {
	return &oauth2.Config{
		ClientID: l.cfg.ClientID, ClientSecret: l.cfg.ClientSecret, Endpoint: p.Endpoint(), Scopes: l.cfg.Scopes,
		RedirectURL: l.cfg.ExternalURL() + prefix + "callback",
	}
}

// vouch trades the code of the provider for an ID token and reads from it who logs in.
func (l *Login) vouch(ctx context.Context, a attempt, code string) (control.Login, error) {
	p, err := l.discover(ctx)
	if err != nil {
		return control.Login{}, err
	}
	ctx = oidc.ClientContext(ctx, l.cfg.Client)
	tokens, err := l.oauth(p).Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return control.Login{}, fmt.Errorf("trading the code for tokens: %w", withoutAnswer(err))
	}
	raw, ok := tokens.Extra("id_token").(string)
	if !ok {
		return control.Login{}, errors.New("the provider sent no ID token: is the scope openid among those asked for?")
	}
	id, err := p.Verifier(&oidc.Config{ClientID: l.cfg.ClientID, Now: l.cfg.Now}).Verify(ctx, raw)
	if err != nil {
		return control.Login{}, fmt.Errorf("verifying the ID token: %w", err)
	}
	if a.Nonce == "" || id.Nonce != a.Nonce {
		return control.Login{}, errors.New("verifying the ID token: it was made for another login")
	}
	var claims map[string]any
	if err := id.Claims(&claims); err != nil {
		return control.Login{}, fmt.Errorf("reading the ID token: %w", err)
	}
	return l.person(id, claims)
}

// withoutAnswer drops what a provider wrote around its refusal: it may repeat the code.
func withoutAnswer(err error) error {
	var refusal *oauth2.RetrieveError
	if errors.As(err, &refusal) && refusal.Response != nil {
		return fmt.Errorf("the provider answered %q, %q", refusal.Response.Status, refusal.ErrorCode)
	}
	return err
}

// person reads the claims that count. There is no second choice for a claim that is missing: one
// person's name must never stand where another's is expected.
func (l *Login) person(id *oidc.IDToken, claims map[string]any) (control.Login, error) {
	name, _ := claims[l.cfg.UserClaim].(string)
	if name == "" {
		return control.Login{}, fmt.Errorf("the ID token has no claim %q: ask for another scope, or set another claim", l.cfg.UserClaim)
	}
	if !plaintext.IsPlain(name) || strings.ContainsAny(name, "\n\t") {
		// Not cleaned: two people could become one.
		return control.Login{}, fmt.Errorf("the claim %q of the ID token holds control characters, which a name must not have", l.cfg.UserClaim)
	}
	if verified, _ := claims["email_verified"].(bool); l.cfg.UserClaim == "email" && !verified {
		return control.Login{}, errors.New("the provider does not say that it has verified the email address: " +
			"let it send email_verified, or name people by another claim with --oidc-user-claim")
	}
	display, _ := claims["name"].(string)
	groups := list(claims[l.cfg.GroupsClaim])
	return control.Login{
		Issuer: id.Issuer, Subject: id.Subject, Name: name, DisplayName: plainText(display), Groups: groups, TTL: l.cfg.SessionTTL,
		FleetAdmin: slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(l.cfg.AdminGroups, g) }),
	}, nil
}

// list reads a claim that is a list of texts, or one text alone.
func list(claim any) []string {
	switch v := claim.(type) {
	case string:
		if !plaintext.IsPlain(v) {
			return nil
		}
		return []string{v}
	case []any:
		var out []string
		for _, one := range v {
			// A group that cannot be shown is nobody's: cleaned, it could be another one.
			if text, ok := one.(string); ok && text != "" && plaintext.IsPlain(text) {
				out = append(out, text)
			}
		}
		return out
	default:
		return nil
	}
}
