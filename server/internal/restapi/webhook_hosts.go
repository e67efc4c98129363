package restapi

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// decode decodes a body; an empty one has no content.
func decode(body []byte, into any) error {
	if len(body) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fleet.Invalid("ref", "the body must be a JSON object such as {\"ref\": \"refs/heads/main\"}")
	}
	return nil
}

func pushOf(refs ...string) hookEvent {
	return hookEvent{push: true, refs: slices.DeleteFunc(refs, func(ref string) bool { return ref == "" })}
}

func parseGeneric(_ string, body []byte) (hookEvent, error) {
	var p struct {
		Ref  string   `json:"ref"`
		Refs []string `json:"refs"`
	}
	if err := decode(body, &p); err != nil {
		return hookEvent{}, err
	}
	return pushOf(append(p.Refs, p.Ref)...), nil
}

// parseGitHub is for GitHub, Gitea, and Forgejo. Some report a deleted branch only with a delete event, which
// has its short name.
func parseGitHub(event string, body []byte) (hookEvent, error) {
	if event == "repository" {
		return parseRepository(body)
	}
	if event != "push" && event != "create" && event != "delete" {
		return hookEvent{}, nil // ping, or an event without a moved ref
	}
	var p struct {
		Ref     string `json:"ref"`
		RefType string `json:"ref_type"`
	}
	if err := decode(body, &p); err != nil {
		return hookEvent{}, err
	}
	if event != "push" && !strings.HasPrefix(p.Ref, "refs/") {
		p.Ref = fullRef(p.RefType, p.Ref)
	}
	return pushOf(p.Ref), nil
}

// parseRepository handles GitHub's events about a repository itself: a new default branch affects deployments
// that follow it.
func parseRepository(body []byte) (hookEvent, error) {
	var p struct {
		Changes struct {
			Branch *struct{} `json:"default_branch"`
		} `json:"changes"`
	}
	if err := decode(body, &p); err != nil || p.Changes.Branch == nil {
		return hookEvent{}, err
	}
	return pushOf(), nil
}

// parseGitLab is for the hooks of projects and groups, and for system hooks.
func parseGitLab(event string, body []byte) (hookEvent, error) {
	if event != "Push Hook" && event != "Tag Push Hook" && event != "System Hook" {
		return hookEvent{}, nil
	}
	var p struct {
		Kind string   `json:"object_kind"`
		Name string   `json:"event_name"`
		Ref  string   `json:"ref"`
		Refs []string `json:"refs"`
	}
	if err := decode(body, &p); err != nil {
		return hookEvent{}, err
	}
	switch cmp.Or(p.Kind, p.Name) {
	case "push", "tag_push":
		return pushOf(p.Ref), nil
	case "repository_update":
		return pushOf(p.Refs...), nil
	}
	return hookEvent{}, nil
}

// parseBitbucket is for Bitbucket Cloud, where a change has an old and a new state, and for Data Center, where
// it has a ref.
func parseBitbucket(event string, body []byte) (hookEvent, error) {
	if event != "repo:push" && event != "repo:refs_changed" && event != "mirror:repo_synchronized" {
		return hookEvent{}, nil
	}
	type named struct {
		Type string `json:"type"`
		Name string `json:"name"`
	}
	var p struct {
		Push struct {
			Changes []struct {
				New *named `json:"new"`
				Old *named `json:"old"`
			} `json:"changes"`
		} `json:"push"`
		Changes []struct {
			Ref struct {
				ID string `json:"id"`
			} `json:"ref"`
		} `json:"changes"`
	}
	if err := decode(body, &p); err != nil {
		return hookEvent{}, err
	}
	var refs []string
	for _, c := range p.Push.Changes {
		if what := cmp.Or(c.New, c.Old); what != nil {
			refs = append(refs, fullRef(what.Type, what.Name))
		}
	}
	for _, c := range p.Changes {
		refs = append(refs, c.Ref.ID)
	}
	return pushOf(refs...), nil
}

// fullRef returns the full name of a short ref; "" if it is neither a branch nor a tag.
func fullRef(kind, name string) string {
	switch kind {
	case "branch", "named_branch":
		return "refs/heads/" + name
	case "tag", "annotated_tag":
		return "refs/tags/" + name
	}
	return ""
}
