package imageset

import (
	"regexp"
	"strings"
)

// Ref is an image reference or a part of one. Every part may be "".
type Ref struct {
	Repo   string // with its registry
	Tag    string
	Digest string // such as sha256:…
}

func (r Ref) String() string {
	text := r.Repo
	if r.Tag != "" {
		text += ":" + r.Tag
	}
	if r.Digest != "" {
		text += "@" + r.Digest
	}
	return text
}

// over returns was, with the parts of r that are set. A tag or a digest replaces both.
func (r Ref) over(was Ref) Ref {
	if r.Repo == "" {
		r.Repo = was.Repo
	}
	return r
}

var (
	repoForm   = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)
	tagForm    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	digestForm = regexp.MustCompile(`^[a-z0-9]+([+._-][a-z0-9]+)*:[0-9a-fA-F]{32,}$`)
)

// maxRef limits the length of a reference.
const maxRef = 512

// split splits an image into its parts without validation.
func split(image string) Ref {
	rest, digest, _ := strings.Cut(strings.TrimSpace(image), "@")
	repo, tag := rest, ""
	if i := strings.LastIndexByte(rest, ':'); i > strings.LastIndexByte(rest, '/') {
		repo, tag = rest[:i], rest[i+1:]
	}
	return Ref{Repo: repo, Tag: tag, Digest: digest}
}

// ParseRef parses a new reference: repo:tag, repo@digest, repo:tag@digest, and each of them without the
// repository.
func ParseRef(text string) (Ref, error) {
	r := split(text)
	switch {
	case len(text) > maxRef:
		return Ref{}, problem("", "an image has at most %d characters", maxRef)
	case strings.TrimSpace(text) != text || text == "":
		return Ref{}, problem("", "%q is not an image: use REPOSITORY:TAG, REPOSITORY@DIGEST, :TAG or @DIGEST", text)
	case r.Repo != "" && !repoForm.MatchString(r.Repo):
		return Ref{}, problem("", "%q is not the repository of an image", r.Repo)
	case r.Tag == "" && r.Digest == "":
		return Ref{}, problem("", "%q has neither tag nor digest: write %s:TAG, or :%s when that is the tag", text, r.Repo, r.Repo)
	case r.Tag != "" && !tagForm.MatchString(r.Tag):
		return Ref{}, problem("", "%q is not a tag", r.Tag)
	case strings.Contains(text, "@") && !digestForm.MatchString(r.Digest):
		return Ref{}, problem("", "%q is not a digest, such as sha256:…", r.Digest)
	}
	return r, nil
}

type wanted struct {
	Name string
	ref  Ref
}

func parseChanges(changes []Change) ([]wanted, error) {
	if len(changes) == 0 || len(changes) > MaxChanges {
		return nil, problem("", "give between 1 and %d images as NAME=REF", MaxChanges)
	}
	out := make([]wanted, 0, len(changes))
	seen := map[string]string{}
	for _, c := range changes {
		if c.Name == "" || !repoForm.MatchString(c.Name) {
			return nil, problem("", "%q is not the name of an image: give it without tag, such as nginx or ghcr.io/team/web", c.Name)
		}
		ref, err := ParseRef(c.Ref)
		if err != nil {
			return nil, err
		}
		if _, ok := seen[normal(c.Name)]; ok {
			return nil, problem("", "the image %q is named twice", c.Name)
		}
		seen[normal(c.Name)] = c.Name
		out = append(out, wanted{c.Name, ref})
	}
	return out, nil
}

// sameRepo reports whether two names refer to the same repository.
func sameRepo(a, b string) bool { return a == b || (a != "" && b != "" && normal(a) == normal(b)) }

// normal returns the full name of a repository. The default registry is Docker Hub.
func normal(repo string) string {
	first, rest, found := strings.Cut(repo, "/")
	if !found {
		return "docker.io/library/" + repo
	}
	if !isHost(first) {
		return "docker.io/" + repo
	}
	if first == "index.docker.io" || first == "registry-1.docker.io" {
		first = "docker.io"
	}
	if first == "docker.io" && !strings.Contains(rest, "/") {
		rest = "library/" + rest
	}
	return first + "/" + rest
}

// isHost reports whether the first part of a name is a registry.
func isHost(part string) bool { return strings.ContainsAny(part, ".:") || part == "localhost" }
