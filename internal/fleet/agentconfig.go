package fleet

import (
	"fmt"
	"time"
)

// AgentConfig is where the configuration of an agent is in Git, and what became of it when it was last
// read.
type AgentConfig struct {
	TenantID     TenantID
	AgentID      AgentID
	AgentName    string // filled on reads
	RepositoryID RepositoryID
	RepoURL      string // filled on reads
	Spec         int64  // rises with every edit
	CreatedAt    time.Time

	State ConfigState
	// File is the path of what was read last; "" when there was none.
	File string
	// Commit is the one that was read when the rest of this last changed.
	Commit string
	// Live is the commit whose configuration holds; "" when none was ever applied.
	Live     string
	ReadAt   time.Time       // when the rest of this last changed; zero before the first time
	Errors   []ConfigFinding // why what was read is not live; bounded
	More     int             // how many errors there are beside
	Notices  []ConfigFinding // what has no effect
	Declares int             // how many deployments the live configuration has
}

// ConfigState is what became of a configuration.
type ConfigState string

// The states of a configuration.
const (
	ConfigPending ConfigState = ""        // not read yet
	ConfigApplied ConfigState = "Applied" // what was read last is live
	ConfigAbsent  ConfigState = "Absent"  // there is no file: nothing is declared
	ConfigInvalid ConfigState = "Invalid" // the file is wrong: what was live before still is
	ConfigRefused ConfigState = "Refused" // it cannot be applied now: what was live before still is
)

// ConfigFinding is something to say about one field of a file.
type ConfigFinding struct {
	Field   string // full path, such as "deployments[2].policy.drift"; "" for the file
	Line    int    // from 1; 0 when there is none
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

// Declaration says that a file in Git declares a deployment: nobody else may change it.
type Declaration struct {
	TenantID     TenantID
	DeploymentID DeploymentID
	AgentName    string // whose file it is; the agent may be gone
	Name         string // in the file
	RepoURL      string
	File         string
	Prune        bool // delete its objects when the file no longer lists it
	// ReleasedAt is when the file stopped declaring it: its objects stay, and nobody manages them until
	// it is declared again. Zero while it is declared.
	ReleasedAt time.Time
}

// GitLabProject says where a project is that files of GitLab's name by a number, or by a path that is
// not on the host of the file.
type GitLabProject struct {
	TenantID TenantID
	Project  string // as files write it
	URL      string
}
