package link

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// ConnectPath is where a server takes WebSocket connections of agents.
const ConnectPath = "/agent/v1/connect"

// address is where the server is and how it is reached.
type address struct {
	scheme string // grpc, grpcs, ws or wss
	host   string
	port   string
	path   string // for ws and wss
}

// CheckAddress says what is wrong with an address of a server.
func CheckAddress(raw string) error {
	_, err := parseAddress(raw)
	return err
}

func parseAddress(raw string) (address, error) {
	if !strings.Contains(raw, "://") { // most likely host:port, which is no URL
		return address{}, fmt.Errorf("--server-address %q has to begin with grpc://, grpcs://, ws:// or wss://", withoutUser(raw))
	}
	u, err := url.Parse(raw)
	if err != nil {
		return address{}, errors.New("--server-address is no URL") // the error would hold a password
	}
	ports := map[string]string{"grpc": "80", "ws": "80", "grpcs": "443", "wss": "443"}
	port, ok := ports[u.Scheme]
	switch {
	case !ok:
		return address{}, fmt.Errorf("--server-address %q has to begin with grpc://, grpcs://, ws:// or wss://", u.Redacted())
	case u.Hostname() == "":
		return address{}, fmt.Errorf("--server-address %q names no host", u.Redacted())
	case u.User != nil:
		return address{}, fmt.Errorf("--server-address %q holds a password: the token file is for that", u.Redacted())
	case u.Scheme[0] == 'g' && u.Path != "" && u.Path != "/":
		return address{}, fmt.Errorf("--server-address %q has a path, which only ws:// and wss:// may have", u.Redacted())
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

// url is the address as an HTTP client (and a proxy setting) sees it.
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
