package wire_test

import (
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var (
	digest = "sha256:" + strings.Repeat("0123456789abcdef", 4)
	moment = time.Date(2026, 11, 15, 12, 30, 0, 500, time.UTC)
	ref    = fleet.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"}

	hello = wire.Hello{
		AgentVersion: "v0.1.0", KubeVersion: "v1.36.3", ClusterUID: "0b5e", Replica: "kedge-agent-0",
		StateHash: []byte{1, 2, 3}, StatusHash: []byte{4, 5}, Clock: moment,
	}
	welcome = wire.Welcome{
		Session: "ses-1", AgentID: "agt-1", AgentName: "edge-1", Tenant: "default", Lease: 30 * time.Second,
		Scope: fleet.ScopeNamespaced, Namespaces: []string{"dude"}, Kinds: fleet.KindFilter{Include: []string{"ConfigMap"}, Exclude: []string{"*"}}, ServerVersion: "v0.1.0", SendTargetStates: true, SendStatuses: true,
	}
	held    = wire.TargetState{Target: "tgt-1", Version: fleet.Version{Epoch: 1, Generation: 7}, Digest: digest}
	desired = wire.Desired{
		Target: "tgt-1", Tenant: "default", Deployment: "shop", Bundle: []byte("zstd"),
		State: fleet.Desired{
			Version: fleet.Version{Epoch: 1, Generation: 8}, Digest: digest, Commit: "c0ffee", Namespace: "shop",
			Policy: fleet.Policy{Prune: true, Adopt: true, AllowEmpty: true}, HoldPrune: true,
		},
	}
	tombstone = wire.Desired{
		Target: "tgt-2", Tenant: "default", Deployment: "old",
		State: fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 9}, Tombstone: true, HoldProtected: true, Consent: true, Confirmed: []string{"Namespace old"}},
	}
	detached = wire.Desired{
		Target: "tgt-3", Tenant: "default", Deployment: "left",
		State: fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 10}, Detached: true},
	}
	granted = wire.Desired{
		Target: "tgt-4", Tenant: "guest", Deployment: "shop",
		State: fleet.Desired{
			Version: fleet.Version{Epoch: 1, Generation: 1}, Digest: digest,
			Limits: fleet.Limits{Namespaces: []string{"guest"}, Kinds: []string{"*.apps", "ConfigMap"}},
		},
	}
	sourced = wire.Desired{
		Target: "tgt-5", Tenant: "default", Deployment: "shop",
		State: fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 2}, Digest: digest, Commit: "c0ffee", Namespace: "shop"},
		Source: &fleet.EngineSource{
			RepoURL: "https://git.example.com/shop.git", Path: "chart", Kind: fleet.SourceHelm, Unsupported: []string{"source.globs"},
			Namespaces: []string{"shop"}, Kept: []string{"ConfigMap shop/keep"}, Objects: []string{"ConfigMap shop/keep"},
			Credential: &fleet.GitCredential{Kind: fleet.CredentialHTTPS, Username: "robot", Secret: fleet.NewSecretText("secret")}, Withheld: fleet.CredentialNotEnabled,
			Helm: fleet.Helm{
				ReleaseName: "shop", ValuesFiles: []string{"eu.yaml"}, Values: "a: 1", SkipCRDs: true,
				Set: []fleet.HelmSet{{Type: fleet.HelmSetString, Expression: "tag=1.10"}},
			},
		},
	}
	newToken = wire.NewToken{Operation: "op-1", Token: "kedge-agent-secret"}
	foreign  = fleet.ForeignApplications{Total: 2, Items: []fleet.ForeignApplication{{
		Name: "shop", Project: "theirs", RepoURL: "https://git.example.com/shop.git", Path: "shop", Revision: "main",
		Cluster: "https://kubernetes.default.svc", Namespace: "shop", Sync: "Synced", Health: "Healthy",
	}}}
	cluster     = fleet.Capabilities{KubeVersion: "v1.36.3", APIVersions: []string{"apps/v1", "apps/v1/Deployment", "v1"}}
	tokenStored = wire.TokenStored{Operation: "op-1", Problem: "the file is read-only"}

	status = wire.Status{
		Target: "tgt-1", Full: true, Gone: []fleet.ObjectRef{{Version: "v1", Kind: "Namespace", Name: "old"}},
		Observed: fleet.Observed{
			Version: fleet.Version{Epoch: 1, Generation: 8}, Digest: digest, Sync: fleet.SyncFailed,
			Health: fleet.HealthInProgress, Message: "one of two failed", AsOf: moment,
		},
		Objects: []fleet.ObjectStatus{{ObjectRef: ref, Sync: fleet.SyncFailed, Health: fleet.HealthFailed, Message: "forbidden"}},
	}
	event = wire.Event{Target: "tgt-1", Event: fleet.Event{
		At: moment, Type: fleet.EventWarning, Reason: "ApplyFailed", Object: ref.String(), Message: "forbidden",
	}}
)

// frames has one frame of every kind, as the first release sends it.
func frames() map[string]proto.Message {
	request := func(r *agentv1.ConnectRequest) proto.Message { return r }
	response := func(r *agentv1.ConnectResponse) proto.Message { return r }
	return map[string]proto.Message{
		"hello":         request(&agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Hello{Hello: hello.Proto()}}),
		"target_states": request(&agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_TargetStates{TargetStates: wire.TargetStatesProto([]wire.TargetState{held})}}),
		"status":        request(&agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Status{Status: status.Proto()}}),
		"events":        request(&agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Events{Events: wire.EventsProto([]wire.Event{event})}}),
		"heartbeat":     request(&agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Heartbeat{Heartbeat: &agentv1.Heartbeat{}}}),
		"applications":  request(&agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Applications{Applications: wire.ApplicationsProto(foreign)}}),
		"capabilities":  request(&agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Capabilities{Capabilities: wire.CapabilitiesProto(cluster)}}),
		"token_stored":  request(&agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_TokenStored{TokenStored: tokenStored.Proto()}}),

		"welcome":           response(&agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Welcome{Welcome: welcome.Proto()}}),
		"desired":           response(&agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Desired{Desired: desired.Proto()}}),
		"tombstone":         response(&agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Desired{Desired: tombstone.Proto()}}),
		"detached":          response(&agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Desired{Desired: detached.Proto()}}),
		"granted":           response(&agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Desired{Desired: granted.Proto()}}),
		"sourced":           response(&agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Desired{Desired: sourced.Proto()}}),
		"new_token":         response(&agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_NewToken{NewToken: newToken.Proto()}}),
		"snapshot_complete": response(&agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_SnapshotComplete{SnapshotComplete: &agentv1.SnapshotComplete{}}}),
		"status_stored":     response(&agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_StatusStored{StatusStored: &agentv1.StatusStored{Count: 3}}}),
		"goodbye": response(&agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Goodbye{
			Goodbye: &agentv1.Goodbye{Reason: "stopping", ReconnectWithinMilliseconds: 1000},
		}}),
		"fetch_request":  &agentv1.FetchBundleRequest{Digest: digest, Offset: 65536},
		"fetch_response": &agentv1.FetchBundleResponse{Chunk: []byte("zstd"), Total: 4},
	}
}

// This build encodes frames like the first release. A change of a golden file is an incompatible change of the protocol.
func TestFramesMatchGoldenFiles(t *testing.T) {
	t.Parallel()
	for name, frame := range frames() {
		raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(frame)
		if err != nil {
			t.Fatal(err)
		}
		got, file := hex.EncodeToString(raw)+"\n", golden(name)
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s is encoded differently (-golden +now):\n%s", name, diff)
		}
	}
}

// This build parses the frames of the first release.
func TestGoldenFramesAreParsed(t *testing.T) {
	t.Parallel()
	var request agentv1.ConnectRequest
	var response agentv1.ConnectResponse

	load(t, "hello", &request)
	gotHello, err := wire.ParseHello(request.GetHello())
	check(t, hello, gotHello, err)

	load(t, "target_states", &request)
	gotHeld, err := wire.ParseTargetStates(request.GetTargetStates())
	check(t, map[fleet.TargetID]wire.TargetState{"tgt-1": held}, gotHeld, err)

	load(t, "status", &request)
	gotStatus, err := wire.ParseStatus(request.GetStatus())
	check(t, status, gotStatus, err)

	load(t, "events", &request)
	gotEvents, err := wire.ParseEvents(request.GetEvents())
	check(t, []wire.Event{event}, gotEvents, err)

	load(t, "welcome", &response)
	gotWelcome, err := wire.ParseWelcome(response.GetWelcome())
	check(t, welcome, gotWelcome, err)

	load(t, "desired", &response)
	gotDesired, err := wire.ParseDesired(response.GetDesired())
	check(t, desired, gotDesired, err)

	load(t, "tombstone", &response)
	gotDesired, err = wire.ParseDesired(response.GetDesired())
	check(t, tombstone, gotDesired, err)

	load(t, "detached", &response)
	gotDesired, err = wire.ParseDesired(response.GetDesired())
	check(t, detached, gotDesired, err)

	load(t, "granted", &response)
	gotDesired, err = wire.ParseDesired(response.GetDesired())
	check(t, granted, gotDesired, err)

	load(t, "sourced", &response)
	gotDesired, err = wire.ParseDesired(response.GetDesired())
	check(t, sourced, gotDesired, err)

	load(t, "new_token", &response)
	gotToken, err := wire.ParseNewToken(response.GetNewToken())
	if gotToken != newToken || err != nil {
		t.Errorf("the golden new token is parsed as %v, %v", gotToken, err)
	}

	load(t, "applications", &request)
	gotForeign, err := wire.ParseApplications(request.GetApplications())
	check(t, foreign, gotForeign, err)

	load(t, "capabilities", &request)
	gotCluster, err := wire.ParseCapabilities(request.GetCapabilities())
	check(t, cluster, gotCluster, err)

	load(t, "token_stored", &request)
	gotStored, err := wire.ParseTokenStored(request.GetTokenStored())
	check(t, tokenStored, gotStored, err)
}

func golden(name string) string { return filepath.Join("testdata", "v1", name+".hex") }

func load(t *testing.T, name string, into proto.Message) {
	t.Helper()
	text, err := os.ReadFile(golden(name))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

func check(t *testing.T, want, got any, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a golden frame is parsed differently (-want +got):\n%s", diff)
	}
}
