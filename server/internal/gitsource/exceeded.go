package gitsource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// refusedFor is how long a repository is not asked for that has exceeded a limit: each attempt costs as
// much as the limit allows.
const refusedFor = 10 * time.Minute

const refusedSuffix = ".refused"

// exceeded says that a repository has exceeded a limit, and until when it is not asked for again. It is kept
// beside the mirror, so that a server that restarts does not begin with what it could not do.
type exceeded struct {
	Until   time.Time `json:"until"`
	Problem string    `json:"problem"`
	// Limits are those that were in force: with others it is tried again.
	Limits string `json:"limits"`

	cause error // nil after a restart
}

// limitsInForce names the limits that a repository can exceed.
func (r *mirror) limitsInForce() string {
	return fmt.Sprint(r.git.memory, r.cfg.MaxMirrorBytes, r.cfg.MaxOwnerBytes, r.cfg.MaxTotalBytes, r.cfg.MinFreeBytes)
}

// refusedLocked returns why the remote is not asked now; nil when it is.
func (r *mirror) refusedLocked() error {
	if r.refused == nil {
		r.refused = readExceeded(r.dir + refusedSuffix)
	}
	if !time.Now().Before(r.refused.Until) || r.refused.Limits != r.limitsInForce() {
		return nil
	}
	return &RemoteError{URL: r.url, Problem: r.refused.Problem, cause: r.refused.cause}
}

// refuseLocked notes that a limit was exceeded.
func (r *mirror) refuseLocked(ctx context.Context, err *RemoteError) {
	r.refused = &exceeded{Until: time.Now().Add(refusedFor), Problem: err.Problem, Limits: r.limitsInForce(), cause: err.cause}
	data, failed := json.Marshal(r.refused)
	if failed == nil {
		failed = os.WriteFile(r.dir+refusedSuffix, data, 0o600)
	}
	if failed != nil {
		r.cfg.Log.WarnContext(ctx, "it was not noted that a repository has exceeded a limit", "url", r.url, "error", failed)
	}
}

// exceededLocked notes err if it says that a limit was exceeded, and reports whether it does.
func (r *mirror) exceededLocked(ctx context.Context, err error) bool {
	var remote *RemoteError
	if !errors.As(err, &remote) || (!errors.Is(err, errTooLarge) && !errors.Is(err, errMemory)) {
		return false
	}
	r.refuseLocked(ctx, remote)
	return true
}

// admitLocked forgets a refusal.
func (r *mirror) admitLocked() {
	if r.refused != nil && !r.refused.Until.IsZero() {
		_ = os.Remove(r.dir + refusedSuffix) // else it is overdue, which says the same
		r.refused = &exceeded{}
	}
}

// readExceeded returns what is noted in a file; a refusal that is over if there is nothing.
func readExceeded(file string) *exceeded {
	var out exceeded
	data, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(data, &out) != nil {
		return &exceeded{}
	}
	return &out
}

// forgetExceeded deletes a note that is overdue.
func forgetExceeded(file string) error {
	if !strings.HasSuffix(file, refusedSuffix) || time.Now().Before(readExceeded(file).Until) {
		return nil
	}
	if err := os.Remove(filepath.Clean(file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("deleting the note of a refusal: %w", err)
	}
	return nil
}
