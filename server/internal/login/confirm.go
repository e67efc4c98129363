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
	// askTTL is how long a person may look at the question; the CLI waits no longer either.
	askTTL = 5 * time.Minute
	// maxAnswer bounds the body of an answer, which holds the groups of a person.
	maxAnswer = 256 << 10
)

//go:embed confirm.html
var confirmText string

var confirmPage = template.Must(template.New("confirm").Parse(confirmText))

// question is what a person is asked before a CLI gets their session: whom it would act as, and where
// it waits. It travels sealed in the form; Mark is also in a cookie, so that the answer can only come
// from the browser that was asked.
type question struct {
	ID        string
	Who       control.Login
	Challenge string
	Port      int
	Mark      string
	Expires   time.Time
}

// cli is where the CLI waits.
func (q question) cli() string {
	return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(q.Port)) + "/"
}

// sendBack sends the browser to the CLI that waits on its machine.
func (q question) sendBack(w http.ResponseWriter, r *http.Request, key, value string) {
	to := q.cli() + "?" + url.Values{key: {value}}.Encode()
	http.Redirect(w, r, to, http.StatusSeeOther) //nolint:gosec // G710: it is loopback; of what was asked for only the port, a number, is in it
}

func questionCookie(id string) string { return "kedge-confirm-" + challengeOf(id)[:12] }

// askToConfirm shows who would be logged in where, with the code that the CLI prints too.
func (l *Login) askToConfirm(w http.ResponseWriter, r *http.Request, a attempt, who control.Login) {
	q := question{ID: random(), Who: who, Challenge: a.Challenge, Port: a.Port, Mark: random(), Expires: l.cfg.Now().Add(askTTL)}
	sealed, err := l.asked.seal(q)
	if err != nil {
		l.refuse(w, r, http.StatusInternalServerError, "the login could not be finished", err)
		return
	}
	l.setStrictCookie(w, questionCookie(q.ID), q.Mark, askTTL)
	l.writePage(w, q.cli(), map[string]string{
		"Name": who.Name, "Display": who.DisplayName, "Server": l.cfg.ExternalURL(), "Code": apiv1.LoginCode(a.Challenge),
		"Action": prefix + "confirm", "Question": sealed,
	})
}

// writePage writes a page that no other site can frame, that runs nothing, and whose form leads
// nowhere but here and, from here, to the CLI: browsers hold redirects of a form to form-action too.
func (l *Login) writePage(w http.ResponseWriter, cli string, data map[string]string) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'self' "+
		strings.TrimSuffix(cli, "/"))
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer a form would be sent with Origin: null
	h.Set("Cache-Control", "no-store")
	_ = confirmPage.Execute(w, data) // the browser is gone if this fails
}

// serveConfirm takes the answer, once.
func (l *Login) serveConfirm(w http.ResponseWriter, r *http.Request) {
	if err := l.cross.Check(r); err != nil {
		l.refuse(w, r, http.StatusForbidden, "a page of another site gave this answer in your name: it was refused, and nobody was logged in", err)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxAnswer)
	q, err := l.questionOf(w, r)
	if err == nil {
		err = l.once(r, q.ID)
	}
	var internal *internalError
	switch {
	case errors.As(err, &internal):
		l.refuse(w, r, http.StatusInternalServerError, "the answer could not be checked: log in again", err)
	case err != nil:
		l.refuse(w, r, http.StatusBadRequest, "this was not asked in this browser, was answered before, or took too long: log in again", err)
	case r.PostForm.Get("answer") != "yes":
		q.sendBack(w, r, "error", "denied")
	default:
		l.handOver(w, r, q)
	}
}

// questionOf opens the question that a form answers, in the browser that was asked.
func (l *Login) questionOf(w http.ResponseWriter, r *http.Request) (question, error) {
	var q question
	if err := r.ParseForm(); err != nil {
		return q, errors.New("the form cannot be read")
	}
	if err := l.asked.open(r.PostForm.Get("question"), &q); err != nil {
		return q, err
	}
	cookie, err := r.Cookie(questionCookie(q.ID))
	if err != nil || subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(q.Mark)) != 1 {
		return q, errors.New("another browser was asked")
	}
	l.setStrictCookie(w, questionCookie(q.ID), "", -time.Second)
	if !l.cfg.Now().Before(q.Expires) {
		return q, errors.New("the question expired")
	}
	return q, nil
}
