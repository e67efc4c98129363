package gitsource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
)

// runRemote runs git against the remote to read from it, over a connection for this run only. It returns errors
// for users, errMissingRef, errCorrupt, or the error of ctx.
func (r *mirror) runRemote(ctx context.Context, via *route, dir string, args func(url string) []string) (string, error) {
	p, err := via.open(ctx, uploadPack)
	defer p.close()
	return r.runOver(ctx, via, p, err, gitCall{dir: dir, args: args(p.url)})
}

// runOver is runRemote over an open connection. If err is not nil, opening it failed.
func (r *mirror) runOver(ctx context.Context, via *route, p *connection, err error, c gitCall) (string, error) {
	var out string
	if err == nil {
		c.conn = p
		out, err = r.git.do(ctx, c)
	}
	if err != nil {
		err = r.remoteError(ctx, p, err)
	}
	if err == nil || isMissing(err) {
		via.answered = true
		r.logProblem(ctx, "")
	}
	return out, err
}

// remoteError translates a failed run of git against a remote.
func (r *mirror) remoteError(ctx context.Context, p *connection, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), errTooLarge):
		return r.sizeError(context.Cause(ctx))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return &RemoteError{URL: r.url, Problem: fmt.Sprintf("timed out after %s", r.cfg.Timeout)}
	case ctx.Err() != nil:
		return err
	}
	if seen, logDetail := p.fault.get(r.url); seen != nil {
		r.logProblem(ctx, strings.TrimSpace(seen.Problem+" "+seen.Detail+" "+logDetail))
		return seen
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		return err
	}
	if exit.outOfMemory(p.transport == "file") {
		r.logProblem(ctx, lastLine(exit.stderr))
		return r.memoryError(r.git.memory)
	}
	message := lastLine(exit.stderr)
	problem := problemOf(exit.stderr)
	switch {
	case strings.Contains(exit.stderr, unadvertised):
		return fmt.Errorf("reading %s: %w", r.url, errUnadvertised)
	case containsAny(exit.stderr, missing):
		return fmt.Errorf("reading %s: %w", r.url, errMissingRef)
	case problem == "" && containsAny(exit.stderr, corruptions):
		return fmt.Errorf("reading %s: %w: %s", r.url, errCorrupt, message)
	}
	r.logProblem(ctx, message)
	var reason fleet.Reason
	if problem == notReadable {
		reason, message = fleet.ReasonRepositoryNotReadable, "" // it would reveal which of the two cases it is
	}
	return &RemoteError{Reason: reason, URL: r.url, Problem: cmp.Or(problem, "git failed"), Detail: message}
}

func problemOf(stderr string) string {
	for _, p := range problems {
		if strings.Contains(stderr, p.text) {
			return p.problem
		}
	}
	return ""
}

// logProblem logs why the repository cannot be read, once per problem. "" means that it can be read.
func (r *mirror) logProblem(ctx context.Context, why string) {
	r.remote.mu.Lock()
	defer r.remote.mu.Unlock()
	if why != "" && why != r.remote.lastProblem {
		r.cfg.Log.InfoContext(ctx, "cannot read a repository", "url", r.url, "owner", r.owner, obs.KeyReason, why)
	}
	r.remote.lastProblem = why
}

func containsAny(text string, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}
