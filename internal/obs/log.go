package obs

import (
	"fmt"
	"io"
	"log/slog"
)

// The keys of log lines. Every room uses these, so that one query finds a thing everywhere.
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
	// KeyUserError marks what a user has to mend: a bad manifest, a wrong token, a missing Role.
	KeyUserError = "userError"
)

// The formats of NewLogger.
const (
	FormatJSON = "json"
	FormatText = "text"
)

// NewLogger writes to w in the given format, from level info on.
func NewLogger(w io.Writer, format string) (*slog.Logger, error) {
	switch format {
	case FormatJSON:
		return slog.New(slog.NewJSONHandler(w, nil)), nil
	case FormatText:
		return slog.New(slog.NewTextHandler(w, nil)), nil
	default:
		return nil, fmt.Errorf("log format %q is neither %q nor %q", format, FormatJSON, FormatText)
	}
}

// Err is the attribute of an error.
func Err(err error) slog.Attr { return slog.Any(KeyError, err) }
