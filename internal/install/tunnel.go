package install

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kedge-dev/kedge/internal/agentnames"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// tunnel returns the ServiceAccount for requests of callers, and its permissions. Impersonation without a user is a request
// with the permissions of the account itself, so that the account may do nothing but impersonate, and is not the account of
// the agent. The agent may only create tokens of it.
func (o Options) tunnel() []runtime.Object {
	objects := []runtime.Object{o.serviceAccount(agentnames.Tunnel)}
	// A namespace cannot contain a colon, so that no other agent has objects with this name.
	objects = append(objects, o.clusterRolePair(o.AgentNamespace+":tunnel", agentnames.Tunnel, o.impersonation())...)
	return append(objects, o.rolePair(o.AgentNamespace, agentnames.Tunnel, []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}, ResourceNames: []string{agentnames.Tunnel},
	}})...)
}

// impersonation allows any user, because RBAC cannot match a prefix, and the groups and extra fields of the tenant. The
// API server checks the user name of a ServiceAccount against serviceaccounts, which are not allowed.
func (o Options) impersonation() []rbacv1.PolicyRule {
	verbs := []string{"impersonate"}
	extras := fleet.AccessExtras()
	for i := range extras {
		extras[i] = "userextras/" + extras[i]
	}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"users"}, Verbs: verbs},
		{APIGroups: []string{""}, Resources: []string{"groups"}, Verbs: verbs, ResourceNames: fleet.AccessGroups(o.TenantName)},
		{APIGroups: []string{"authentication.k8s.io"}, Resources: extras, Verbs: verbs},
	}
}
