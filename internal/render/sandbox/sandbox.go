package sandbox

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Mechanism is one mechanism of confinement.
type Mechanism string

// The mechanisms.
const (
	Limits     Mechanism = "limits"
	Namespaces Mechanism = "namespaces"
	Root       Mechanism = "root"
	Landlock   Mechanism = "landlock"
	Seccomp    Mechanism = "seccomp"
)

// All returns the mechanisms, in the order in which they are applied.
func All() []Mechanism { return []Mechanism{Limits, Namespaces, Root, Landlock, Seccomp} }

// Options are the options of a confinement, which a parent passes to the process as an argument.
type Options struct {
	Memory int64         `json:"memory"` // maximum memory in bytes
	CPU    time.Duration `json:"cpu"`    // maximum CPU time of the process
	// Isolation is the isolation that Isolate has applied to the process.
	Isolation Isolation `json:"isolation,omitzero"`
	// Off disables mechanisms, to test the others alone.
	Off []Mechanism `json:"off,omitempty"`
}

func (o Options) wants(m Mechanism) bool { return !slices.Contains(o.Off, m) }

// Argument encodes the options for a command line.
func (o Options) Argument() string {
	data, err := json.Marshal(o)
	if err != nil {
		panic("sandbox: encoding options: " + err.Error()) // numbers and texts can always be encoded
	}
	return string(data)
}

// ParseOptions parses the output of Argument.
func ParseOptions(argument string) (Options, error) {
	var o Options
	if err := json.Unmarshal([]byte(argument), &o); err != nil {
		return o, fmt.Errorf("reading the options of a sandbox: %w", err)
	}
	return o, nil
}

// Isolation lists the namespaces in which a process is started. The zero value means none.
type Isolation struct {
	User    bool `json:"user,omitempty"`
	Network bool `json:"network,omitempty"`
	Process bool `json:"process,omitempty"` // with IPC and host name
	Mount   bool `json:"mount,omitempty"`
	// Problem is why there are not more.
	Problem string `json:"problem,omitempty"`
}

// Missing is a mechanism that is not available.
type Missing struct {
	Mechanism Mechanism `json:"mechanism"`
	Reason    string    `json:"reason"`
}

// Status is the result of a confinement.
type Status struct {
	Active  []Mechanism `json:"active,omitempty"`
	Missing []Missing   `json:"missing,omitempty"`
	// Open lists what the process could reach when it tried: "files" or "network".
	Open []string `json:"open,omitempty"`
}

// Lacks returns why a mechanism is not active; ok is false if it is active.
func (s Status) Lacks(m Mechanism) (reason string, ok bool) {
	if slices.Contains(s.Active, m) {
		return "", false
	}
	for _, missing := range s.Missing {
		if missing.Mechanism == m {
			return missing.Reason, true
		}
	}
	return "it was not tried", true
}

// Problem describes in one line what is missing, or returns "".
func (s Status) Problem() string {
	var parts []string
	for _, m := range s.Missing {
		parts = append(parts, fmt.Sprintf("%s (%s)", m.Mechanism, m.Reason))
	}
	if len(parts) == 0 && len(s.Open) == 0 {
		return ""
	}
	text := "not available here: " + strings.Join(parts, ", ")
	if len(s.Open) == 0 {
		return text + "; the other mechanisms still block files and network"
	}
	return text + "; a render could reach " + strings.Join(s.Open, " and ")
}

func (s *Status) note(m Mechanism, err error) {
	if err == nil {
		s.Active = append(s.Active, m)
		return
	}
	s.Missing = append(s.Missing, Missing{Mechanism: m, Reason: err.Error()})
}
