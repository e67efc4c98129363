package gitsource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// list asks the remote what the revisions name now.
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
	found := r.match(out, revisions, remote)
	if found {
		return out, nil
	}
	// Nothing was found of what was asked for: is there anything?
	if remote, err = r.lsRemote(ctx, via, nil); err != nil {
		return nil, err
	}
	if len(remote) == 0 {
		return nil, fmt.Errorf("reading %s: %w", r.url, ErrEmpty)
	}
	return out, nil
}

// match fills in what the remote has, remembers it, and reports whether it was anything.
func (r *mirror) match(out map[string]Ref, revisions []string, remote map[string]string) bool {
	found := false
	for _, revision := range revisions {
		r.forget(revision)
		for _, name := range candidates(revision) {
			if commit, ok := remote[name]; ok {
				out[revision] = Ref{Name: name, Commit: commit}
				r.learn(revision, name)
				found = true
				break
			}
		}
	}
	return found
}

// lsRemote returns the commits of remote refs by their full names, tags followed to theirs; of all
// when wanted is nil.
func (r *mirror) lsRemote(ctx context.Context, via *route, wanted []string) (map[string]string, error) {
	text, err := r.ask(ctx, via, "", func(url string) []string {
		args := append([]string{"ls-remote", "--quiet"}, narrow(wanted)...)
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
			return nil, &RemoteError{URL: r.url, Problem: "the server's answer is not understood"}
		}
		if peeled, ok := strings.CutSuffix(name, "^{}"); ok {
			refs[peeled] = oid // comes after the tag itself
		} else {
			refs[name] = oid
		}
	}
	return refs, nil
}

// narrow makes git ask the server for branches and tags alone. Patterns are matched by git after
// it has read everything that the server has, which on large hosts is a ref for every pull request
// there ever was.
func narrow(wanted []string) []string {
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

// learn remembers which ref a revision names, so that Fetch need not ask.
func (r *mirror) learn(revision, name string) {
	r.knownMu.Lock()
	defer r.knownMu.Unlock()
	r.known[revision] = name
}

func (r *mirror) forget(revision string) {
	r.knownMu.Lock()
	defer r.knownMu.Unlock()
	delete(r.known, revision)
}

// refOf returns the ref that a revision names, as far as that is known without asking.
func (r *mirror) refOf(revision string) (string, bool) {
	if names := candidates(revision); len(names) == 1 {
		return names[0], true
	}
	r.knownMu.Lock()
	defer r.knownMu.Unlock()
	name, ok := r.known[revision]
	return name, ok
}

// isMissing reports whether err says that the remote lacks something that was asked for.
func isMissing(err error) bool { return errors.Is(err, errMissingRef) }
