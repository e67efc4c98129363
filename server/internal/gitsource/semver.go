package gitsource

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
)

const (
	// rangePrefix marks a revision as a range of versions. Ref names contain no colon.
	rangePrefix = "semver:"
	maxRange    = 255
)

// RangeError is returned for an invalid range of versions.
type RangeError struct{ Revision, Problem string }

func (e *RangeError) Error() string {
	return fmt.Sprintf("%q is not a range of versions: %s; write it like semver:>=1.2.0 <2.0.0, semver:~1.2 or semver:^1", e.Revision, e.Problem)
}

// NoVersionError is returned when no tag of a repository is in a range.
type NoVersionError struct {
	Revision string
	Highest  string // the highest version of all tags; "" if no tag is a version
}

func (e *NoVersionError) Error() string {
	if e.Highest == "" {
		return fmt.Sprintf("no tag matches %q: the repository has no tag that is a version, such as v1.2.3", e.Revision)
	}
	return fmt.Sprintf("no tag matches %q: the highest version is %s; pre-releases match only if the range has a pre-release", e.Revision, e.Highest)
}

// CheckRevision validates a revision without a repository. It returns a [*RangeError] for an invalid range.
func CheckRevision(revision string) error {
	if !isRange(revision) {
		return nil
	}
	_, err := parseRange(revision)
	return err
}

func isRange(revision string) bool { return strings.HasPrefix(revision, rangePrefix) }

func parseRange(revision string) (*semver.Constraints, error) {
	text := strings.TrimSpace(strings.TrimPrefix(revision, rangePrefix))
	switch {
	case text == "":
		return nil, &RangeError{revision, "it is empty"}
	case len(text) > maxRange:
		return nil, &RangeError{revision, fmt.Sprintf("it is longer than %d characters", maxRange)}
	}
	constraints, err := semver.NewConstraint(text)
	if err != nil {
		return nil, &RangeError{revision, cleanText(err.Error())}
	}
	return constraints, nil
}

// highest returns the tag with the highest version in a range. Of tags with equal versions it returns the last by
// name, so that the result does not depend on their order.
func highest(revision string, names []string) (string, error) {
	constraints, err := parseRange(revision)
	if err != nil {
		return "", err
	}
	type tagged struct {
		name    string
		version *semver.Version
	}
	var all []tagged
	for _, name := range names {
		short := strings.TrimPrefix(name, tags)
		if version, err := semver.StrictNewVersion(strings.TrimPrefix(short, "v")); err == nil && validRef(name) {
			all = append(all, tagged{name, version})
		}
	}
	slices.SortFunc(all, func(a, b tagged) int {
		return cmp.Or(b.version.Compare(a.version), cmp.Compare(b.name, a.name))
	})
	for _, t := range all {
		if constraints.Check(t.version) {
			return t.name, nil
		}
	}
	if len(all) == 0 {
		return "", &NoVersionError{Revision: revision}
	}
	return "", &NoVersionError{Revision: revision, Highest: strings.TrimPrefix(all[0].name, tags)}
}

// resolveRangesLocked finds the current tags of ranges, with one request for all. The result is valid only for
// this call, because a higher version may be tagged at any time. It does not fetch a tag that is unchanged.
func (r *mirror) resolveRangesLocked(ctx context.Context, via *route, out map[string]Ref, revisions []string) error {
	ranges := slices.DeleteFunc(slices.Clone(revisions), func(revision string) bool { return !isRange(revision) })
	if len(ranges) == 0 {
		return nil
	}
	remote, err := r.lsTags(ctx, via)
	if err != nil {
		return err
	}
	if len(remote) == 0 {
		if all, err := r.lsRemote(ctx, via, nil); err != nil {
			return err
		} else if len(all) == 0 {
			return fmt.Errorf("reading %s: %w", r.url, ErrEmpty)
		}
	}
	names := slices.Collect(maps.Keys(remote))
	for _, revision := range ranges {
		r.forgetRef(revision)
		name, err := highest(revision, names)
		if err != nil {
			out[revision] = Ref{Err: err}
			continue
		}
		r.rememberRef(revision, name)
		if here, err := r.cat.info(ctx, localRef(name)); err == nil && here.id == remote[name] {
			if out[revision], err = r.resolve(ctx, revision, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// lsTags returns the objects that the tags of the remote point to, without peeling, by full name.
func (r *mirror) lsTags(ctx context.Context, via *route) (map[string]string, error) {
	text, err := r.runRemote(ctx, via, "", func(url string) []string {
		return []string{"ls-remote", "--quiet", "--tags", "--refs", "--end-of-options", url}
	})
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for line := range strings.Lines(text) {
		if oid, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok && isCommit(oid) {
			found[name] = oid
		}
	}
	return found, nil
}
