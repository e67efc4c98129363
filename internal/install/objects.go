package install

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kedge-dev/kedge/internal/agentnames"
	"github.com/kedge-dev/kedge/internal/fleet"
)

func (o Options) labels() map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":       agentName,
		"app.kubernetes.io/managed-by": "kedge",
		LabelInstall:                   o.Agent.Name,
	}
}

func (o Options) meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: o.labels()}
}

func (o Options) namespace() *corev1.Namespace {
	ns := &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: o.meta("", o.AgentNamespace),
	}
	ns.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
	return ns
}

func (o Options) serviceAccount(name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: o.meta(o.AgentNamespace, name),
	}
}

// tokenSecretName returns the name of the Secret with the token.
func (o Options) tokenSecretName() string { return cmp.Or(o.RegistrationSecret, tokenSecret) }

// tokenKey returns the key of the token in that Secret.
func (o Options) tokenKey() string {
	if o.RegistrationSecret != "" {
		return registrationKey
	}
	return tokenKey
}

func (o Options) tokenSecret() *corev1.Secret {
	return o.secret(tokenSecret, tokenKey, []byte(o.Token))
}

// caSecret returns a Secret although the certificate is not secret: a namespaced agent may write the ConfigMaps of its own
// namespace, and must not be able to change the CA that it trusts.
func (o Options) caSecret() *corev1.Secret {
	return o.secret(caSecret, caKey, o.CAPEM)
}

func (o Options) secret(name, key string, value []byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: o.meta(o.AgentNamespace, name),
		Type:       corev1.SecretTypeOpaque,
		StringData: map[string]string{key: string(value)},
	}
}

// rbac returns the permissions of the agent. The cluster owner may restrict them. The server cannot extend them.
func (o Options) rbac() []runtime.Object {
	if o.Agent.EngineNamespace != "" {
		return o.argoCDRBAC()
	}
	if o.Agent.Scope != fleet.ScopeNamespaced {
		return o.clusterRBAC()
	}
	objects := o.rolePair(o.AgentNamespace, agentName, o.ownRules())
	for _, ns := range o.Agent.Namespaces {
		objects = append(objects, o.rolePair(ns, o.AgentNamespace, everything())...)
	}
	return objects
}

// argoCDRBAC returns the permissions of an agent that has Argo CD apply: Applications and AppProjects in the namespace of
// Argo CD, and what the agent keeps in its own namespace. It has no permission for the objects of deployments. It can read
// no Secret of Argo CD, which holds credentials of clusters: if it delivers Git credentials, or serves push environments, it
// may use its own Secrets, by name. RBAC cannot limit the names of new objects.
func (o Options) argoCDRBAC() []runtime.Object {
	objects := o.rolePair(o.AgentNamespace, agentName, o.ownRules())
	rules := []rbacv1.PolicyRule{{
		APIGroups: []string{"argoproj.io"}, Resources: []string{"applications", "appprojects"},
		// RBAC cannot express "only with a label": the engine checks the label before each write.
		Verbs: []string{"get", "list", "watch", "create", "update", "delete"},
	}}
	var secrets []string
	if o.Agent.DeliverGitCredentials {
		secrets = append(secrets, agentnames.RepositorySecretNames(o.AgentNamespace)...)
	}
	if o.Agent.Instance {
		secrets = append(secrets, agentnames.ClusterSecretNames(o.AgentNamespace)...)
	}
	if len(secrets) > 0 {
		rules = append(rules,
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "watch", "update", "delete"}, ResourceNames: secrets})
	}
	objects = append(objects, o.rolePair(o.Agent.EngineNamespace, o.AgentNamespace, rules)...)
	// The UID of this namespace identifies the cluster.
	return append(objects, o.rolePair(metav1.NamespaceSystem, o.AgentNamespace, []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}, ResourceNames: []string{metav1.NamespaceSystem},
	}})...)
}

func (o Options) clusterRBAC() []runtime.Object {
	rules := everything()
	// Without this rule the agent could not apply a ClusterRole that has rules for non-resource URLs.
	rules = append(rules, rbacv1.PolicyRule{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}})
	return o.clusterRolePair(o.AgentNamespace, agentName, rules)
}

// clusterRolePair returns a ClusterRole, and its binding to a ServiceAccount in the namespace of the agent.
func (o Options) clusterRolePair(name, account string, rules []rbacv1.PolicyRule) []runtime.Object {
	return []runtime.Object{
		&rbacv1.ClusterRole{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
			ObjectMeta: o.meta("", name),
			Rules:      rules,
		},
		&rbacv1.ClusterRoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
			ObjectMeta: o.meta("", name),
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   o.subjects(account),
		},
	}
}

func (o Options) rolePair(namespace, name string, rules []rbacv1.PolicyRule) []runtime.Object {
	return []runtime.Object{
		&rbacv1.Role{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"},
			ObjectMeta: o.meta(namespace, name),
			Rules:      rules,
		},
		&rbacv1.RoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
			ObjectMeta: o.meta(namespace, name),
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects:   o.subjects(agentName),
		},
	}
}

func (o Options) subjects(account string) []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: o.AgentNamespace, Name: account}}
}

func everything() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
}

// ownRules are the permissions of a namespaced agent in its own namespace: for its inventory, its offline cache, its token
// and its Lease. They do not include its Deployment, its RBAC or other Secrets and Leases. RBAC cannot restrict the verb
// create by name, so that the agent may create Secrets and Leases with other names, but may not read or change them.
func (o Options) ownRules() []rbacv1.PolicyRule {
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	rule := func(group, resource string, names, verbs []string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: verbs}
	}
	const coordination = "coordination.k8s.io"
	return []rbacv1.PolicyRule{
		rule("", "configmaps", nil, verbs),
		rule(coordination, "leases", []string{agentnames.Lease}, []string{"get", "list", "watch", "update"}),
		rule(coordination, "leases", nil, []string{"create"}),
		rule("", "secrets", []string{o.tokenSecretName()}, []string{"get", "update", "patch"}),
		rule("", "secrets", agentnames.SlotNames(), []string{"get", "patch"}),
		rule("", "secrets", nil, []string{"create"}),
	}
}
