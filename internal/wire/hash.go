package wire

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// TargetState is the state that an agent has of one target.
type TargetState struct {
	Target fleet.TargetID
	fleet.Version
	Digest string
}

// Confirmed is the part of a target's status that the server has stored and the hash covers.
type Confirmed struct {
	Target fleet.TargetID
	fleet.Version
	Digest string
	Sync   fleet.SyncState
	Health fleet.Health
}

// StateHash returns a hash over the states of all targets, independent of their order, and nil for no target. The agent
// computes it over the states that it has, the server over the desired states.
func StateHash(states []TargetState) []byte {
	return hashOf(states, func(h TargetState) string { return string(h.Target) }, func(w hash.Hash, h TargetState) {
		writeVersion(w, h.Version)
		writeString(w, h.Digest)
	})
}

// StatusHash returns the same for statuses.
func StatusHash(confirmed []Confirmed) []byte {
	return hashOf(confirmed, func(c Confirmed) string { return string(c.Target) }, func(w hash.Hash, c Confirmed) {
		writeVersion(w, c.Version)
		writeString(w, c.Digest)
		writeString(w, string(c.Sync))
		writeString(w, string(c.Health))
	})
}

func hashOf[T any](items []T, key func(T) string, write func(hash.Hash, T)) []byte {
	if len(items) == 0 {
		return nil
	}
	sorted := slices.SortedFunc(slices.Values(items), func(a, b T) int { return cmp.Compare(key(a), key(b)) })
	w := sha256.New()
	for _, item := range sorted {
		writeString(w, key(item))
		write(w, item)
	}
	return w.Sum(nil)
}

func writeVersion(w hash.Hash, v fleet.Version) {
	var buf [16]byte
	binary.BigEndian.PutUint64(buf[:8], uint64(v.Epoch))
	binary.BigEndian.PutUint64(buf[8:], uint64(v.Generation))
	w.Write(buf[:])
}

// writeString writes the length first, so that ("ab", "c") and ("a", "bc") differ.
func writeString(w hash.Hash, s string) {
	var buf [8]byte
	binary.BigEndian.PutUint64(buf[:], uint64(len(s)))
	w.Write(buf[:])
	w.Write([]byte(s))
}
