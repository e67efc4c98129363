// Package kubeconfig reads the credential of one cluster from a kubeconfig, strictly: everything that would run a program,
// read a file, use a proxy, or switch off the verification of certificates is an error, and so is every field that the
// package does not know. Only the chosen context, its cluster and its user are used.
//
// The package does no I/O and never connects to a cluster. Errors never contain secrets.
package kubeconfig

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kedge-dev/kedge/internal/fleet"
)

const (
	// MaxSize bounds a kubeconfig.
	MaxSize = 256 << 10
	// maxPart bounds each certificate, key and token.
	maxPart    = 16 << 10
	maxEntries = 1000
)

// InvalidError means that a text is not a kubeconfig, or that a part of it cannot be read.
type InvalidError struct{ Problem string }

func (e *InvalidError) Error() string { return "the kubeconfig is invalid: " + e.Problem }

// UnsupportedError means that a kubeconfig uses something that is refused for security reasons.
type UnsupportedError struct{ Problem string }

func (e *UnsupportedError) Error() string { return "the kubeconfig cannot be used: " + e.Problem }

// ContextError means that a kubeconfig has no context for the cluster, or several.
type ContextError struct{ Problem string }

func (e *ContextError) Error() string {
	return "the kubeconfig has no usable context: " + e.Problem
}

func invalid(format string, args ...any) error {
	return &InvalidError{fmt.Sprintf(format, args...)}
}

func unsupported(format string, args ...any) error {
	return &UnsupportedError{fmt.Sprintf(format, args...)}
}

// Parse returns the credential for the API server at apiURL, which NormalURL has returned. context is the name of a context;
// "" chooses the current context if it is one of that API server, or else the only one of it.
func Parse(text []byte, apiURL, context string) (fleet.ClusterCredential, error) {
	f, err := read(text)
	if err != nil {
		return fleet.ClusterCredential{}, err
	}
	chosen, err := f.choose(apiURL, context)
	if err != nil {
		return fleet.ClusterCredential{}, err
	}
	var out fleet.ClusterCredential
	if err := chosen.cluster.check(&out); err != nil {
		return fleet.ClusterCredential{}, err
	}
	return out, chosen.user.check(&out)
}

// read decodes a kubeconfig. Text of the file is never part of an error: it may be a secret.
func read(text []byte) (*file, error) {
	if len(text) > MaxSize {
		return nil, invalid("it has more than %d bytes", MaxSize)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, invalid("it is empty")
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	var f file
	if err := decoder.Decode(&f); err != nil {
		return nil, invalid("it is not YAML, or not a kubeconfig with the fields that are known")
	}
	var more yaml.Node
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, invalid("it has more than one document")
	}
	switch {
	case f.Kind != "Config" && f.Kind != "" || f.APIVersion != "v1" && f.APIVersion != "":
		return nil, invalid("its kind is not Config of apiVersion v1")
	case len(f.Clusters) == 0 || len(f.Contexts) == 0 || len(f.Users) == 0:
		return nil, invalid("it has no clusters, no contexts or no users")
	case len(f.Clusters)+len(f.Contexts)+len(f.Users) > maxEntries:
		return nil, invalid("it has more than %d clusters, contexts and users", maxEntries)
	}
	return &f, nil
}

// chosen is what a context names.
type chosen struct {
	cluster cluster
	user    user
}

// choose finds the context. A name that occurs twice is an error: programs disagree about which one counts.
func (f *file) choose(apiURL, name string) (chosen, error) {
	var fitting []namedContext
	for _, c := range f.Contexts {
		if name != "" && c.Name != name {
			continue
		}
		if url, ok := f.server(c.Context.Cluster); ok && url == apiURL {
			fitting = append(fitting, c)
		}
	}
	if name == "" && len(fitting) > 1 {
		if i := slices.IndexFunc(fitting, func(c namedContext) bool { return c.Name == f.Current }); i >= 0 {
			fitting = fitting[i : i+1]
		}
	}
	switch {
	case len(fitting) == 0:
		return chosen{}, f.notFound(apiURL, name)
	case len(fitting) > 1:
		return chosen{}, &ContextError{fmt.Sprintf("%d contexts are for %s: name one of them", len(fitting), apiURL)}
	}
	context := fitting[0].Context
	users := slices.DeleteFunc(slices.Clone(f.Users), func(u namedUser) bool { return u.Name != context.User })
	if len(users) != 1 {
		return chosen{}, &ContextError{fmt.Sprintf("the user of the context occurs %d times, not once", len(users))}
	}
	at := slices.IndexFunc(f.Clusters, func(c namedCluster) bool { return c.Name == context.Cluster })
	return chosen{f.Clusters[at].Cluster, users[0].User}, nil
}

func (f *file) notFound(apiURL, name string) error {
	exists := slices.ContainsFunc(f.Contexts, func(c namedContext) bool { return c.Name == name })
	switch {
	case name == "":
		return &ContextError{fmt.Sprintf("no context is for %s", apiURL)}
	case exists:
		return &ContextError{fmt.Sprintf("the context that is named is not for %s", apiURL)}
	}
	return &ContextError{"it has no context of the name that is given"}
}

// server returns the normal URL of a cluster, if its name occurs once.
func (f *file) server(name string) (url string, ok bool) {
	count := 0
	for _, c := range f.Clusters {
		if c.Name == name {
			count++
			url = c.Cluster.Server
		}
	}
	normal, err := NormalURL(url)
	return normal, count == 1 && err == nil
}

// check reads the cluster into a credential.
func (c cluster) check(out *fleet.ClusterCredential) error {
	switch {
	case c.Insecure:
		return unsupported("insecure-skip-tls-verify is set: add certificate-authority-data instead")
	case c.CAFile != "":
		return unsupported("certificate-authority names a file: use certificate-authority-data instead")
	case c.ProxyURL != "":
		return unsupported("proxy-url is set")
	case len(c.ServerName) > 253 || strings.ContainsFunc(c.ServerName, notPrintable):
		return invalid("tls-server-name is too long or contains characters that are not allowed")
	}
	ca, err := data("certificate-authority-data", c.CAData)
	if err != nil {
		return err
	}
	if ca != "" && !certificates(ca) {
		return invalid("certificate-authority-data has no PEM certificates, or something else beside them")
	}
	out.CA, out.ServerName = ca, c.ServerName
	return nil
}

// certificates reports whether a text consists of PEM certificates.
func certificates(text string) bool {
	rest, n := []byte(text), 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return n > 0 && len(bytes.TrimSpace(rest)) == 0
		}
		if _, err := x509.ParseCertificate(block.Bytes); block.Type != "CERTIFICATE" || err != nil {
			return false
		}
		n++
	}
}

// check reads the user into a credential.
func (u user) check(out *fleet.ClusterCredential) error {
	switch {
	case u.Exec.Kind != 0:
		return unsupported("the user runs a program (exec): use a token of a ServiceAccount instead")
	case u.AuthProvider.Kind != 0:
		return unsupported("the user has an auth-provider: use a token of a ServiceAccount instead")
	case u.CertificateFile != "" || u.KeyFile != "" || u.TokenFile != "":
		return unsupported("the user names a file (client-certificate, client-key or tokenFile): use client-certificate-data, client-key-data or token instead")
	case u.Username != "" || u.Password != "":
		return unsupported("the user has a user name and password, which Kubernetes does not support any more")
	case u.As != "" || u.AsUID != "" || len(u.AsGroups) > 0 || len(u.AsExtra) > 0:
		return unsupported("the user impersonates another one")
	}
	certificate, err := data("client-certificate-data", u.CertificateData)
	if err != nil {
		return err
	}
	key, err := data("client-key-data", u.KeyData)
	if err != nil {
		return err
	}
	switch {
	case len(u.Token) > maxPart || strings.ContainsFunc(u.Token, notPrintable):
		return invalid("the token is too long, or contains spaces or characters that are not allowed")
	case u.Token == "" && certificate == "" && key == "":
		return invalid("the user has neither a token nor a client certificate")
	}
	if certificate != "" || key != "" {
		if _, err := tls.X509KeyPair([]byte(certificate), []byte(key)); err != nil {
			return invalid("client-certificate-data and client-key-data are not a certificate and its key")
		}
	}
	out.Token, out.Certificate, out.Key = fleet.NewSecretText(u.Token), certificate, fleet.NewSecretText(key)
	return nil
}

func data(field, text string) (string, error) {
	if len(text) > 2*maxPart {
		return "", invalid("%s is too long", field)
	}
	raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil || len(raw) > maxPart {
		return "", invalid("%s is too long, or not base64", field)
	}
	return string(raw), nil
}

func notPrintable(r rune) bool { return r <= ' ' || r > '~' }
