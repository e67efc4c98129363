package kubeconfig_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/kubeconfig"
)

const api = "https://api.example.com:6443"

// pair returns a PEM certificate and its key.
func pair(tb testing.TB) (certificate, key string) {
	tb.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kedge"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		tb.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		tb.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

func encode(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// text returns a kubeconfig with one context; cluster and user are fields in YAML flow style.
func text(cluster, user string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: main
preferences: {}
clusters:
- name: c
  cluster: {server: %q%s}
users:
- name: u
  user: {%s}
contexts:
- name: main
  context: {cluster: c, user: u, namespace: default}
`, api, cluster, user)
}

func TestCredentialIsRead(t *testing.T) {
	t.Parallel()
	certificate, key := pair(t)
	got, err := kubeconfig.Parse([]byte(text(", certificate-authority-data: "+encode(certificate)+", tls-server-name: kube", "token: secret")), api, "")
	if err != nil || got.Token.Reveal() != "secret" || got.CA != certificate || got.ServerName != "kube" {
		t.Errorf("got %+v, %v", got, err)
	}
	got, err = kubeconfig.Parse([]byte(text("", "client-certificate-data: "+encode(certificate)+", client-key-data: "+encode(key))), api, "main")
	if err != nil || got.Certificate != certificate || got.Key.Reveal() != key {
		t.Errorf("got %+v, %v", got, err)
	}
}

// covers: K7
func TestEachProblemHasItsType(t *testing.T) {
	t.Parallel()
	certificate, key := pair(t)
	_, other := pair(t)
	good := text("", "token: secret")
	invalid, refused, context := new(*kubeconfig.InvalidError), new(*kubeconfig.UnsupportedError), new(*kubeconfig.ContextError)
	for reason, test := range map[string]struct {
		text, context string
		want          any
	}{
		"empty":                          {"", "", invalid},
		"garbage":                        {"%PDF-1.7 {{", "", invalid},
		"a list":                         {"[1, 2]", "", invalid},
		"another kind":                   {strings.Replace(good, "kind: Config", "kind: Pod", 1), "", invalid},
		"an unknown field of the user":   {text("", "token: secret, sudo: true"), "", invalid},
		"two documents":                  {good + "---\n" + good, "", invalid},
		"too large":                      {good + strings.Repeat("# more\n", kubeconfig.MaxSize/6), "", invalid},
		"no credential":                  {text("", ""), "", invalid},
		"a token with a line break":      {text("", `token: "a\nb"`), "", invalid},
		"a CA that is no certificate":    {text(", certificate-authority-data: "+encode("hello"), "token: secret"), "", invalid},
		"a CA with a key beside it":      {text(", certificate-authority-data: "+encode(certificate+key), "token: secret"), "", invalid},
		"a key of another certificate":   {text("", "client-certificate-data: "+encode(certificate)+", client-key-data: "+encode(other)), "", invalid},
		"a certificate without its key":  {text("", "client-certificate-data: "+encode(certificate)), "", invalid},
		"exec":                           {text("", "exec: {command: rm, apiVersion: client.authentication.k8s.io/v1}"), "", refused},
		"exec beside a token":            {text("", "token: secret, exec: {command: rm}"), "", refused},
		"an auth provider":               {text("", "auth-provider: {name: gcp}"), "", refused},
		"a token file":                   {text("", "tokenFile: /var/run/secrets/token"), "", refused},
		"a certificate file":             {text("", "client-certificate: a.crt, client-key: a.key"), "", refused},
		"a CA file":                      {text(", certificate-authority: /etc/ca.crt", "token: secret"), "", refused},
		"no verification":                {text(", insecure-skip-tls-verify: true", "token: secret"), "", refused},
		"a proxy":                        {text(", proxy-url: http://10.0.0.1", "token: secret"), "", refused},
		"a password":                     {text("", "username: ada, password: secret"), "", refused},
		"impersonation":                  {text("", "token: secret, as: root"), "", refused},
		"a context that is missing":      {good, "other", context},
		"another cluster":                {strings.ReplaceAll(good, api, "https://other.example.com"), "", context},
		"a context of another cluster":   {strings.ReplaceAll(good, api, "https://other.example.com"), "main", context},
		"a cluster that is listed twice": {strings.Replace(good, "users:", "- name: c\n  cluster: {server: \""+api+"\"}\nusers:", 1), "", context},
		"two users of one name":          {strings.Replace(good, "contexts:", "- name: u\n  user: {token: other}\ncontexts:", 1), "", context},
		"two contexts": {strings.Replace(strings.Replace(good, "current-context: main", "", 1), "contexts:",
			"contexts:\n- name: second\n  context: {cluster: c, user: u}", 1), "", context},
	} {
		t.Run(reason, func(t *testing.T) {
			got, err := kubeconfig.Parse([]byte(test.text), api, test.context)
			if !errors.As(err, test.want) {
				t.Errorf("got %+v, %T %v", got, err, err)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error contains the secret: %v", err)
			}
		})
	}
}

func TestContextIsChosenByNameOrByURL(t *testing.T) {
	t.Parallel()
	two := []byte(strings.NewReplacer("contexts:", "- name: v\n  user: {token: other}\ncontexts:\n- name: second\n  context: {cluster: c, user: v}").Replace(text("", "token: secret")))
	for context, want := range map[string]string{"": "secret", "main": "secret", "second": "other"} {
		got, err := kubeconfig.Parse(two, api, context)
		if err != nil || got.Token.Reveal() != want {
			t.Errorf("context %q: got %q, %v", context, got.Token.Reveal(), err)
		}
	}
}

func TestURLsHaveOneForm(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://API.example.com:443/": "https://api.example.com", "https://api.example.com:6443": api, " https://api.example.com. ": "https://api.example.com",
		"https://rancher.example.com/k8s/clusters/c-1/": "https://rancher.example.com/k8s/clusters/c-1", "https://[2001:db8::1]:6443": "https://[2001:db8::1]:6443",
		"http://api.example.com": "", "https://": "", "api.example.com": "", "https://a:b@api.example.com": "", "https://api.example.com?x=1": "", "https://api.example.com#x": "",
		"https://kubernetes.default.svc": "", "https://KUBERNETES.default": "", "https://kubernetes.default.svc.cluster.local:443": "", "https://169.254.169.254": "",
		"https://[fe80::1]": "", "https://0.0.0.0": "", "https://[::ffff:169.254.169.254]": "", "https://api.example.com/a/../b": "", "https://api.example.com/%2e%2e": "",
	} {
		if got, err := kubeconfig.NormalURL(url); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", url, got, err, want)
		}
	}
}

// FuzzParse looks for panics, and for credentials that are accepted although they need more than the text.
func FuzzParse(f *testing.F) {
	certificate, key := pair(f)
	f.Add([]byte(text("", "token: secret")), "")
	f.Add([]byte(text(", certificate-authority-data: "+encode(certificate), "client-certificate-data: "+encode(certificate)+", client-key-data: "+encode(key))), "main")
	f.Add([]byte(text("", "exec: {command: rm}")), "")
	f.Add([]byte("a: &a [*a]"), "")
	f.Fuzz(func(t *testing.T, text []byte, context string) {
		got, err := kubeconfig.Parse(text, api, context)
		if err == nil && got.Token.Reveal() == "" && got.Key.Reveal() == "" {
			t.Error("a credential without a token and without a key was accepted")
		}
		if err == nil && !bytes.Contains(text, []byte("token")) && !bytes.Contains(text, []byte("client-key-data")) && !bytes.ContainsAny(text, `\&*`) {
			t.Error("a credential came from nowhere")
		}
	})
}
