package offlinecache

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// Agent is the server's last configuration of this agent.
type Agent struct {
	ID         fleet.AgentID `json:"id"`
	Name       string        `json:"name"`
	Tenant     string        `json:"tenant"`
	Scope      fleet.Scope   `json:"scope"`
	Namespaces []string      `json:"namespaces,omitempty"`
	// IncludeKinds and ExcludeKinds are the kind filter.
	IncludeKinds []string `json:"includeKinds,omitempty"`
	ExcludeKinds []string `json:"excludeKinds,omitempty"`
	// Refused is true when the server has refused the agent since: its token was revoked, or the agent was deleted.
	Refused bool `json:"refused,omitempty"`
}

// The keys of items.
const (
	agentKey     = "agent"
	targetPrefix = "target."
	bundlePrefix = "bundle."
)

// partSize is the largest size of a part of a bundle. Small parts fill Secrets evenly.
const partSize = 128 << 10

func targetKey(id fleet.TargetID) string { return targetPrefix + string(id) }

func hexOf(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

// partKeys returns the keys of a bundle in n parts.
func partKeys(digest string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s%s.%d-of-%d", bundlePrefix, hexOf(digest), i, n)
	}
	return keys
}

// parsePart parses the key of a part and returns the digest of the bundle and its number of parts.
func parsePart(key string) (digest string, n int, ok bool) {
	rest, ok := strings.CutPrefix(key, bundlePrefix)
	if !ok {
		return "", 0, false
	}
	hex, position, ok := strings.Cut(rest, ".")
	if !ok {
		return "", 0, false
	}
	_, total, ok := strings.Cut(position, "-of-")
	if !ok {
		return "", 0, false
	}
	n, err := strconv.Atoi(total)
	return "sha256:" + hex, n, err == nil && n > 0 && n <= wire.MaxBundle/partSize+1
}

// split cuts a bundle into parts.
func split(content []byte) [][]byte {
	var parts [][]byte
	for len(content) > partSize {
		parts = append(parts, content[:partSize])
		content = content[partSize:]
	}
	return append(parts, content)
}

// errItem means that an item does not match its checksum or cannot be decoded.
var errItem = errors.New("the item is damaged")

// withChecksum prepends the checksum to content.
func withChecksum(content []byte) []byte {
	sum := sha256.Sum256(content)
	return append(sum[:], content...)
}

// verify checks an item and returns its content without the checksum.
func verify(item []byte) ([]byte, error) {
	if len(item) < sha256.Size {
		return nil, errItem
	}
	content := item[sha256.Size:]
	if sum := sha256.Sum256(content); !bytes.Equal(sum[:], item[:sha256.Size]) {
		return nil, errItem
	}
	return content, nil
}

func encodeAgent(a Agent) ([]byte, error) {
	content, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("encoding the configuration of this agent: %w", err)
	}
	return withChecksum(content), nil
}

func decodeAgent(item []byte) (Agent, error) {
	content, err := verify(item)
	if err != nil {
		return Agent{}, err
	}
	var a Agent
	if err := json.Unmarshal(content, &a); err != nil {
		return Agent{}, fmt.Errorf("%w: %w", errItem, err)
	}
	return a, nil
}

// encodeTarget encodes a state as on the wire, so that the same compatibility rules apply.
func encodeTarget(d engine.Desired) ([]byte, error) {
	state := wire.Desired{Target: d.Target, Tenant: d.Tenant, Deployment: d.Deployment, State: d.State}
	content, err := proto.MarshalOptions{Deterministic: true}.Marshal(state.Proto())
	if err != nil {
		return nil, fmt.Errorf("encoding the state of target %s: %w", d.Target, err)
	}
	return withChecksum(content), nil
}

// decodeTarget reads a state; its objects are left out.
func decodeTarget(key string, item []byte) (engine.Desired, error) {
	content, err := verify(item)
	if err != nil {
		return engine.Desired{}, err
	}
	var m agentv1.Desired
	if err := proto.Unmarshal(content, &m); err != nil {
		return engine.Desired{}, fmt.Errorf("%w: %w", errItem, err)
	}
	d, err := wire.ParseDesired(&m)
	switch {
	case err != nil:
		return engine.Desired{}, fmt.Errorf("%w: %w", errItem, err)
	case targetKey(d.Target) != key, d.State.Tombstone, d.State.Detached:
		return engine.Desired{}, fmt.Errorf("%w: it is not of that target", errItem)
	}
	return engine.Desired{Target: d.Target, Tenant: d.Tenant, Deployment: d.Deployment, State: d.State}, nil
}
