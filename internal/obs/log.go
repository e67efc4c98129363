package obs

import (
	"fmt"
	"io"
	"log/slog"
	"time"
)

// The keys of log lines, which are the same in all packages.
const (
	KeyAgent       = "agent"
	KeyAddress     = "address"
	KeyCommit      = "commit"
	KeyComponent   = "component"
	KeyDeployment  = "deployment"
	KeyDigest      = "digest"
	KeyDuration    = "duration"
	KeyEnvironment = "environment"
	KeyError       = "error"
	KeyEvent       = "event"
	KeyGeneration  = "generation"
	KeyObject      = "object"
	KeyReason      = "reason"
	KeyReplica     = "replica"
	KeyRepository  = "repository"
	KeySession     = "session"
	KeyTarget      = "target"
	KeyTenant      = "tenant"
	KeyVersion     = "version"
	// KeyUserError marks errors that a user has to fix: a bad manifest, a wrong token, a missing Role.
	KeyUserError = "userError"
)

// The formats of NewLogger.
const (
	FormatJSON = "json"
	FormatText = "text"
)

// NewLogger returns a logger that writes to w in the given format, from level info. Durations are written as text.
func NewLogger(w io.Writer, format string) (*slog.Logger, error) {
	options := &slog.HandlerOptions{ReplaceAttr: readable}
	switch format {
	case FormatJSON:
		return slog.New(slog.NewJSONHandler(w, options)), nil
	case FormatText:
		return slog.New(slog.NewTextHandler(w, options)), nil
	default:
		return nil, fmt.Errorf("log format %q is not valid: use %q or %q", format, FormatJSON, FormatText)
	}
}

// readable converts a duration, which JSON would encode in nanoseconds, to text with about three significant digits, and at
// least whole seconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() != slog.KindDuration {
		return a
	}
	d, digit := a.Value.Duration(), time.Duration(1)
	for digit < time.Second && (d/digit >= 1000 || d/digit <= -1000) {
		digit *= 10
	}
	return slog.String(a.Key, d.Round(digit).String())
}

// Err returns the attribute for an error.
func Err(err error) slog.Attr { return slog.Any(KeyError, err) }
