package kubeproxy

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/oauth2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kedge-dev/kedge/internal/obs"
)

const (
	tokenTTL     = time.Hour
	tokenTimeout = 10 * time.Second
)

// Account is the ServiceAccount that impersonates callers. Its only permission is to impersonate: a request that lost its
// identity could do nothing.
type Account struct {
	Client    dynamic.Interface // that may request its tokens
	Namespace string
	Name      string
}

// accountError means that there is no token of the account.
type accountError struct{ err error }

func (e *accountError) Error() string { return e.err.Error() }
func (e *accountError) Unwrap() error { return e.err }

func (a Account) source(log *slog.Logger) oauth2.TokenSource { return tokenSource{a, log} }

type tokenSource struct {
	Account
	log *slog.Logger
}

// Token implements oauth2.TokenSource.
func (s tokenSource) Token() (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(context.Background(), tokenTimeout)
	defer cancel()
	request := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"metadata": map[string]any{"name": s.Name, "namespace": s.Namespace},
		"spec":     map[string]any{"expirationSeconds": int64(tokenTTL.Seconds())},
	}}
	accounts := s.Client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}).Namespace(s.Namespace)
	got, err := accounts.Create(ctx, request, metav1.CreateOptions{}, "token")
	if err != nil {
		err = &accountError{fmt.Errorf("no token for ServiceAccount %s/%s, which impersonates you: %w; apply the manifest of the agent again (kedge agent manifest)", s.Namespace, s.Name, err)}
		s.log.Warn("no token for tunnels", obs.Err(err))
		return nil, err
	}
	token, _, _ := unstructured.NestedString(got.Object, "status", "token")
	until, _, _ := unstructured.NestedString(got.Object, "status", "expirationTimestamp")
	expiry, err := time.Parse(time.RFC3339, until)
	if err != nil || token == "" {
		return nil, &accountError{fmt.Errorf("the API server did not issue a token for ServiceAccount %s/%s", s.Namespace, s.Name)}
	}
	return &oauth2.Token{AccessToken: token, Expiry: expiry.Add(-tokenTTL / 10)}, nil // renewed before it ends
}
