package sqlstore

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// policyValues returns the values of the policy columns, from prune to prune_limit_percent. CreateNamespace
// comes last in every statement.
func policyValues(p fleet.Policy) []any {
	return []any{
		p.Prune, p.Adopt, p.AllowEmpty, p.Manual, p.PruneOnDetach, p.Force, p.Replace, p.DryRun, string(p.Drift), textList(p.Ignore),
		p.ServiceAccount, string(p.Propagation), p.PruneTimeout.Milliseconds(), p.ReadyTimeout.Milliseconds(),
		p.PruneLimit.Objects, p.PruneLimit.Percent,
	}
}

// policyInto scans values of policyValues.
func policyInto(p *fleet.Policy) []any {
	return []any{
		&p.Prune, &p.Adopt, &p.AllowEmpty, &p.Manual, &p.PruneOnDetach, &p.Force, &p.Replace, &p.DryRun, &p.Drift, listInto(&p.Ignore),
		&p.ServiceAccount, &p.Propagation, durationInto(&p.PruneTimeout), durationInto(&p.ReadyTimeout),
		&p.PruneLimit.Objects, &p.PruneLimit.Percent,
	}
}

// textList stores a list that is always read completely as JSON, or "" if it is empty.
func textList(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return idList(list)
}

// listInto scans a value of textList; an empty list becomes nil.
func listInto(to *[]string) *listScanner { return &listScanner{to} }

type listScanner struct{ dest *[]string }

func (s *listScanner) Scan(src any) error {
	text, ok := src.(string)
	if !ok {
		return fmt.Errorf("scanning a list from %T", src)
	}
	*s.dest = nil
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), s.dest); err != nil {
		return fmt.Errorf("scanning a list: %w", err)
	}
	return nil
}

// durationInto scans milliseconds.
func durationInto(d *time.Duration) *durationScanner { return &durationScanner{d} }

type durationScanner struct{ dest *time.Duration }

func (s *durationScanner) Scan(src any) error {
	n, ok := src.(int64)
	if !ok {
		return fmt.Errorf("scanning a duration from %T", src)
	}
	*s.dest = time.Duration(n) * time.Millisecond
	return nil
}
