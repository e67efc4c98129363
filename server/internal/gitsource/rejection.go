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

// rejectionTTL is how long a repository that exceeded a limit is not fetched again. Each attempt costs as much as
// the limit allows.
const rejectionTTL = 10 * time.Minute

const rejectionSuffix = ".refused"

// rejection records that a repository exceeded a limit, and until when it is not fetched. It is stored beside the
// mirror, so that a restarted server does not repeat the attempt.
type rejection struct {
	Until   time.Time `json:"until"`
	Problem string    `json:"problem"`
	// Limits are the limits at that time. With other limits the server tries again.
	Limits string `json:"limits"`

	cause error // nil after a restart
}

// limitsInForce identifies the current limits.
func (r *mirror) limitsInForce() string {
	return fmt.Sprint(r.git.memory, r.cfg.MaxMirrorBytes, r.cfg.MaxOwnerBytes, r.cfg.MaxTotalBytes, r.cfg.MinFreeBytes)
}

// rejectedLocked returns the error of a current rejection, or nil.
func (r *mirror) rejectedLocked() error {
	if r.rejection == nil {
		r.rejection = readRejection(r.dir + rejectionSuffix)
	}
	if !time.Now().Before(r.rejection.Until) || r.rejection.Limits != r.limitsInForce() {
		return nil
	}
	return &RemoteError{URL: r.url, Problem: r.rejection.Problem, cause: r.rejection.cause}
}

// rejectLocked records that a limit was exceeded.
func (r *mirror) rejectLocked(ctx context.Context, err *RemoteError) {
	r.rejection = &rejection{Until: time.Now().Add(rejectionTTL), Problem: err.Problem, Limits: r.limitsInForce(), cause: err.cause}
	data, failed := json.Marshal(r.rejection)
	if failed == nil {
		failed = os.WriteFile(r.dir+rejectionSuffix, data, 0o600)
	}
	if failed != nil {
		r.cfg.Log.WarnContext(ctx, "recording that a repository exceeded a limit failed", "url", r.url, "error", failed)
	}
}

// rejectExceededLocked records a rejection if err is an exceeded limit, and reports whether it is.
func (r *mirror) rejectExceededLocked(ctx context.Context, err error) bool {
	var remote *RemoteError
	if !errors.As(err, &remote) || (!errors.Is(err, errTooLarge) && !errors.Is(err, errMemory)) {
		return false
	}
	r.rejectLocked(ctx, remote)
	return true
}

// clearRejectionLocked removes a rejection.
func (r *mirror) clearRejectionLocked() {
	if r.rejection != nil && !r.rejection.Until.IsZero() {
		_ = os.Remove(r.dir + rejectionSuffix) // otherwise it has expired, with the same effect
		r.rejection = &rejection{}
	}
}

// readRejection reads a rejection from a file. Without a readable file it returns one that has expired.
func readRejection(file string) *rejection {
	var out rejection
	data, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(data, &out) != nil {
		return &rejection{}
	}
	return &out
}

// removeExpiredRejection deletes the file of an expired rejection.
func removeExpiredRejection(file string) error {
	if !strings.HasSuffix(file, rejectionSuffix) || time.Now().Before(readRejection(file).Until) {
		return nil
	}
	if err := os.Remove(filepath.Clean(file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("deleting an expired rejection: %w", err)
	}
	return nil
}
