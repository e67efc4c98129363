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
	// codeTTL is how long a CLI has to trade its code: it is on the same machine as the browser.
	codeTTL = time.Minute
	// maxExchange bounds the body of an exchange; a code holds the groups of a person.
	maxExchange = 256 << 10
)

// handover is what the one-time code of a CLI login holds. It gives a session to whoever knows the
// verifier of the challenge, once.
type handover struct {
	ID        string
	Who       control.Login
	Challenge string
	Expires   time.Time
}

// waiting reads where a CLI waits, and what it will prove.
func waiting(query url.Values) (port int, challenge string, err error) {
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

// handOver sends the browser on to the CLI that waits on its machine, and nowhere else.
func (l *Login) handOver(w http.ResponseWriter, r *http.Request, q question) {
	code, err := l.codes.seal(handover{ID: random(), Who: q.Who, Challenge: q.Challenge, Expires: l.cfg.Now().Add(codeTTL)})
	if err != nil {
		l.refuse(w, r, http.StatusInternalServerError, "the login could not be finished", err)
		return
	}
	q.sendBack(w, r, "code", code)
}

func (l *Login) serveExchange(w http.ResponseWriter, r *http.Request) {
	var in apiv1.Exchange
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxExchange))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		l.refuse(w, r, http.StatusBadRequest, "the body must be a JSON object with code and verifier", nil)
		return
	}
	h, err := l.redeem(in)
	if err == nil {
		err = l.once(r, h.ID)
	}
	var internal *internalError
	switch {
	case errors.As(err, &internal):
		l.refuse(w, r, http.StatusInternalServerError, "the code could not be checked: log in again", err)
		return
	case err != nil:
		l.refuse(w, r, http.StatusBadRequest, "the code is wrong, was used before, is older than a minute, or is not for this verifier: log in again", err)
		return
	}
	secret, session, ok := l.start(w, r, h.Who)
	if !ok {
		return
	}
	writeJSON(w, http.StatusOK, apiv1.Session{Token: secret, Name: session.Name, ExpiresAt: apiv1.Stamp(session.ExpiresAt)})
}

// redeem opens a code for whoever knows the verifier.
func (l *Login) redeem(in apiv1.Exchange) (handover, error) {
	var h handover
	if err := l.codes.open(in.Code, &h); err != nil {
		return h, err
	}
	if !l.cfg.Now().Before(h.Expires) {
		return h, errors.New("the code expired")
	}
	if in.Verifier == "" || subtle.ConstantTimeCompare([]byte(challengeOf(in.Verifier)), []byte(h.Challenge)) != 1 {
		return h, errors.New("the verifier is another login's")
	}
	return h, nil
}

// internalError is not the caller's doing.
type internalError struct{ err error }

func (e *internalError) Error() string { return e.err.Error() }
func (e *internalError) Unwrap() error { return e.err }

// once takes a code; a second time, on whatever replica, fails. The claims of idempotency keys are
// exactly that, and they are forgotten long after a code has expired.
func (l *Login) once(r *http.Request, id string) error {
	sum := sha256.Sum256([]byte(id))
	_, fresh, err := l.control.ClaimReply(r.Context(), auth.System(), store.Reply{Key: "login/" + id, Request: sum[:]})
	if err != nil {
		return &internalError{err}
	}
	if !fresh {
		return errors.New("it was used before")
	}
	return nil
}
