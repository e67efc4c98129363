package login

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const (
	// codeTTL is how long a CLI may take to exchange its code. It is on the same machine as the browser.
	codeTTL = time.Minute
	// maxExchange limits the body of an exchange. A code contains the groups of a person.
	maxExchange = 256 << 10
)

// oneTimeCode is the content of the code of a CLI login. It gives a session to the CLI that knows the verifier of
// the challenge, once.
type oneTimeCode struct {
	ID        string
	Login     control.Login
	Challenge string
	Expires   time.Time
}

// cliParams returns the port on which a CLI listens, and its challenge.
func cliParams(query url.Values) (port int, challenge string, err error) {
	port, err = strconv.Atoi(query.Get("cli"))
	if err != nil || port < 1 || port > 65535 {
		return 0, "", errors.New("cli must be the port on which a CLI listens on loopback")
	}
	challenge = query.Get("challenge")
	if sum, err := base64.RawURLEncoding.DecodeString(challenge); err != nil || len(sum) != sha256.Size {
		return 0, "", errors.New("challenge must be the SHA-256 of the verifier, in unpadded base64url")
	}
	return port, challenge, nil
}

// sendCode redirects the browser to the CLI with a one-time code.
func (l *Login) sendCode(w http.ResponseWriter, r *http.Request, q confirmation) {
	code, err := l.codes.seal(oneTimeCode{ID: random(), Login: q.Login, Challenge: q.Challenge, Expires: l.cfg.Now().Add(codeTTL)})
	if err != nil {
		l.reject(w, r, http.StatusInternalServerError, "the login failed", err)
		return
	}
	q.redirectToCLI(w, r, "code", code)
}

func (l *Login) serveExchange(w http.ResponseWriter, r *http.Request) {
	var in apiv1.Exchange
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxExchange))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		l.reject(w, r, http.StatusBadRequest, "the body must be a JSON object with code and verifier", nil)
		return
	}
	h, err := l.redeem(in)
	if err == nil {
		err = l.useOnce(r, h.ID)
	}
	var internal *internalError
	switch {
	case errors.As(err, &internal):
		l.reject(w, r, http.StatusInternalServerError, "the code could not be checked: log in again", err)
		return
	case err != nil:
		l.reject(w, r, http.StatusBadRequest, "the code is invalid, was already used, is older than a minute, or does not match the verifier: log in again", err)
		return
	}
	secret, session, ok := l.startSession(w, r, h.Login)
	if !ok {
		return
	}
	writeJSON(w, http.StatusOK, apiv1.Session{Token: secret, Name: session.Name, ExpiresAt: apiv1.Stamp(session.ExpiresAt)})
}

// redeem opens a code and checks the verifier.
func (l *Login) redeem(in apiv1.Exchange) (oneTimeCode, error) {
	var h oneTimeCode
	if err := l.codes.open(in.Code, &h); err != nil {
		return h, err
	}
	if !l.cfg.Now().Before(h.Expires) {
		return h, errors.New("the code expired")
	}
	if in.Verifier == "" || subtle.ConstantTimeCompare([]byte(challengeOf(in.Verifier)), []byte(h.Challenge)) != 1 {
		return h, errors.New("the verifier is for another login")
	}
	return h, nil
}

// internalError is an error that the caller did not cause.
type internalError struct{ err error }

func (e *internalError) Error() string { return e.err.Error() }
func (e *internalError) Unwrap() error { return e.err }

// useOnce marks a code as used. It fails if any replica has marked it before. It uses the claims of idempotency
// keys, which are kept long after a code has expired.
func (l *Login) useOnce(r *http.Request, id string) error {
	sum := sha256.Sum256([]byte(id))
	_, fresh, err := l.control.ClaimReply(r.Context(), auth.System(), store.Reply{Key: "login/" + id, Request: sum[:]})
	if err != nil {
		return &internalError{err}
	}
	if !fresh {
		return errors.New("it was already used")
	}
	return nil
}
