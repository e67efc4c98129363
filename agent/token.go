package agent

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/internal/obs"
)

// secretTimeout bounds the read of the Secret. After that the mounted file is used.
const secretTimeout = 5 * time.Second

// secretTokens stores the token in the Secret from which the token file is mounted.
//
// The kubelet takes up to two minutes to update the file, so that an agent that restarts after a rotation would read the old
// token. It therefore reads the Secret at the start, when the server has refused a token and when the file has changed. For
// all other connections it compares the file and uses the token that it has read before, so that an agent that cannot reach
// its server does not read the Secret with each attempt.
type secretTokens struct {
	file    link.TokenFile
	where   string // namespace/name
	name    string
	key     string // of the token
	secrets dynamic.ResourceInterface
	log     *slog.Logger

	token   string // last known content of the Secret; "" when it could not be read
	mounted string // content of the file at that time
}

// newTokens returns the token store of this agent.
func newTokens(cfg Config, cluster *rest.Config) (link.Tokens, error) {
	file := link.TokenFile(cfg.TokenFile)
	if cfg.TokenSecret == "" {
		return fileTokens{file}, nil
	}
	client, err := dynamic.NewForConfig(cluster)
	if err != nil {
		return nil, fmt.Errorf("preparing the client for the token Secret: %w", err)
	}
	return &secretTokens{
		file: file, where: cfg.Namespace + "/" + cfg.TokenSecret, name: cfg.TokenSecret, key: filepath.Base(cfg.TokenFile), log: cfg.Log,
		secrets: client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace(cfg.Namespace),
	}, nil
}

// Read implements link.Tokens.
func (s *secretTokens) Read(ctx context.Context, fresh bool) (string, error) {
	mounted, fileErr := s.file.Read(ctx, fresh)
	if s.token != "" && !fresh && (fileErr != nil || mounted == s.mounted) {
		return s.token, nil
	}
	secret, err := s.get(ctx)
	token := ""
	if err == nil {
		token, err = s.content(secret)
	}
	switch {
	case err == nil:
		s.token, s.mounted = token, mounted
		return token, nil
	case fileErr != nil && s.token == "":
		return "", errors.Join(fileErr, err)
	}
	s.log.Warn("the token Secret cannot be read, using the mounted file", "secret", s.where, obs.Err(err))
	if s.token != "" && (fileErr != nil || mounted == s.mounted) {
		return s.token, nil
	}
	return mounted, nil
}

func (s *secretTokens) get(ctx context.Context) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	secret, err := s.secrets.Get(ctx, s.name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", s.where, err)
	}
	return secret, nil
}

func (s *secretTokens) content(secret *unstructured.Unstructured) (string, error) {
	encoded, _, err := unstructured.NestedString(secret.Object, "data", s.key)
	if err != nil {
		return "", fmt.Errorf("reading Secret %s: %w", s.where, err)
	}
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", fmt.Errorf("reading key %q of Secret %s: %w", s.key, s.where, err)
	}
	return link.CheckToken(fmt.Sprintf("key %q of %s", s.key, s), content)
}

// Store implements link.Tokens.
func (s *secretTokens) Store(ctx context.Context, old, token string) error {
	stored, err := s.replace(ctx, old, token)
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("this agent may not change Secret %s, which contains its token: apply the manifest of `kedge agent manifest` again, "+
			"or replace the token there by hand: %w", s.where, err)
	case err != nil && stored == "":
		return err
	}
	// The mounted file may be outdated. It is used again when it changes.
	s.token = stored
	if mounted, err := s.file.Read(ctx, true); err == nil {
		s.mounted = mounted
	}
	return err
}

// replace writes the token if the Secret still contains old. It returns the token that the Secret contains now, if known.
func (s *secretTokens) replace(ctx context.Context, old, token string) (stored string, err error) {
	for {
		secret, err := s.get(ctx)
		if err != nil {
			return "", err
		}
		if found, err := s.content(secret); err == nil && old != "" && found != old && found != token {
			return found, link.ErrReplaced
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"resourceVersion": secret.GetResourceVersion()}, "data": map[string][]byte{s.key: []byte(token)},
		})
		if err != nil {
			return "", fmt.Errorf("writing Secret %s: %w", s.where, err)
		}
		_, err = s.secrets.Patch(ctx, s.name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kedge-agent"})
		switch {
		case err == nil:
			return token, nil
		case !apierrors.IsConflict(err): // after a conflict: read the Secret again
			return "", fmt.Errorf("writing Secret %s: %w", s.where, err)
		}
	}
}

// String implements link.Tokens.
func (s *secretTokens) String() string { return "Secret " + s.where }

// fileTokens adds the possible remedies to the error of a token file that cannot be replaced.
type fileTokens struct{ link.TokenFile }

// Store implements link.Tokens.
func (f fileTokens) Store(ctx context.Context, old, token string) error {
	err := f.TokenFile.Store(ctx, old, token)
	if err == nil || errors.Is(err, link.ErrReplaced) {
		return err
	}
	return fmt.Errorf("%w; make it writable for kedge-agent, set --token-secret to the Secret from which it is mounted, or replace the token by hand", err)
}
