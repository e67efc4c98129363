package localcluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	caFile          = "ca.crt"
	servingCertFile = "apiserver.crt"
	servingKeyFile  = "apiserver.key"
	accountKeyFile  = "service-account.key"
)

// user is the identity of a client certificate.
type user struct {
	name, group string
	file        string // kubeconfig
}

// The users of a cluster. Controllers have the identities of the default RBAC rules, so that they have their
// usual permissions.
var (
	adminUser      = user{name: "admin", group: "system:masters", file: "kubeconfig"}
	controllerUser = user{name: "system:kube-controller-manager", file: "controller-manager.kubeconfig"}
	schedulerUser  = user{name: "system:kube-scheduler", file: "scheduler.kubeconfig"}
	kwokUser       = user{name: "kwok", group: "system:masters", file: "kwok.kubeconfig"}
)

// pki is a certificate authority for one cluster.
type pki struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

// keyPair is a certificate with its private key, both in PEM.
type keyPair struct{ cert, key []byte }

func newPKI() (*pki, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of a certificate authority: %w", err)
	}
	template := certTemplate(pkix.Name{CommonName: "kedge-localcluster"})
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("making a certificate authority: %w", err)
	}
	return &pki{cert: cert, key: key, pem: encodePEM("CERTIFICATE", der)}, nil
}

func certTemplate(subject pkix.Name) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic(err) // crypto/rand never fails
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		// A clock that steps back a little must not make it invalid.
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().AddDate(0, 1, 0),
	}
}

func (p *pki) issue(template *x509.Certificate) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("making a key: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, p.cert, key.Public(), p.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("issuing a certificate for %q: %w", template.Subject.CommonName, err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return keyPair{}, fmt.Errorf("encoding a key: %w", err)
	}
	return keyPair{cert: encodePEM("CERTIFICATE", der), key: encodePEM("PRIVATE KEY", private)}, nil
}

func (p *pki) serving() (keyPair, error) {
	template := certTemplate(pkix.Name{CommonName: "kube-apiserver"})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	return p.issue(template)
}

func (p *pki) client(u user) (keyPair, error) {
	subject := pkix.Name{CommonName: u.name}
	if u.group != "" {
		subject.Organization = []string{u.group}
	}
	template := certTemplate(subject)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	return p.issue(template)
}

func (p *pki) clientTLS(u user) (*tls.Config, error) {
	pair, err := p.client(u)
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(pair.cert, pair.key)
	if err != nil {
		return nil, fmt.Errorf("loading the certificate of %q: %w", u.name, err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(p.cert)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
}

// newAccountKey returns the key that signs ServiceAccount tokens, in the encoding of elliptic keys that both
// kube-apiserver (as a public key) and kube-controller-manager accept.
func newAccountKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of ServiceAccount tokens: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key of ServiceAccount tokens: %w", err)
	}
	return encodePEM("EC PRIVATE KEY", der), nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// writeFiles writes keys, certificates, kubeconfigs, and the two policies into the folder.
func (c *Cluster) writeFiles() error {
	var err error
	if c.pki, err = newPKI(); err != nil {
		return err
	}
	serving, err := c.pki.serving()
	if err != nil {
		return err
	}
	account, err := newAccountKey()
	if err != nil {
		return err
	}
	files := map[string][]byte{
		caFile:          c.pki.pem,
		servingCertFile: serving.cert,
		servingKeyFile:  serving.key,
		accountKeyFile:  account,
		auditPolicyFile: auditPolicy,
		stagesFile:      stages,
	}
	for _, u := range []user{adminUser, controllerUser, schedulerUser, kwokUser} {
		if files[u.file], err = c.kubeconfig(u); err != nil {
			return err
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(c.dir, name), content, 0o600); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// kubeconfig returns a kubeconfig in JSON, which is YAML too.
func (c *Cluster) kubeconfig(u user) ([]byte, error) {
	pair, err := c.pki.client(u)
	if err != nil {
		return nil, err
	}
	type object = map[string]any
	out, err := json.MarshalIndent(object{
		"apiVersion":      "v1",
		"kind":            "Config",
		"current-context": c.cfg.Name,
		"clusters": []object{{"name": c.cfg.Name, "cluster": object{
			"server": c.URL(), "certificate-authority-data": c.pki.pem,
		}}},
		"users": []object{{"name": u.name, "user": object{
			"client-certificate-data": pair.cert, "client-key-data": pair.key,
		}}},
		"contexts": []object{{"name": c.cfg.Name, "context": object{"cluster": c.cfg.Name, "user": u.name}}},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the kubeconfig of %q: %w", u.name, err)
	}
	return out, nil
}
