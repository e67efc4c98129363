// Package client speaks the REST API of a Kedge server: one method per route, and a feed of changes
// that reconnects by itself. It prints nothing, reads no files and keeps no state of a user.
//
// A Client is safe for concurrent use.
package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/plaintext"
)

// maxAnswer bounds what a server can make a client hold.
const maxAnswer = 64 << 20

// Config says which server to speak to, and as whom.
type Config struct {
	Server string // https://host:port
	Token  string
	Tenant string
	CA     []byte // PEM, trusted beside the CAs of the system; may be empty
	Agent  string // User-Agent
	// Timeout of a request that is not a stream; default 30 s.
	Timeout time.Duration
	// RetryMin and RetryMax bound the pause before a broken stream is opened again; default 200 ms
	// and 10 s.
	RetryMin, RetryMax time.Duration
}

// Client is a caller of one server in one tenant.
type Client struct {
	cfg  Config
	base *url.URL
	http *http.Client
}

// New makes a client; it does no I/O.
func New(cfg Config) (*Client, error) {
	base, err := url.Parse(strings.TrimRight(cfg.Server, "/"))
	if err != nil || base.Hostname() == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, fmt.Errorf("%q is not the address of a server, such as https://kedge.example.com", cfg.Server)
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, 30*time.Second)
	cfg.RetryMin, cfg.RetryMax = cmp.Or(cfg.RetryMin, 200*time.Millisecond), cmp.Or(cfg.RetryMax, 10*time.Second)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if len(cfg.CA) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(cfg.CA) {
			return nil, errors.New("the CA file holds no certificate in PEM form")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &Client{cfg: cfg, base: base, http: &http.Client{Transport: transport, CheckRedirect: noRedirect}}, nil
}

// noRedirect keeps the token where it was meant to go.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Tenant is the tenant that the client works in.
func (c *Client) Tenant() string { return c.cfg.Tenant }

// CA is the PEM certificate that is trusted beside the CAs of the system; it may be empty.
func (c *Client) CA() []byte { return c.cfg.CA }

// Token is the credential of the caller.
func (c *Client) Token() string { return c.cfg.Token }

// UserAgent is the name of the program.
func (c *Client) UserAgent() string { return c.cfg.Agent }

// Server is the address of the server.
func (c *Client) Server() string { return c.base.String() }

// WithTenant returns a client of the same server that works in another tenant.
func (c *Client) WithTenant(tenant string) *Client {
	other := *c
	other.cfg.Tenant = tenant
	return &other
}

// StatusError is an answer that says no.
type StatusError struct {
	Status  int
	Problem apiv1.Problem
}

func (e *StatusError) Error() string {
	text := cmp.Or(e.Problem.Detail, e.Problem.Title, http.StatusText(e.Status), fmt.Sprintf("status %d", e.Status))
	for _, d := range e.Problem.Errors {
		line := strings.TrimPrefix(d.Location, "body.") + ": " + d.Message
		if !strings.Contains(text, d.Message) {
			text += "; " + line
		}
	}
	return text
}

// UnreachableError says that there was no answer at all.
type UnreachableError struct {
	Server string
	Err    error
}

func (e *UnreachableError) Error() string { return fmt.Sprintf("reaching %s: %v", e.Server, e.Err) }

func (e *UnreachableError) Unwrap() error { return e.Err }

// UnknownCA reports whether err says that the certificate of the server is signed by nobody known.
func UnknownCA(err error) bool {
	var unknown x509.UnknownAuthorityError
	return errors.As(err, &unknown)
}

// Status is the HTTP status of a StatusError in err, else 0.
func Status(err error) int {
	var status *StatusError
	if errors.As(err, &status) {
		return status.Status
	}
	return 0
}

// Problem is the problem document of a StatusError in err, else the zero Problem.
func Problem(err error) apiv1.Problem {
	var status *StatusError
	if errors.As(err, &status) {
		return status.Problem
	}
	return apiv1.Problem{}
}

// Refuses reports whether err is a StatusError about a field of the request, in its body or its query.
func Refuses(err error, field string) bool {
	var status *StatusError
	return errors.As(err, &status) && slices.ContainsFunc(status.Problem.Errors, func(d apiv1.ProblemDetail) bool {
		return d.Location == "body."+field || d.Location == "query."+field
	})
}

func (c *Client) request(ctx context.Context, method, path string, query url.Values, body any) (*http.Request, error) {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encoding a request: %w", err)
		}
		reader = bytes.NewReader(text)
	}
	target := c.base.String() + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, target, reader)
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	if c.cfg.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	r.Header.Set("User-Agent", c.cfg.Agent)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return r, nil
}

// do sends a request and returns the whole answer.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, body any) ([]byte, error) {
	text, _, err := c.doMatching(ctx, method, path, query, body, "")
	return text, err
}

// doMatching is do with the ETag that the resource must have, unless it is empty. It also returns the ETag of the answer.
func (c *Client) doMatching(ctx context.Context, method, path string, query url.Values, body any, match string) (text []byte, tag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	r, err := c.request(ctx, method, path, query, body)
	if err != nil {
		return nil, "", err
	}
	if match != "" {
		r.Header.Set("If-Match", match)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, "", c.unreachable(err)
	}
	defer resp.Body.Close()
	if text, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return nil, "", c.unreachable(err)
	}
	if resp.StatusCode >= 300 {
		return nil, "", statusError(resp.StatusCode, text)
	}
	return text, resp.Header.Get("ETag"), nil
}

// call is do for JSON answers; out may be nil.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, body, out any) error {
	text, err := c.do(ctx, method, path, query, body)
	if err != nil || out == nil {
		return err
	}
	return c.decode(text, out)
}

func (c *Client) decode(text []byte, out any) error {
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%s did not answer like a Kedge server: %w", c.base, err)
	}
	return nil
}

// unreachable drops the URL from the error of net/http, which repeats what we say ourselves.
func (c *Client) unreachable(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return &UnreachableError{Server: c.base.String(), Err: err}
}

// Open returns an answer as it arrives. It has no timeout but that of ctx. The caller closes it. accept is the wanted media
// type; it may be empty.
func (c *Client) Open(ctx context.Context, path string, query url.Values, accept string) (io.ReadCloser, error) {
	r, err := c.request(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return nil, err
	}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // what there is of it is enough
	return nil, statusError(resp.StatusCode, text)
}

// statusError reads the error of an answer: a problem document of the server, or a Status of the API server of a cluster.
func statusError(status int, text []byte) error {
	var kube struct {
		Kind    string `json:"kind"`
		Message string `json:"message"`
	}
	if json.Unmarshal(text, &kube) == nil && kube.Kind == "Status" {
		return &StatusError{Status: status, Problem: apiv1.Problem{Detail: plaintext.Text(kube.Message, 0)}}
	}
	e := &StatusError{Status: status}
	if json.Unmarshal(text, &e.Problem) != nil {
		e.Problem = apiv1.Problem{Detail: fmt.Sprintf("the server answered %d %s", status, http.StatusText(status))}
	}
	e.Problem.Detail = plaintext.Text(e.Problem.Detail, 0) // whoever answers must not control the terminal
	return e
}
