package kubeapi

import (
	"encoding/json"
	"hash/fnv"
	"sync"
)

// statuses has a hash of the status that each GitOpsDeployment should have. The cache may be behind a status that the
// server wrote: then a pass that finds the cached status correct writes nothing, although the API server has another one.
// When the cache gets that one, the resource is processed again. It is safe for concurrent use.
type statuses struct {
	mu     sync.Mutex
	wanted map[resource]uint64
}

func newStatuses() *statuses { return &statuses{wanted: map[resource]uint64{}} }

// found records the status of a resource that is processed for the first time.
func (s *statuses) found(r resource, status any) {
	hash := statusHash(status)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.wanted[r]; !ok {
		s.wanted[r] = hash
	}
}

// want records the status that a resource should have. It is called before the status is written.
func (s *statuses) want(r resource, status any) {
	hash := statusHash(status)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted[r] = hash
}

// wants reports whether a resource should have a status.
func (s *statuses) wants(r resource, status any) bool {
	hash := statusHash(status)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted[r] == hash
}

func (s *statuses) forget(r resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.wanted, r)
}

// statusHash returns 0 for a status that cannot be encoded, which is none of the API.
func statusHash(status any) uint64 {
	raw, err := json.Marshal(status)
	if err != nil {
		return 0
	}
	hash := fnv.New64a()
	_, _ = hash.Write(raw)
	return hash.Sum64()
}
