package gitsource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/obs"
)

// ask runs git against the remote to read from it, by a way that is made for this run. Errors are
// those that users see, or errMissingRef, errCorrupt or that of ctx.
func (r *mirror) ask(ctx context.Context, via *route, dir string, args func(url string) []string) (string, error) {
	p, err := via.open(ctx, uploadPack)
	defer p.close()
	return r.askThrough(ctx, via, p, err, call{dir: dir, args: args(p.url)})
}

// askThrough is ask by a way that was made, unless err says that it was not.
func (r *mirror) askThrough(ctx context.Context, via *route, p *passage, err error, c call) (string, error) {
	var out string
	if err == nil {
		c.through = p
		out, err = r.git.do(ctx, c)
	}
	if err != nil {
		err = r.remoteError(ctx, p, err)
	}
	if err == nil || isMissing(err) {
		via.asked = true
		r.complain(ctx, "")
	}
	return out, err
}

// remoteError is the adapter for runs of git against a remote that failed.
func (r *mirror) remoteError(ctx context.Context, p *passage, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), errTooLarge):
		return r.tooLarge(context.Cause(ctx))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return &RemoteError{URL: r.url, Problem: fmt.Sprintf("timed out after %s", r.cfg.Timeout)}
	case ctx.Err() != nil:
		return err
	}
	if seen, private := p.fault.get(r.url); seen != nil {
		r.complain(ctx, strings.TrimSpace(seen.Problem+" "+seen.Detail+" "+private))
		return seen
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		return err
	}
	if exit.outOfMemory(p.transport == "file") {
		r.complain(ctx, lastLine(exit.stderr))
		return r.needsMemory(r.git.memory)
	}
	said := lastLine(exit.stderr)
	problem := problemOf(exit.stderr)
	switch {
	case strings.Contains(exit.stderr, unadvertised):
		return fmt.Errorf("reading %s: %w", r.url, errUnadvertised)
	case containsAny(exit.stderr, missing):
		return fmt.Errorf("reading %s: %w", r.url, errMissingRef)
	case problem == "" && containsAny(exit.stderr, corruptions):
		return fmt.Errorf("reading %s: %w: %s", r.url, errCorrupt, said)
	}
	r.complain(ctx, said)
	var reason Reason
	if problem == notReadable {
		reason, said = ReasonNotReadable, "" // it would tell one case from the other
	}
	return &RemoteError{Reason: reason, URL: r.url, Problem: cmp.Or(problem, "git failed"), Detail: said}
}

func problemOf(stderr string) string {
	for _, p := range problems {
		if strings.Contains(stderr, p.text) {
			return p.problem
		}
	}
	return ""
}

// complain tells the log why the repository cannot be read, once for each reason; "" is for one that
// can.
func (r *mirror) complain(ctx context.Context, why string) {
	r.knownMu.Lock()
	defer r.knownMu.Unlock()
	if why != "" && why != r.unread {
		r.cfg.Log.InfoContext(ctx, "a repository cannot be read", "url", r.url, "owner", r.owner, obs.KeyReason, why)
	}
	r.unread = why
}

func containsAny(text string, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}
