package fleet

import (
	"fmt"
	"time"
)

// AgentConfig is the location of the configuration of an agent in Git, and the result of the last read.
type AgentConfig struct {
	TenantID     TenantID
	AgentID      AgentID
	AgentName    string // filled on reads
	RepositoryID RepositoryID
	RepoURL      string // filled on reads
	SpecRevision int64  // rises with every edit
	CreatedAt    time.Time

	State ConfigState
	// File is the path of the file that was read last; "" if there was none.
	File string
	// Commit is the commit at which the fields below last changed.
	Commit string
	// Live is the commit of the configuration in force; "" if none was ever applied.
	Live     string
	ReadAt   time.Time       // when the fields above and below last changed; zero before the first read
	Errors   []ConfigFinding // why the last read is not live; limited in number
	More     int             // number of errors that are not listed
	Notices  []ConfigFinding // parts without effect
	Declares int             // number of deployments in the live configuration
}

// ConfigState is the result of reading a configuration.
type ConfigState string

// The states of a configuration.
const (
	ConfigPending ConfigState = ""        // not read yet
	ConfigApplied ConfigState = "Applied" // the last read is live
	ConfigAbsent  ConfigState = "Absent"  // there is no file: nothing is declared
	ConfigInvalid ConfigState = "Invalid" // the file has errors: the configuration that was live before stays live
	ConfigRefused ConfigState = "Refused" // it cannot be applied now: the configuration that was live before stays live
)

// Reason identifies the state.
func (s ConfigState) Reason() Reason {
	switch s {
	case ConfigApplied:
		return ReasonConfigApplied
	case ConfigAbsent:
		return ReasonConfigAbsent
	case ConfigInvalid:
		return ReasonConfigInvalid
	case ConfigRefused:
		return ReasonConfigRefused
	}
	return ReasonConfigNotRead
}

// ConfigFinding is a finding about one field of a file.
type ConfigFinding struct {
	Field   string // full path, such as "deployments[2].policy.drift"; "" for the file
	Line    int    // from 1; 0 if unknown
	Message string
}

func (f ConfigFinding) String() string {
	text := f.Message
	if f.Field != "" {
		text = f.Field + ": " + text
	}
	if f.Line > 0 {
		text = fmt.Sprintf("line %d: %s", f.Line, text)
	}
	return text
}

// Declaration links a deployment to the file in Git that declares it. Only the file can change the deployment.
type Declaration struct {
	TenantID     TenantID
	DeploymentID DeploymentID
	AgentName    string // agent of the file; may be deleted
	Name         string // name in the file
	RepoURL      string
	File         string
	Prune        bool // delete its objects when the file no longer lists it
	// ReleasedAt is when the file stopped declaring the deployment: its objects stay, unmanaged, until it is
	// declared again. Zero while it is declared.
	ReleasedAt time.Time
}

// GitLabProject is the URL of a project that files in GitLab's format identify by a number, or by a path on
// another host.
type GitLabProject struct {
	TenantID TenantID
	Project  string // the name in the files
	URL      string
}
