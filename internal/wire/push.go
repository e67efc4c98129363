package wire

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// maxPushChunk bounds the texts of one PushEnvironments frame, far below MaxFrame.
const maxPushChunk = 1 << 20

// PushEnvironmentsProto returns the messages for a list: at least one, and more if the list does not fit into one.
func PushEnvironmentsProto(list []fleet.PushEnvironment) []*agentv1.PushEnvironments {
	out := []*agentv1.PushEnvironments{{}}
	size := 0
	for _, e := range list {
		c := e.Credential
		n := len(c.CA) + len(c.Certificate) + len(c.Key.Reveal()) + len(c.Token.Reveal()) + len(e.Namespaces)*maxID
		if size > 0 && size+n > maxPushChunk {
			out[len(out)-1].More = true
			out, size = append(out, &agentv1.PushEnvironments{}), 0
		}
		size += n
		last := out[len(out)-1]
		last.Items = append(last.Items, &agentv1.PushEnvironment{
			Id: string(e.ID), Name: e.Name, Tenant: e.Tenant, ApiUrl: e.APIURL, Namespaces: e.Namespaces, ClusterResources: e.ClusterResources,
			Revision: e.Revision, Credential: &agentv1.ClusterCredential{
				Ca: c.CA, ServerName: c.ServerName, Token: c.Token.Reveal(), Certificate: c.Certificate, Key: c.Key.Reveal(),
			},
		})
	}
	return out
}

// ParsePushEnvironments converts and validates one message of a list.
func ParsePushEnvironments(m *agentv1.PushEnvironments) ([]fleet.PushEnvironment, error) {
	if n := len(m.GetItems()); n > fleet.MaxPushEnvironments {
		return nil, frameError("%d push environments are more than %d", n, fleet.MaxPushEnvironments)
	}
	out := make([]fleet.PushEnvironment, 0, len(m.GetItems()))
	for _, e := range m.GetItems() {
		if err := checkID("environment", e.GetId()); err != nil {
			return nil, err
		}
		for _, ns := range e.GetNamespaces() {
			if err := checkID("namespace", ns); err != nil {
				return nil, err
			}
		}
		c := e.GetCredential()
		if e.GetApiUrl() == "" || len(e.GetApiUrl()) > maxURL || len(c.GetCa())+len(c.GetCertificate())+len(c.GetKey())+len(c.GetToken()) > maxSecret {
			return nil, frameError("push environment %s has no URL, or a URL or a credential that is too long", e.GetId())
		}
		out = append(out, fleet.PushEnvironment{
			ID: fleet.EnvironmentID(e.GetId()), Name: cut(e.GetName(), maxWord), Tenant: cut(e.GetTenant(), maxWord), APIURL: e.GetApiUrl(),
			Namespaces: e.GetNamespaces(), ClusterResources: e.GetClusterResources(), Revision: cut(e.GetRevision(), maxWord),
			Credential: fleet.ClusterCredential{
				CA: c.GetCa(), ServerName: cut(c.GetServerName(), maxWord), Token: fleet.NewSecretText(c.GetToken()),
				Certificate: c.GetCertificate(), Key: fleet.NewSecretText(c.GetKey()),
			},
		})
	}
	return out, nil
}

// EndpointChecksProto returns the message for results.
func EndpointChecksProto(list []fleet.EnvironmentCheck) *agentv1.EndpointChecks {
	out := &agentv1.EndpointChecks{}
	for _, c := range list[:min(len(list), fleet.MaxPushEnvironments)] {
		out.Items = append(out.Items, &agentv1.EndpointCheck{
			Environment: string(c.Environment), Revision: c.Revision, Reason: string(c.Cause.Reason), Message: clean(c.Cause.Message, maxMessage),
			AsOf: timestamppb.New(c.AsOf),
		})
	}
	return out
}

// ParseEndpointChecks converts and validates results. A reason that the server does not know is kept out: users look
// reasons up in the list.
func ParseEndpointChecks(m *agentv1.EndpointChecks) ([]fleet.EnvironmentCheck, error) {
	if n := len(m.GetItems()); n > fleet.MaxPushEnvironments {
		return nil, frameError("%d checks are more than %d", n, fleet.MaxPushEnvironments)
	}
	out := make([]fleet.EnvironmentCheck, 0, len(m.GetItems()))
	for _, c := range m.GetItems() {
		if err := checkID("environment", c.GetEnvironment()); err != nil {
			return nil, err
		}
		if err := checkWord("revision", c.GetRevision()); err != nil {
			return nil, err
		}
		reason := fleet.Reason(c.GetReason())
		if _, known := reason.Info(); !known {
			continue
		}
		at, err := parseTime("as_of", c.GetAsOf())
		if err != nil {
			return nil, err
		}
		out = append(out, fleet.EnvironmentCheck{Environment: fleet.EnvironmentID(c.GetEnvironment()), EndpointCheck: fleet.EndpointCheck{
			Revision: c.GetRevision(), Cause: fleet.Cause{Reason: reason, Message: clean(c.GetMessage(), maxMessage)}, AsOf: at,
		}})
	}
	return out, nil
}
