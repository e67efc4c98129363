package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"strings"
)

// requests counts the requests of an agent to the API server, by purpose.
type requests struct {
	writes    int // of objects that it manages
	reads     int // other than by opening a watch
	watches   int // opened or renewed
	inventory int // writes of its own inventory and bundles
	lease     int
}

// auditMark returns the current end of the audit log.
func (r *rigging) auditMark() (int64, error) {
	info, err := os.Stat(r.cluster.AuditLog())
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// asked counts the requests of an agent since mark.
func (r *rigging) asked(mark int64, name string) (q requests, err error) {
	f, err := os.Open(r.cluster.AuditLog())
	if err != nil {
		return q, err
	}
	defer f.Close()
	if _, err := f.Seek(mark, io.SeekStart); err != nil {
		return q, err
	}
	home := "kedge-agent-" + name
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Verb      string                               `json:"verb"`
			User      struct{ Username string }            `json:"user"`
			ObjectRef struct{ Resource, Namespace string } `json:"objectRef"`
		}
		if json.Unmarshal(lines.Bytes(), &e) == nil && strings.HasPrefix(e.User.Username, "system:serviceaccount:"+home+":") {
			q.count(e.Verb, e.ObjectRef.Resource, e.ObjectRef.Namespace == home)
		}
	}
	return q, lines.Err()
}

func (q *requests) count(verb, resource string, own bool) {
	switch {
	case resource == "leases":
		q.lease++
	case verb == "watch":
		q.watches++
	case verb == "get" || verb == "list":
		q.reads++
	case own:
		q.inventory++
	default:
		q.writes++
	}
}
