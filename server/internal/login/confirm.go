package login

import (
	"crypto/subtle"
	_ "embed"
	"errors"
	"html/template"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/server/internal/control"
)

const (
	// confirmTTL is how long a person may take to confirm. The CLI waits no longer either.
	confirmTTL = 5 * time.Minute
	// maxConfirmBody limits the body of a confirmation, which contains the groups of a person.
	maxConfirmBody = 256 << 10
)

//go:embed confirm.html
var confirmText string

var confirmPage = template.Must(template.New("confirm").Parse(confirmText))

// confirmation is what a person confirms before a CLI gets their session: whom the CLI would act as, and where it
// listens. It is sealed in the form. A cookie contains Mark too, so that only the browser that showed the page
// can confirm.
type confirmation struct {
	ID        string
	Login     control.Login
	Challenge string
	Port      int
	Mark      string
	Expires   time.Time
}

// callbackURL returns the URL on which the CLI listens.
func (q confirmation) callbackURL() string {
	return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(q.Port)) + "/"
}

// redirectToCLI redirects the browser to the CLI that listens on its machine.
func (q confirmation) redirectToCLI(w http.ResponseWriter, r *http.Request, key, value string) {
	to := q.callbackURL() + "?" + url.Values{key: {value}}.Encode()
	http.Redirect(w, r, to, http.StatusSeeOther) //nolint:gosec // G710: the host is loopback, and only the port comes from the request
}

func confirmationCookie(id string) string { return "kedge-confirm-" + challengeOf(id)[:12] }

// showConfirmPage shows the person and the server, with the code that the CLI prints too.
func (l *Login) showConfirmPage(w http.ResponseWriter, r *http.Request, a attempt, who control.Login) {
	q := confirmation{ID: random(), Login: who, Challenge: a.Challenge, Port: a.Port, Mark: random(), Expires: l.cfg.Now().Add(confirmTTL)}
	sealed, err := l.confirmations.seal(q)
	if err != nil {
		l.reject(w, r, http.StatusInternalServerError, "the login failed", err)
		return
	}
	l.setStrictCookie(w, confirmationCookie(q.ID), q.Mark, confirmTTL)
	l.writePage(w, q.callbackURL(), map[string]string{
		"Name": who.Name, "Display": who.DisplayName, "Server": l.cfg.ExternalURL(), "Code": apiv1.LoginCode(a.Challenge),
		"Action": prefix + "confirm", "Confirmation": sealed,
	})
}

// writePage writes a page that other sites cannot frame and that runs no scripts. Its form can only be sent to
// this server and from here to the CLI: browsers apply form-action to redirects too.
func (l *Login) writePage(w http.ResponseWriter, callbackURL string, data map[string]string) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'self' "+
		strings.TrimSuffix(callbackURL, "/"))
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer browsers send a form with Origin: null
	h.Set("Cache-Control", "no-store")
	_ = confirmPage.Execute(w, data) // fails only if the browser disconnected
}

// serveConfirm handles a confirmation, once.
func (l *Login) serveConfirm(w http.ResponseWriter, r *http.Request) {
	if err := l.cross.Check(r); err != nil {
		l.reject(w, r, http.StatusForbidden, "the request came from a page of another site, so it was rejected and nobody was logged in", err)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxConfirmBody)
	q, err := l.confirmationOf(w, r)
	if err == nil {
		err = l.useOnce(r, q.ID)
	}
	var internal *internalError
	switch {
	case errors.As(err, &internal):
		l.reject(w, r, http.StatusInternalServerError, "the confirmation could not be checked: log in again", err)
	case err != nil:
		l.reject(w, r, http.StatusBadRequest, "the confirmation is from another browser, was already used, or expired: log in again", err)
	case r.PostForm.Get("answer") != "yes":
		q.redirectToCLI(w, r, "error", "denied")
	default:
		l.sendCode(w, r, q)
	}
}

// confirmationOf opens the confirmation of a form. It must be from the browser that showed the page.
func (l *Login) confirmationOf(w http.ResponseWriter, r *http.Request) (confirmation, error) {
	var q confirmation
	if err := r.ParseForm(); err != nil {
		return q, errors.New("the form is invalid")
	}
	if err := l.confirmations.open(r.PostForm.Get("question"), &q); err != nil {
		return q, err
	}
	cookie, err := r.Cookie(confirmationCookie(q.ID))
	if err != nil || subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(q.Mark)) != 1 {
		return q, errors.New("the confirmation is for another browser")
	}
	l.setStrictCookie(w, confirmationCookie(q.ID), "", -time.Second)
	if !l.cfg.Now().Before(q.Expires) {
		return q, errors.New("the confirmation expired")
	}
	return q, nil
}
