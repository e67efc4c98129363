package kubeconfig

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// maxURL bounds the URL of an API server.
const maxURL = 1 << 10

// NormalURL checks the URL of an API server and returns it in one form: lower-case host, no default port, no trailing slash.
func NormalURL(text string) (string, error) {
	if len(text) > maxURL {
		return "", errors.New("is too long")
	}
	u, err := url.Parse(strings.TrimSpace(text))
	switch {
	case err != nil:
		return "", errors.New("is not a URL")
	case u.Scheme != "https":
		return "", errors.New("must begin with https://")
	case u.Hostname() == "" || u.Opaque != "":
		return "", errors.New("has no host")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "", errors.New("must not have a user, a query or a fragment")
	case strings.ContainsFunc(u.Path, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"'\%<>`, r) }) || strings.Contains(u.Path, ".."):
		return "", errors.New("has a path with characters that are not allowed")
	}
	host, port := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), u.Port()
	if err := checkHost(host); err != nil {
		return "", err
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != "" && port != "443" {
		host = host + ":" + port
	}
	return "https://" + host + strings.TrimRight(u.Path, "/"), nil
}

// checkHost refuses addresses that are never those of another cluster. The address of the cluster of Argo CD itself is one of
// them: a cluster Secret with it would replace the access of all other Applications.
func checkHost(host string) error {
	if host == "kubernetes" || host == "kubernetes.default" || strings.HasPrefix(host, "kubernetes.default.svc") {
		return errors.New("is the address of the cluster that Argo CD runs in: use an agent in that cluster instead")
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"'\%<>?#&@`, r) }) {
		return errors.New("has a host with characters that are not allowed")
	}
	if addr, err := netip.ParseAddr(host); err == nil && !Dialable(addr) {
		return errors.New("has an address that is not allowed: link-local, multicast and unspecified addresses are not those of API servers")
	}
	return nil
}

// Dialable reports whether an API server may have an address. Link-local addresses include the metadata services of clouds.
func Dialable(addr netip.Addr) bool {
	addr = addr.Unmap()
	return !addr.IsLinkLocalUnicast() && !addr.IsMulticast() && !addr.IsUnspecified()
}

// DialableAddress is Dialable for the address of a connection, host:port.
func DialableAddress(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && Dialable(addr)
}
