package gitsource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/filetree"
)

const (
	// maxSubmoduleDepth limits the nesting of submodules, and maxSubmodules the submodules of one commit.
	maxSubmoduleDepth = 3
	maxSubmodules     = 32
	maxGitmodules     = 256 << 10
)

// listWithSubmodules is List with submodules. A submodule is listed as a folder, and fetched when that folder is
// listed.
func (t *tree) listWithSubmodules(ctx context.Context, name string) ([]filetree.Entry, error) {
	at, rest, err := t.resolve(ctx, name)
	if err != nil {
		return nil, err
	}
	entries, err := at.list(ctx, rest)
	if err != nil {
		return nil, err
	}
	for i := range entries {
		if entries[i].Mode == filetree.Submodule {
			entries[i].Mode = filetree.Dir
		}
	}
	if at != t {
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, e := range entries {
			if e.Mode != filetree.Dir {
				t.contentTrees[e.ID] = at
			}
		}
	}
	return entries, nil
}

// resolve follows a path into the submodule that contains it, and returns the submodule's tree and the path
// within it.
func (t *tree) resolve(ctx context.Context, name string) (*tree, string, error) {
	id, walked := t.root, ""
	for element := range pathElements(name) {
		entries, err := t.readFolder(ctx, id)
		if err != nil {
			return nil, "", err
		}
		walked = path.Join(walked, element)
		i := slices.IndexFunc(entries, func(e filetree.Entry) bool { return e.Name == element })
		if i < 0 {
			break // the caller reports that it does not exist
		}
		if entries[i].Mode == filetree.Submodule {
			inner, err := t.submodule(ctx, walked, entries[i].ID)
			if err != nil {
				return nil, "", err
			}
			rest := strings.TrimPrefix(strings.TrimPrefix(path.Clean(strings.Trim(name, "/")), walked), "/")
			return inner.resolve(ctx, rest)
		}
		if entries[i].Mode != filetree.Dir {
			break
		}
		id = entries[i].ID
	}
	return t, name, nil
}

// submodule fetches the submodule at a path and returns its tree.
func (t *tree) submodule(ctx context.Context, at, commit string) (*tree, error) {
	t.mu.Lock()
	inner := t.submodules[at]
	t.mu.Unlock()
	if inner != nil {
		return inner, nil
	}
	fail := func(format string, args ...any) error {
		return &filetree.Error{Path: at, Problem: fmt.Sprintf(format, args...)}
	}
	if t.access.depth >= maxSubmoduleDepth {
		return nil, fail("submodules are nested more than %d deep", maxSubmoduleDepth)
	}
	if t.access.opened.Add(1) > maxSubmodules {
		return nil, fail("the paths in use contain more than %d submodules", maxSubmodules)
	}
	access, err := t.submoduleAccess(ctx, at)
	if err != nil {
		return nil, err
	}
	refs, err := t.m.Fetch(ctx, access, []string{commit})
	if err == nil {
		err = refs[commit].Err
	}
	if err != nil {
		return nil, fmt.Errorf("fetching the submodule %q: %w", at, err)
	}
	opened, err := t.m.Tree(ctx, access, commit)
	if err != nil {
		return nil, fmt.Errorf("opening the submodule %q: %w", at, err)
	}
	inner = opened.(*tree)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.submodules[at] = inner
	return inner, nil
}

// submoduleAccess returns how to read a submodule. Its URL is subject to the same rules as that of any
// repository, and the credential is sent only to the host of the parent. The commit id is in the parent's tree,
// so the signature of the parent covers it.
func (t *tree) submoduleAccess(ctx context.Context, at string) (Access, error) {
	urls, err := t.gitmodules(ctx)
	if err != nil {
		return Access{}, err
	}
	raw, ok := urls[at]
	if !ok {
		return Access{}, &filetree.Error{Path: at, Problem: "it is a submodule without a URL in .gitmodules"}
	}
	resolved, err := resolveURL(t.access.URL, raw)
	if err == nil {
		resolved, err = t.m.CheckURL(resolved)
	}
	if err != nil {
		return Access{}, &filetree.Error{Path: at, Problem: "the URL of the submodule is invalid: " + err.Error()}
	}
	parent := t.access.parent
	if parent == "" {
		parent = t.access.URL
	}
	out := Access{Owner: t.access.Owner, URL: resolved, Submodules: true, parent: parent, depth: t.access.depth + 1, opened: t.access.opened}
	// The owner of a submodule chooses its nested submodules. They must not be able to read a repository that
	// only the owner of the credential may read.
	if hostKey(resolved) == hostKey(t.access.URL) && (t.access.depth == 0 || repositoryOwner(resolved) == repositoryOwner(t.access.URL)) {
		out.Credential = t.access.Credential
	}
	return out, nil
}

// repositoryOwner returns the first element of the path of a URL: the user or organization on hosts with many of
// them.
func repositoryOwner(checked string) string {
	parsed, err := url.Parse(checked)
	if err != nil {
		return checked
	}
	group, _, _ := strings.Cut(strings.TrimLeft(parsed.Path, "/"), "/")
	return group
}

// gitmodules returns the URLs of submodules by path, from .gitmodules in the root.
func (t *tree) gitmodules(ctx context.Context) (map[string]string, error) {
	t.mu.Lock()
	urls := t.urls
	t.mu.Unlock()
	if urls != nil {
		return urls, nil
	}
	entries, err := t.readFolder(ctx, t.root)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(entries, func(e filetree.Entry) bool { return e.Name == ".gitmodules" && e.Mode == filetree.File })
	if i < 0 {
		return nil, &filetree.Error{Path: ".gitmodules", Problem: "the file does not exist, but it must contain the URLs of submodules"}
	}
	data, err := t.Read(ctx, entries[i], maxGitmodules)
	if err != nil {
		return nil, err
	}
	out, err := t.mirror.git.do(ctx, gitCall{
		stdin: strings.NewReader(string(data)), args: []string{"config", "--file", "-", "--no-includes", "-z", "--get-regexp", `^submodule\..*\.(path|url)$`},
	})
	var exit *exitError
	if err != nil && !(errors.As(err, &exit) && exit.stderr == "") { // git writes no message if nothing matches
		return nil, &filetree.Error{Path: ".gitmodules", Problem: "it is not a valid Git configuration file"}
	}
	urls = parseGitmodules(out)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.urls = urls
	return urls, nil
}

// parseGitmodules parses the output of git config -z: for each entry the key, a line feed, the value and a NUL.
func parseGitmodules(text string) map[string]string {
	paths, urls := map[string]string{}, map[string]string{}
	for entry := range strings.SplitSeq(text, "\x00") {
		key, value, _ := strings.Cut(entry, "\n")
		if name, ok := strings.CutSuffix(key, ".path"); ok {
			paths[name] = value
		} else if name, ok := strings.CutSuffix(key, ".url"); ok {
			urls[name] = value
		}
	}
	out := map[string]string{}
	for name, at := range paths {
		if urls[name] != "" && fs.ValidPath(at) {
			out[at] = urls[name]
		}
	}
	return out
}

// resolveURL returns the URL of a submodule, which may be relative to that of the parent.
func resolveURL(base, raw string) (string, error) {
	if !strings.HasPrefix(raw, "./") && !strings.HasPrefix(raw, "../") {
		return raw, nil
	}
	prefix, folder := "", base
	if u, err := url.Parse(base); err == nil && u.Scheme != "" && strings.Contains(base, "://") {
		prefix, folder = (&url.URL{Scheme: u.Scheme, User: u.User, Host: u.Host}).String(), u.Path
	} else if match := scpURL.FindStringSubmatch(base); match != nil {
		prefix, folder = strings.TrimSuffix(base, match[3]), match[3]
	}
	parts := strings.Split(strings.Trim(folder, "/"), "/")
	for rest := raw; ; {
		switch {
		case strings.HasPrefix(rest, "./"):
			rest = rest[2:]
		case strings.HasPrefix(rest, "../"):
			if len(parts) == 0 {
				return "", badURL("%q refers to a path above the root of the host", raw)
			}
			parts, rest = parts[:len(parts)-1], rest[3:]
		default:
			joined := path.Join(append(parts, rest)...)
			if strings.HasPrefix(folder, "/") {
				joined = "/" + joined
			}
			return prefix + joined, nil
		}
	}
}

// Host returns the host of a repository, without a default port. It returns "" for files of this machine.
func Host(raw string) string {
	if strings.HasPrefix(raw, "file://") {
		return ""
	}
	scheme, host, _ := strings.Cut(hostKey(raw), "://")
	return strings.TrimSuffix(strings.TrimSuffix(host, ":"+defaultPorts[scheme]), ".")
}

var defaultPorts = map[string]string{"https": "443", "http": "80", "ssh": "22"}

// hostKey returns the scheme, host and port that a credential is bound to.
func hostKey(raw string) string {
	if u, err := url.Parse(raw); err == nil && strings.Contains(raw, "://") {
		return u.Scheme + "://" + strings.ToLower(u.Host)
	}
	if match := scpURL.FindStringSubmatch(raw); match != nil {
		return "ssh://" + strings.ToLower(match[2])
	}
	return raw
}
