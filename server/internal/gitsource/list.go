package gitsource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// list returns the current commits of the revisions at the remote.
func (r *mirror) list(ctx context.Context, via *route, revisions []string) (map[string]Ref, error) {
	out := make(map[string]Ref, len(revisions))
	var wanted []string
	for _, revision := range revisions {
		if isCommit(revision) {
			out[revision] = Ref{Commit: revision}
			continue
		}
		out[revision] = Ref{Err: &RefNotFoundError{Revision: revision}}
		wanted = append(wanted, candidates(revision)...)
	}
	if len(wanted) == 0 {
		return out, nil
	}
	remote, err := r.lsRemote(ctx, via, wanted)
	if err != nil {
		return nil, err
	}
	found := r.matchRefs(out, revisions, remote)
	if found {
		return out, nil
	}
	// Nothing was found. Find out whether the repository is empty.
	if remote, err = r.lsRemote(ctx, via, nil); err != nil {
		return nil, err
	}
	if len(remote) == 0 {
		return nil, fmt.Errorf("reading %s: %w", r.url, ErrEmpty)
	}
	return out, nil
}

// matchRefs adds the refs of the remote to out, remembers them, and reports whether there are any.
func (r *mirror) matchRefs(out map[string]Ref, revisions []string, remote map[string]string) bool {
	found := false
	for _, revision := range revisions {
		r.forgetRef(revision)
		for _, name := range candidates(revision) {
			if commit, ok := remote[name]; ok {
				out[revision] = Ref{Name: name, Commit: commit}
				r.rememberRef(revision, name)
				found = true
				break
			}
		}
	}
	return found
}

// lsRemote returns the commits of remote refs by full name, with tags peeled. nil wanted lists all refs.
func (r *mirror) lsRemote(ctx context.Context, via *route, wanted []string) (map[string]string, error) {
	text, err := r.runRemote(ctx, via, "", func(url string) []string {
		args := append([]string{"ls-remote", "--quiet"}, refFilters(wanted)...)
		args = append(args, "--end-of-options", url)
		for _, name := range wanted {
			args = append(args, name)
			if strings.HasPrefix(name, tags) {
				args = append(args, name+"^{}")
			}
		}
		return args
	})
	if err != nil {
		return nil, err
	}
	refs := make(map[string]string)
	for line := range strings.Lines(text) {
		oid, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok || !isCommit(oid) {
			return nil, &RemoteError{URL: r.url, Problem: "the response of the server is invalid"}
		}
		if peeled, ok := strings.CutSuffix(name, "^{}"); ok {
			refs[peeled] = oid // follows the tag itself
		} else {
			refs[name] = oid
		}
	}
	return refs, nil
}

// refFilters makes git request only branches and tags. git matches patterns after it has read all refs of the
// server, which on large hosts include one for every pull request.
func refFilters(wanted []string) []string {
	if len(wanted) == 0 {
		return nil
	}
	var flags []string
	for _, name := range wanted {
		var flag string
		switch {
		case strings.HasPrefix(name, heads):
			flag = "--heads"
		case strings.HasPrefix(name, tags):
			flag = "--tags"
		default:
			return nil
		}
		if !slices.Contains(flags, flag) {
			flags = append(flags, flag)
		}
	}
	return flags
}

// rememberRef remembers the ref of a revision, so that Fetch needs no request for it.
func (r *mirror) rememberRef(revision, name string) {
	r.remote.mu.Lock()
	defer r.remote.mu.Unlock()
	r.remote.refs[revision] = name
}

func (r *mirror) forgetRef(revision string) {
	r.remote.mu.Lock()
	defer r.remote.mu.Unlock()
	delete(r.remote.refs, revision)
}

// knownRef returns the ref of a revision if it is known without a request.
func (r *mirror) knownRef(revision string) (string, bool) {
	if names := candidates(revision); len(names) == 1 {
		return names[0], true
	}
	r.remote.mu.Lock()
	defer r.remote.mu.Unlock()
	name, ok := r.remote.refs[revision]
	return name, ok
}

// isMissing reports whether err means that the remote lacks a requested ref or commit.
func isMissing(err error) bool { return errors.Is(err, errMissingRef) }
