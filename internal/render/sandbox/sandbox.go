package sandbox

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Mechanism is one wall.
type Mechanism string

// The mechanisms.
const (
	Limits     Mechanism = "limits"
	Namespaces Mechanism = "namespaces"
	Root       Mechanism = "root"
	Landlock   Mechanism = "landlock"
	Seccomp    Mechanism = "seccomp"
)

// All returns the mechanisms there are, in the order in which they are put up.
func All() []Mechanism { return []Mechanism{Limits, Namespaces, Root, Landlock, Seccomp} }

// Options are what a process is told by its parent, as an argument, about its confinement.
type Options struct {
	Memory int64         `json:"memory"` // most bytes that it may have
	CPU    time.Duration `json:"cpu"`    // most time on processors in its whole life
	// Isolation is what Isolate had done to the process.
	Isolation Isolation `json:"isolation,omitzero"`
	// Off are mechanisms to leave out, to see what the others do alone.
	Off []Mechanism `json:"off,omitempty"`
}

func (o Options) wants(m Mechanism) bool { return !slices.Contains(o.Off, m) }

// Argument is the form of options on a command line.
func (o Options) Argument() string {
	data, err := json.Marshal(o)
	if err != nil {
		panic("sandbox: options have no form: " + err.Error()) // numbers and texts always have one
	}
	return string(data)
}

// ParseOptions reads what Argument wrote.
func ParseOptions(argument string) (Options, error) {
	var o Options
	if err := json.Unmarshal([]byte(argument), &o); err != nil {
		return o, fmt.Errorf("reading the options of a sandbox: %w", err)
	}
	return o, nil
}

// Isolation says in which namespaces a process is started. The zero value means in none.
type Isolation struct {
	User    bool `json:"user,omitempty"`
	Network bool `json:"network,omitempty"`
	Process bool `json:"process,omitempty"` // with IPC and host name
	Mount   bool `json:"mount,omitempty"`
	// Problem is why there are not more.
	Problem string `json:"problem,omitempty"`
}

// Missing is a mechanism that could not be had.
type Missing struct {
	Mechanism Mechanism `json:"mechanism"`
	Reason    string    `json:"reason"`
}

// Status is what became of a confinement.
type Status struct {
	Active  []Mechanism `json:"active,omitempty"`
	Missing []Missing   `json:"missing,omitempty"`
	// Open is what the process was able to reach when it tried: "files" or "network".
	Open []string `json:"open,omitempty"`
}

// Lacks returns why a mechanism is not active; ok is false when it is.
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

// Problem describes in one line what is missing; "" when nothing is.
func (s Status) Problem() string {
	var parts []string
	for _, m := range s.Missing {
		parts = append(parts, fmt.Sprintf("%s (%s)", m.Mechanism, m.Reason))
	}
	if len(parts) == 0 && len(s.Open) == 0 {
		return ""
	}
	text := "not to be had here: " + strings.Join(parts, ", ")
	if len(s.Open) == 0 {
		return text + "; what is left still refuses files and network"
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
