package offlinecache

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kedge-dev/kedge/internal/agentnames"
)

const (
	// secretType distinguishes the Secrets of the cache from other Secrets with the same name.
	secretType = "kedge.dev/bundle"
	// labelOffline holds the ID of the agent. It differs from the label of applied objects, so that watches for
	// those do not match these Secrets.
	labelOffline = "kedge.dev/offline"
	labelInstall = "kedge.dev/install"
	fieldManager = "kedge-agent"

	requestTimeout = 5 * time.Second
)

// read returns a slot and its items.
func (p *Cache) read(ctx context.Context, n int) (slot, map[string][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	name := agentnames.Slot(n)
	secret, err := p.cfg.Secrets.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return slot{}, nil, nil
	}
	if err != nil {
		return slot{}, nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	s := slot{version: secret.GetResourceVersion()}
	if kind, _, _ := unstructured.NestedString(secret.Object, "type"); kind != secretType {
		p.cfg.Log.Warn("ignoring a Secret of another type with a name of the offline cache", "secret", name, "type", kind)
		s.foreign = true
		return s, nil, nil
	}
	data, _, err := unstructured.NestedStringMap(secret.Object, "data")
	if err != nil {
		p.cfg.Log.Warn("ignoring an unreadable Secret of the offline cache", "secret", name, "error", err.Error())
		return s, nil, nil
	}
	items := make(map[string][]byte, len(data))
	for key, text := range data {
		content, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			content = nil // the API server validates base64; an empty item counts as damaged
		}
		items[key] = content
	}
	return s, items, nil
}

// send sends one write to the API server.
func (p *Cache) send(ctx context.Context, s *contents, w write) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	name, version := agentnames.Slot(w.slot), s.slots[w.slot].version
	labels := map[string]any{labelOffline: string(s.agent.ID), labelInstall: s.agent.Name}
	data := map[string]any{}
	for key, content := range w.edit {
		switch {
		case content != nil:
			data[key] = base64.StdEncoding.EncodeToString(content)
		case version != "":
			data[key] = nil
		}
	}
	var written *unstructured.Unstructured
	var err error
	if version == "" {
		written, err = p.create(ctx, name, labels, data)
	} else {
		written, err = p.patch(ctx, name, version, labels, data)
	}
	if err != nil {
		return fmt.Errorf("writing Secret %s: %w", name, err)
	}
	s.slots[w.slot].version = written.GetResourceVersion()
	return nil
}

func (p *Cache) create(ctx context.Context, name string, labels, data map[string]any) (*unstructured.Unstructured, error) {
	return p.cfg.Secrets.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": secretType,
		"metadata": map[string]any{"name": name, "labels": maps.Clone(labels)}, "data": data,
	}}, metav1.CreateOptions{FieldManager: fieldManager})
}

// patch changes a Secret, unless it was changed since it was last read or written.
func (p *Cache) patch(ctx context.Context, name, version string, labels, data map[string]any) (*unstructured.Unstructured, error) {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": version, "labels": labels}, "data": data,
	})
	if err != nil {
		return nil, err
	}
	return p.cfg.Secrets.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
}
