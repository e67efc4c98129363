// Package login lets people in whom an OpenID Connect provider vouches for: the authorization code
// flow with PKCE, state and nonce. It serves /api/v1/auth/ and decides nothing: what somebody may do
// is looked up by control, from the names and groups that the provider gave.
//
//	browser ─▶ /login ─▶ provider ─▶ /callback ─▶ session in a cookie
//	CLI     ─▶ /login?cli=PORT&challenge=… ─▶ provider ─▶ /callback ─▶ a page that asks the person
//	        ─▶ POST /confirm ─▶ code to 127.0.0.1:PORT ─▶ /exchange ─▶ session
//
// The page is there because anybody can send anybody a link: without it, whoever follows one and is
// logged in at the provider would hand a session to the program that made the link.
//
// Nothing is kept in memory between the steps: what a login is about travels sealed, in a cookie or in
// the one-time code, so any replica can take the next step. Tokens, codes and claims are never logged.
package login
