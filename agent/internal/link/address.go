package link

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// ConnectPath is the path of the server for WebSocket connections of agents.
const ConnectPath = "/agent/v1/connect"

// address is the address of the server and the protocol to use.
type address struct {
	scheme string // grpc, grpcs, ws or wss
	host   string
	port   string
	path   string // for ws and wss
}

// CheckAddress returns an error when the address of a server is not valid.
func CheckAddress(raw string) error {
	_, err := parseAddress(raw)
	return err
}

func parseAddress(raw string) (address, error) {
	if !strings.Contains(raw, "://") { // most likely host:port, which is not a URL
		return address{}, fmt.Errorf("--server-address %q must begin with grpc://, grpcs://, ws:// or wss://", withoutUser(raw))
	}
	u, err := url.Parse(raw)
	if err != nil {
		return address{}, errors.New("--server-address is not a URL") // the original error could contain a password
	}
	ports := map[string]string{"grpc": "80", "ws": "80", "grpcs": "443", "wss": "443"}
	port, ok := ports[u.Scheme]
	switch {
	case !ok:
		return address{}, fmt.Errorf("--server-address %q must begin with grpc://, grpcs://, ws:// or wss://", u.Redacted())
	case u.Hostname() == "":
		return address{}, fmt.Errorf("--server-address %q has no host", u.Redacted())
	case u.User != nil:
		return address{}, fmt.Errorf("--server-address %q must not contain a user or password: use --token-file", u.Redacted())
	case u.Scheme[0] == 'g' && u.Path != "" && u.Path != "/":
		return address{}, fmt.Errorf("--server-address %q must not have a path: only ws:// and wss:// may", u.Redacted())
	}
	if u.Port() != "" {
		port = u.Port()
	}
	a := address{scheme: u.Scheme, host: u.Hostname(), port: port, path: u.Path}
	if a.path == "" || a.path == "/" {
		a.path = ConnectPath
	}
	return a, nil
}

func withoutUser(raw string) string { return raw[strings.LastIndexByte(raw, '@')+1:] }

func (a address) hostPort() string { return net.JoinHostPort(a.host, a.port) }
func (a address) String() string   { return a.scheme + "://" + a.hostPort() }
func (a address) tls() bool        { return a.scheme == "grpcs" || a.scheme == "wss" }
func (a address) webSocket() bool  { return a.scheme == "ws" || a.scheme == "wss" }

// url returns the address for HTTP clients and proxy settings.
func (a address) url() *url.URL {
	scheme := "http"
	if a.tls() {
		scheme = "https"
	}
	u := &url.URL{Scheme: scheme, Host: a.hostPort()}
	if a.webSocket() {
		u.Path = a.path
	}
	return u
}
