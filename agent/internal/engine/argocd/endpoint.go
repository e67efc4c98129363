package argocd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/kubeconfig"
	"github.com/kedge-dev/kedge/internal/wait"
)

// Delays of the checks of API servers. A network that works again gives no event, and neither does a token that expires.
const (
	checkFirst   = 2 * time.Second
	checkMax     = time.Minute
	checkAgain   = 10 * time.Minute // after success
	checkTimeout = 15 * time.Second
	// maxVersion bounds the answer of an API server.
	maxVersion = 64 << 10
)

// endpoint is the state of the check of one environment. Only check uses it.
type endpoint struct {
	result   fleet.EnvironmentCheck
	failures wait.Backoff
	due      time.Time
}

// check checks the API servers of push environments until ctx ends, and reports when a result changes.
func (c *clusters) check(ctx context.Context) {
	if c.report == nil {
		return
	}
	known := map[fleet.EnvironmentID]*endpoint{}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		environments, sent := c.list()
		changed := c.checkDue(ctx, environments, known)
		if ctx.Err() == nil && sent && changed {
			results := make([]fleet.EnvironmentCheck, 0, len(environments))
			for _, env := range environments {
				results = append(results, known[env.ID].result)
			}
			c.report(results)
		}
		next := time.Now().Add(time.Hour)
		for _, e := range known {
			if e.due.Before(next) {
				next = e.due
			}
		}
		timer.Reset(max(0, time.Until(next)))
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-timer.C:
		}
	}
}

// checkDue checks the environments that are new, have changed, or are due. It reports whether a result has changed. One slow
// API server does not delay the others for longer than one check.
func (c *clusters) checkDue(ctx context.Context, environments []fleet.PushEnvironment, known map[fleet.EnvironmentID]*endpoint) (changed bool) {
	current := map[fleet.EnvironmentID]bool{}
	var work sync.WaitGroup
	before := map[fleet.EnvironmentID]fleet.EnvironmentCheck{}
	for _, env := range environments {
		current[env.ID] = true
		e := known[env.ID]
		if e == nil {
			e = &endpoint{}
			known[env.ID] = e
		}
		before[env.ID] = e.result
		if e.result.Revision == env.Revision && time.Now().Before(e.due) {
			continue
		}
		if e.result.Revision != env.Revision {
			e.failures.Reset()
		}
		work.Go(func() { e.run(ctx, env) })
	}
	work.Wait()
	for id, e := range known {
		if !current[id] {
			delete(known, id)
			changed = true
			continue
		}
		was := before[id]
		changed = changed || was.Revision != e.result.Revision || was.Cause != e.result.Cause
	}
	return changed
}

func (e *endpoint) run(ctx context.Context, env fleet.PushEnvironment) {
	why := CheckEndpoint(ctx, env)
	e.result = fleet.EnvironmentCheck{Environment: env.ID, EndpointCheck: fleet.EndpointCheck{Revision: env.Revision, Cause: why, AsOf: time.Now()}}
	if why.Reason == fleet.ReasonEndpointReady {
		e.failures.Reset()
		e.due = time.Now().Add(checkAgain)
		return
	}
	e.due = time.Now().Add(e.failures.NextJittered(checkFirst, checkMax))
}

// CheckEndpoint connects to the API server of a push environment with its credential, reads its version, and returns
// ReasonEndpointReady, or why the environment cannot be used. Messages never contain the credential.
func CheckEndpoint(ctx context.Context, env fleet.PushEnvironment) fleet.Cause {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	c := env.Credential
	config := &rest.Config{
		Host: env.APIURL, BearerToken: c.Token.Reveal(),
		TLSClientConfig: rest.TLSClientConfig{ServerName: c.ServerName, CAData: []byte(c.CA), CertData: []byte(c.Certificate), KeyData: []byte(c.Key.Reveal())},
		Dial:            (&net.Dialer{Timeout: checkTimeout, Control: refuseAddress}).DialContext,
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fleet.Cause{Reason: fleet.ReasonEndpointUnauthorized, Message: "the credential cannot be used"}
	}
	defer client.CloseIdleConnections()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, env.APIURL+"/version", http.NoBody)
	if err != nil {
		return fleet.Cause{Reason: fleet.ReasonEndpointUnreachable, Message: "the URL cannot be used"}
	}
	response, err := client.Do(request)
	if err != nil {
		return unreachable(env, err)
	}
	defer func() { _ = response.Body.Close() }()
	return answered(env, response)
}

// errAddress means that the name of an API server resolves to an address that no API server has.
var errAddress = errors.New("the address is not allowed")

// refuseAddress refuses addresses at the moment of the connection. Behind an HTTP proxy, address is that of the proxy.
func refuseAddress(_, address string, _ syscall.RawConn) error {
	if !kubeconfig.DialableAddress(address) {
		return errAddress
	}
	return nil
}

// unreachable explains a failed request.
func unreachable(env fleet.PushEnvironment, err error) fleet.Cause {
	host := hostOf(env.APIURL)
	var dns *net.DNSError
	switch {
	case errors.As(err, new(*tls.CertificateVerificationError)), errors.As(err, new(x509.UnknownAuthorityError)),
		errors.As(err, new(x509.HostnameError)), errors.As(err, new(x509.CertificateInvalidError)), errors.As(err, new(tls.RecordHeaderError)):
		return fleet.Cause{Reason: fleet.ReasonEndpointUntrusted, Message: fmt.Sprintf("the certificate of %s cannot be verified: %v", host, errors.Unwrap(err))}
	case errors.As(err, new(tls.AlertError)):
		return fleet.Cause{Reason: fleet.ReasonEndpointUnauthorized, Message: host + " does not accept the client certificate"}
	case errors.Is(err, errAddress):
		return fleet.Cause{Reason: fleet.ReasonEndpointUnreachable, Message: host + " has an address that is not allowed"}
	case errors.As(err, &dns):
		return fleet.Cause{Reason: fleet.ReasonEndpointUnreachable, Message: "the cluster of the engine instance cannot resolve " + host}
	case errors.Is(err, context.DeadlineExceeded):
		return fleet.Cause{Reason: fleet.ReasonEndpointUnreachable, Message: fmt.Sprintf("%s did not answer within %s", host, checkTimeout)}
	}
	return fleet.Cause{Reason: fleet.ReasonEndpointUnreachable, Message: fmt.Sprintf("connecting to %s: %v", host, errors.Unwrap(err))}
}

// answered explains a response.
func answered(env fleet.PushEnvironment, response *http.Response) fleet.Cause {
	host := hostOf(env.APIURL)
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized:
		return fleet.Cause{Reason: fleet.ReasonEndpointUnauthorized, Message: host + " does not accept the credential"}
	case http.StatusForbidden:
		return fleet.Cause{Reason: fleet.ReasonEndpointForbidden, Message: host + " does not allow the user of the credential to read its version"}
	default:
		return fleet.Cause{Reason: fleet.ReasonEndpointNotAPI, Message: fmt.Sprintf("%s answered with status %d", host, response.StatusCode)}
	}
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxVersion))
	if err == nil {
		err = json.Unmarshal(body, &version)
	}
	if err != nil || version.GitVersion == "" {
		return fleet.Cause{Reason: fleet.ReasonEndpointNotAPI, Message: host + " does not answer like an API server"}
	}
	return fleet.Cause{Reason: fleet.ReasonEndpointReady, Message: "the API server is available"}
}
