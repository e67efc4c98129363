package agent

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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

// tokenKey is the key of the token in its Secret.
const tokenKey = "token"

// secretTimeout bounds how long connecting waits for the Secret: the mounted file is there too.
const secretTimeout = 5 * time.Second

// secretTokens keeps the token in the Secret that the token file is mounted from.
//
// A kubelet takes up to a minute or two to bring a change of the Secret to the file, so that an
// agent which restarts just after a rotation would find the old token there. Therefore the Secret
// itself is read at the start, when a token was refused, and whenever the file has changed; for all
// other connections the file is looked at and what is known is used, so that an agent that cannot
// reach its server does not keep asking its cluster.
type secretTokens struct {
	file    link.TokenFile
	where   string // namespace/name
	name    string
	secrets dynamic.ResourceInterface
	log     *slog.Logger

	token  string // newest that is known of the Secret; "" when it could not be read
	beside string // what the file held then
}

// newTokens returns where the token of this agent is kept.
func newTokens(cfg Config, cluster *rest.Config) (link.Tokens, error) {
	file := link.TokenFile(cfg.TokenFile)
	if cfg.TokenSecret == "" {
		return fileTokens{file}, nil
	}
	client, err := dynamic.NewForConfig(cluster)
	if err != nil {
		return nil, fmt.Errorf("preparing to read the Secret of the token: %w", err)
	}
	return &secretTokens{
		file: file, where: cfg.Namespace + "/" + cfg.TokenSecret, name: cfg.TokenSecret, log: cfg.Log,
		secrets: client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace(cfg.Namespace),
	}, nil
}

// Read implements link.Tokens.
func (s *secretTokens) Read(ctx context.Context, fresh bool) (string, error) {
	mounted, fileErr := s.file.Read(ctx, fresh)
	if s.token != "" && !fresh && (fileErr != nil || mounted == s.beside) {
		return s.token, nil
	}
	secret, err := s.get(ctx)
	token := ""
	if err == nil {
		token, err = s.content(secret)
	}
	switch {
	case err == nil:
		s.token, s.beside = token, mounted
		return token, nil
	case fileErr != nil && s.token == "":
		return "", errors.Join(fileErr, err)
	}
	s.log.Warn("the Secret of the token cannot be read, using the file that is mounted from it", "secret", s.where, obs.Err(err))
	if s.token != "" && (fileErr != nil || mounted == s.beside) {
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
	encoded, _, err := unstructured.NestedString(secret.Object, "data", tokenKey)
	if err != nil {
		return "", fmt.Errorf("reading Secret %s: %w", s.where, err)
	}
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", fmt.Errorf("reading key %q of Secret %s: %w", tokenKey, s.where, err)
	}
	return link.CheckToken(fmt.Sprintf("key %q of %s", tokenKey, s), content)
}

// Store implements link.Tokens.
func (s *secretTokens) Store(ctx context.Context, old, token string) error {
	kept, err := s.replace(ctx, old, token)
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("this agent may not change Secret %s, which holds its token: apply the manifest of `kedge agent manifest` again, "+
			"or replace the token there by hand: %w", s.where, err)
	case err != nil && kept == "":
		return err
	}
	// What is mounted may lag behind; it counts again when it changes.
	s.token = kept
	if mounted, err := s.file.Read(ctx, true); err == nil {
		s.beside = mounted
	}
	return err
}

// replace writes the token if the Secret still holds old, and returns which one it holds now, if that is known.
func (s *secretTokens) replace(ctx context.Context, old, token string) (kept string, err error) {
	for {
		secret, err := s.get(ctx)
		if err != nil {
			return "", err
		}
		if found, err := s.content(secret); err == nil && old != "" && found != old && found != token {
			return found, link.ErrReplaced
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"resourceVersion": secret.GetResourceVersion()}, "data": map[string][]byte{tokenKey: []byte(token)},
		})
		if err != nil {
			return "", fmt.Errorf("writing Secret %s: %w", s.where, err)
		}
		_, err = s.secrets.Patch(ctx, s.name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kedge-agent"})
		switch {
		case err == nil:
			return token, nil
		case !apierrors.IsConflict(err): // else it was changed in between
			return "", fmt.Errorf("writing Secret %s: %w", s.where, err)
		}
	}
}

// String implements link.Tokens.
func (s *secretTokens) String() string { return "Secret " + s.where }

// fileTokens says what to do where the token file cannot be replaced.
type fileTokens struct{ link.TokenFile }

// Store implements link.Tokens.
func (f fileTokens) Store(ctx context.Context, old, token string) error {
	err := f.TokenFile.Store(ctx, old, token)
	if err == nil || errors.Is(err, link.ErrReplaced) {
		return err
	}
	return fmt.Errorf("%w; make it writable for kedge-agent, name the Secret that it is mounted from with --token-secret, or replace the token by hand", err)
}
