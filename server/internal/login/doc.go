// Package login logs people in with an OpenID Connect provider: the authorization code flow with PKCE, state and
// nonce. It serves /api/v1/auth/. It makes no decisions: control determines the roles from the name and groups
// that the provider sends.
//
//	browser ─▶ /login ─▶ provider ─▶ /callback ─▶ session in a cookie
//	CLI     ─▶ /login?cli=PORT&challenge=… ─▶ provider ─▶ /callback ─▶ page that asks for confirmation
//	        ─▶ POST /confirm ─▶ code to 127.0.0.1:PORT ─▶ /exchange ─▶ session
//
// The page prevents phishing: without it, a person who is logged in at the provider and follows a link of an
// attacker would give the attacker's program a session.
//
// The server keeps no state between the steps. The state of a login is sealed in a cookie or in the one-time
// code, so any replica can handle the next step. Tokens, codes and claims are never logged.
package login
