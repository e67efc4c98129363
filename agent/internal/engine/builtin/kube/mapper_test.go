package kube

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// answers is an API server that serves texts by path; "" is one that is down.
func answers(texts map[string]string, asked *[]string) func(context.Context, string) ([]byte, error) {
	return func(_ context.Context, path string) ([]byte, error) {
		*asked = append(*asked, path)
		text, ok := texts[path]
		switch {
		case !ok:
			return nil, apierrors.NewNotFound(schema.GroupResource{}, path)
		case text == "":
			return nil, apierrors.NewServiceUnavailable("down")
		}
		return []byte(text), nil
	}
}

const apps = `{"resources":[
	{"name":"deployments","kind":"Deployment","namespaced":true,"verbs":["get","patch"]},
	{"name":"deployments/scale","kind":"Scale","namespaced":true,"verbs":["patch"]},
	{"name":"reviews","kind":"Review","verbs":["create"]}]}`

func TestMapper(t *testing.T) {
	t.Parallel()
	var asked []string
	m := newMapper(answers(map[string]string{
		"/apis/apps/v1": apps, "/apis/down/v1": "", "/apis": `{"groups":[{"name":"apps"},{"name":"listed"}]}`,
		"/apis/moved": `{"versions":[{"version":"v2"},{"version":"v3"}]}`, "/apis/moved/v3": strings.ReplaceAll(apps, "Deployment", "Moved"),
	}, &asked))
	ctx := t.Context()
	kind := func(group, version, kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
	}
	for range 2 {
		if got, err := m.Find(ctx, kind("apps", "v1", "Deployment")); err != nil || got.Resource.Resource != "deployments" || !got.Namespaced {
			t.Errorf("got %v (%v)", got, err)
		}
	}
	if len(asked) != 1 {
		t.Errorf("asked for %v, want one question", asked)
	}
	for _, k := range []schema.GroupVersionKind{kind("apps", "v1", "Scale"), kind("apps", "v1", "Review"), kind("none", "v1", "X"), kind("apps", "v9", "Deployment")} {
		if _, err := m.Find(ctx, k); !errors.Is(err, ErrUnknownKind) {
			t.Errorf("%v: got %v, want that it is unknown", k, err)
		}
	}
	if _, err := m.Find(ctx, kind("down", "v1", "X")); err == nil || errors.Is(err, ErrUnknownKind) {
		t.Errorf("a group that is down: got %v, want an error that does not say unknown", err)
	}
	if _, err := m.findAny(ctx, kind("down", "v1", "X")); err == nil || errors.Is(err, ErrUnknownKind) {
		t.Errorf("a group that is down: got %v, want an error: its objects are not gone", err)
	}
	if got, err := m.findAny(ctx, kind("moved", "v1", "Moved")); err != nil || got.Resource.Version != "v3" {
		t.Errorf("a version that is gone: got %v (%v), want the kind by another", got, err)
	}
	if _, err := m.findAny(ctx, kind("gone", "v1", "X")); !errors.Is(err, ErrUnknownKind) {
		t.Errorf("a group that is gone: got %v, want that it is unknown", err)
	}
	if _, err := m.findAny(ctx, kind("listed", "v1", "X")); err == nil || errors.Is(err, ErrUnknownKind) {
		t.Errorf("a group that is listed and not found: got %v, want an error: its objects are not gone", err)
	}
	if _, err := m.findAny(ctx, kind("", "v1", "ConfigMap")); err == nil || errors.Is(err, ErrUnknownKind) {
		t.Errorf("the core kinds are not found: got %v, want an error: its objects are not gone", err)
	}
	m.Forget("apps")
	if _, ok := m.Cached(kind("apps", "v1", "Deployment")); ok {
		t.Error("a group that was forgotten is known")
	}
}
