package cli

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

// ssoPatience is how long a person may take to log in.
const ssoPatience = 5 * time.Minute

// ssoToken lets a person log in with a browser and returns the token of the session. The code that
// comes back to this machine is worth nothing without the verifier, which never leaves it.
func (a *app) ssoToken(ctx context.Context, address string, ca []byte) (string, error) {
	c, err := a.client(address, "", ca, a.flags.tenant)
	if err != nil {
		return "", failure(err.Error(), "kedge login https://HOST[:PORT] --sso")
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("waiting for the browser: %w", err)
	}
	verifier := rand.Text() + rand.Text()
	sum := sha256.Sum256([]byte(verifier))
	challenge := base64.RawURLEncoding.EncodeToString(sum[:])
	login := address + "/api/v1/auth/login?" + url.Values{
		"cli":       {strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)},
		"challenge": {challenge},
	}.Encode()
	fmt.Fprintf(a.Err, "Open this address in a browser on this machine and log in:\n\n  %s\n\nConfirm there if the page shows this code: %s\n\n",
		login, apiv1.LoginCode(challenge))
	code, err := awaitCode(ctx, listener)
	if err != nil {
		return "", err
	}
	session, err := client.Send[apiv1.Session](ctx, c, http.MethodPost, c.Top("auth", "exchange"), apiv1.Exchange{Code: code, Verifier: verifier})
	return session.Token, err
}

// awaitCode serves one request: the browser's, with the code, or with the news that the person said no.
func awaitCode(ctx context.Context, listener net.Listener) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, ssoPatience)
	defer cancel()
	codes := make(chan string, 1)
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, denied := r.URL.Query().Get("code"), r.URL.Query().Has("error")
		switch {
		case denied:
			code = ""
			fmt.Fprintln(w, "You are not logged in. You can close this page.")
		case code == "":
			http.NotFound(w, r)
			return
		default:
			fmt.Fprintln(w, "You are logged in. You can close this page.")
		}
		select {
		case codes <- code:
		default: // the first one counts
		}
	})}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	defer func() {
		_ = server.Shutdown(context.WithoutCancel(ctx))
		<-ended
	}()
	select {
	case code := <-codes:
		if code == "" {
			return "", failure("the login was not confirmed in the browser", "kedge login URL --sso")
		}
		return code, nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return "", &exitError{exitTimeout, fmt.Sprintf("no login within %s", ssoPatience), "kedge login URL --sso"}
		}
		return "", ctx.Err()
	}
}
