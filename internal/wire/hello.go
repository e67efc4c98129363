package wire

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// Hello is the first message of a replica.
type Hello struct {
	AgentVersion string
	KubeVersion  string
	ClusterUID   string // "" when the agent may not read it
	Replica      string
	StateHash    []byte
	StatusHash   []byte
	Clock        time.Time // zero when missing
	Standby      bool      // another replica leads
	// CapabilitiesHash is the hash of Capabilities; "" when they are not known. Hello contains only the hash.
	CapabilitiesHash string
	Capabilities     fleet.Capabilities
	// EngineNamespace is the namespace of the Argo CD that applies for the agent; "" if the agent applies by itself.
	EngineNamespace string
	// Tunnel means that the agent accepts OpenTunnels.
	Tunnel bool
	// TargetStates has the states of all targets; nil when Hello does not contain them.
	TargetStates map[fleet.TargetID]TargetState
}

// Welcome is the server's response to Hello.
type Welcome struct {
	Session          fleet.SessionID
	AgentID          fleet.AgentID
	AgentName        string
	Tenant           string // name
	Lease            time.Duration
	Scope            fleet.Scope
	Namespaces       []string
	Kinds            fleet.KindFilter
	ServerVersion    string
	SendTargetStates bool
	SendStatuses     bool
	// SendCapabilities requests the capabilities.
	SendCapabilities bool
	// TakeCapabilities means that the agent may send them again when they change.
	AcceptCapabilities bool
	// AcceptApplications lets the agent send the Applications that it does not manage.
	AcceptApplications bool
	// AcceptEndpointChecks lets the agent report on the push environments that it serves.
	AcceptEndpointChecks bool
}

// Proto returns the message for h, with valid values.
func (h Hello) Proto() *agentv1.Hello {
	var states *agentv1.TargetStates
	if h.TargetStates != nil {
		states = TargetStatesProto(slices.SortedFunc(maps.Values(h.TargetStates), func(a, b TargetState) int { return cmp.Compare(a.Target, b.Target) }))
	}
	return &agentv1.Hello{
		TargetStates: states,
		AgentVersion: cleanWord(h.AgentVersion), KubeVersion: cleanWord(h.KubeVersion), ClusterUid: cleanWord(h.ClusterUID),
		Replica: cleanWord(h.Replica), StateHash: h.StateHash, StatusHash: h.StatusHash, Clock: timestamp(h.Clock), Standby: h.Standby,
		CapabilitiesHash: h.Capabilities.Hash(), EngineNamespace: cleanWord(h.EngineNamespace), Tunnel: h.Tunnel,
	}
}

// ParseHello converts and validates Hello.
func ParseHello(m *agentv1.Hello) (Hello, error) {
	h := Hello{
		AgentVersion: m.GetAgentVersion(), KubeVersion: m.GetKubeVersion(), ClusterUID: m.GetClusterUid(),
		Replica: m.GetReplica(), StateHash: m.GetStateHash(), StatusHash: m.GetStatusHash(), Standby: m.GetStandby(),
		CapabilitiesHash: m.GetCapabilitiesHash(), EngineNamespace: m.GetEngineNamespace(), Tunnel: m.GetTunnel(),
	}
	for what, word := range map[string]string{
		"agent version": h.AgentVersion, "kube version": h.KubeVersion, "cluster uid": h.ClusterUID, "replica": h.Replica,
		"capabilities hash": h.CapabilitiesHash, "engine namespace": h.EngineNamespace,
	} {
		if err := checkWord(what, word); err != nil {
			return Hello{}, err
		}
	}
	if h.Replica == "" {
		return Hello{}, frameError("replica is empty")
	}
	if len(h.StateHash) > 64 || len(h.StatusHash) > 64 {
		return Hello{}, frameError("a hash is longer than 64 bytes")
	}
	var err error
	if m.GetTargetStates() != nil {
		if h.TargetStates, err = ParseTargetStates(m.GetTargetStates()); err != nil {
			return Hello{}, err
		}
	}
	h.Clock, err = parseTime("clock", m.GetClock())
	return h, err
}

// Proto returns the message for w.
func (w Welcome) Proto() *agentv1.Welcome {
	return &agentv1.Welcome{
		Session: string(w.Session), AgentId: string(w.AgentID), AgentName: w.AgentName, Tenant: w.Tenant,
		LeaseMilliseconds: w.Lease.Milliseconds(), SendTargetStates: w.SendTargetStates, SendStatuses: w.SendStatuses,
		SendCapabilities: w.SendCapabilities, AcceptCapabilities: w.AcceptCapabilities, AcceptApplications: w.AcceptApplications,
		AcceptEndpointChecks: w.AcceptEndpointChecks,
		ServerVersion:        w.ServerVersion, Config: &agentv1.AgentConfig{
			Scope: string(w.Scope), Namespaces: w.Namespaces, IncludeKinds: w.Kinds.Include, ExcludeKinds: w.Kinds.Exclude,
		},
	}
}

// ParseWelcome converts and validates Welcome. It refuses an unknown scope and an invalid kind filter, because
// another one could allow more than intended.
func ParseWelcome(m *agentv1.Welcome) (Welcome, error) {
	w := Welcome{
		Session: fleet.SessionID(m.GetSession()), AgentID: fleet.AgentID(m.GetAgentId()),
		AgentName: clean(m.GetAgentName(), maxWord), Tenant: clean(m.GetTenant(), maxWord),
		Lease: time.Duration(m.GetLeaseMilliseconds()) * time.Millisecond, SendTargetStates: m.GetSendTargetStates(), SendStatuses: m.GetSendStatuses(),
		SendCapabilities: m.GetSendCapabilities(), AcceptCapabilities: m.GetAcceptCapabilities(), AcceptApplications: m.GetAcceptApplications(),
		AcceptEndpointChecks: m.GetAcceptEndpointChecks(),
		ServerVersion:        clean(m.GetServerVersion(), maxWord),
		Scope:                fleet.Scope(m.GetConfig().GetScope()), Namespaces: m.GetConfig().GetNamespaces(),
		Kinds: fleet.NewKindFilter(m.GetConfig().GetIncludeKinds(), m.GetConfig().GetExcludeKinds()),
	}
	if err := checkID("session", m.GetSession()); err != nil {
		return Welcome{}, err
	}
	if err := checkID("agent id", m.GetAgentId()); err != nil {
		return Welcome{}, err
	}
	if w.Lease < 100*time.Millisecond || w.Lease > 24*time.Hour {
		return Welcome{}, frameError("lease of %d ms is not between 100 ms and a day", m.GetLeaseMilliseconds())
	}
	switch {
	case w.Scope != fleet.ScopeCluster && w.Scope != fleet.ScopeNamespaced:
		return Welcome{}, frameError("scope %q is neither cluster nor namespaced", clean(string(w.Scope), maxWord))
	case w.Scope == fleet.ScopeNamespaced && len(w.Namespaces) == 0:
		return Welcome{}, frameError("scope namespaced without a namespace")
	}
	for _, ns := range w.Namespaces {
		if err := checkID("namespace", ns); err != nil {
			return Welcome{}, err
		}
	}
	if err := w.Kinds.Check("kinds"); err != nil {
		// Ignoring a rule could allow more than intended.
		return Welcome{}, frameError("the kind filter is not valid: %v", err)
	}
	return w, nil
}

// TargetStatesProto returns the message for the states of targets.
func TargetStatesProto(states []TargetState) *agentv1.TargetStates {
	out := &agentv1.TargetStates{Targets: make([]*agentv1.TargetState, 0, len(states))}
	for _, h := range states {
		if CheckTarget(h.Target) != nil {
			continue // the server does not know such a target
		}
		out.Targets = append(out.Targets, &agentv1.TargetState{
			Target: string(h.Target), Epoch: h.Epoch, Generation: h.Generation, Digest: cleanDigest(h.Digest),
		})
	}
	return out
}

// ParseTargetStates converts and validates the states of targets.
func ParseTargetStates(m *agentv1.TargetStates) (map[fleet.TargetID]TargetState, error) {
	if n := len(m.GetTargets()); n > MaxTargets {
		return nil, frameError("%d targets are more than %d", n, MaxTargets)
	}
	out := make(map[fleet.TargetID]TargetState, len(m.GetTargets()))
	for _, t := range m.GetTargets() {
		if err := checkID("target", t.GetTarget()); err != nil {
			return nil, err
		}
		if err := checkDigest(t.GetDigest()); err != nil {
			return nil, err
		}
		id := fleet.TargetID(t.GetTarget())
		if _, twice := out[id]; twice {
			return nil, frameError("target %s is listed twice", id)
		}
		out[id] = TargetState{Target: id, Version: fleet.Version{Epoch: t.GetEpoch(), Generation: t.GetGeneration()}, Digest: t.GetDigest()}
	}
	return out, nil
}

func parseTime(what string, m *timestamppb.Timestamp) (time.Time, error) {
	if m == nil {
		return time.Time{}, nil
	}
	if err := m.CheckValid(); err != nil {
		return time.Time{}, frameError("%s: %v", what, err)
	}
	return m.AsTime(), nil
}
