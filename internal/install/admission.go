package install

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Admission limits what the account of an agent may write, beyond its RBAC permissions. The API server enforces it. Zero values
// limit nothing, except that pods must not be privileged.
type Admission struct {
	// Namespaces are patterns; * matches any characters.
	Namespaces []string
	// NamespaceLabels are labels that a namespace must have.
	NamespaceLabels map[string]string
	// ClusterScoped allows objects without a namespace although namespaces are limited. Namespaces that are allowed are
	// always allowed as objects.
	ClusterScoped bool
	// Kinds are the only allowed kinds, and ExcludeKinds others: Secret, Deployment.apps, *.rbac.authorization.k8s.io.
	Kinds, ExcludeKinds []string
	// Privileged allows pods that can leave their isolation.
	Privileged bool
	// Rules are CEL expressions that must be true for each object. They may use object, oldObject, request and namespaceObject.
	Rules []string
}

const (
	maxAdmissionRules   = 32
	maxAdmissionEntries = 100
	maxRuleLength       = 5000
)

var (
	namespacePatternRE = regexp.MustCompile(`^[a-z0-9*]([a-z0-9*-]{0,61}[a-z0-9*])?$`)
	labelRE            = regexp.MustCompile(`^[A-Za-z0-9._/-]{0,317}$`)
)

func (a *Admission) check() error {
	if len(a.Namespaces) > maxAdmissionEntries || len(a.NamespaceLabels) > maxAdmissionEntries || len(a.Rules) > maxAdmissionRules {
		return fleet.Invalid("admission", "at most %d namespaces and labels, and %d rules are allowed", maxAdmissionEntries, maxAdmissionRules)
	}
	for _, pattern := range a.Namespaces {
		if !namespacePatternRE.MatchString(pattern) {
			return fleet.Invalid("admissionNamespaces", "%q is not a pattern of namespaces, such as team-a or team-*", pattern)
		}
	}
	for key, value := range a.NamespaceLabels {
		if key == "" || !labelRE.MatchString(key) || !labelRE.MatchString(value) {
			return fleet.Invalid("admissionNamespaceLabels", "%q is not a label", key+"="+value)
		}
	}
	for _, rule := range a.Rules {
		if strings.TrimSpace(rule) == "" || len(rule) > maxRuleLength {
			return fleet.Invalid("admissionRules", "a rule is a CEL expression of at most %d characters", maxRuleLength)
		}
	}
	return fleet.KindFilter{Include: a.Kinds, Exclude: a.ExcludeKinds}.Check("admissionKinds")
}

// admission returns the policy and its binding. The API server does not let a policy decide about policies.
func (o Options) admission() []runtime.Object {
	name := o.AgentNamespace + ".admission.kedge.dev"
	const apiVersion = "admissionregistration.k8s.io/v1"
	policy := &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: "ValidatingAdmissionPolicy"}, ObjectMeta: o.meta("", name),
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect},
				Rule:       admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
			}}}},
			MatchConditions: o.admissionMatch(),
			Variables:       slices.Concat(namespaceVariables, podVariables),
			Validations:     o.Admission.validations(),
		},
	}
	if o.Admission.Privileged {
		policy.Spec.Variables = namespaceVariables
	}
	return []runtime.Object{policy, &admissionv1.ValidatingAdmissionPolicyBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: "ValidatingAdmissionPolicyBinding"}, ObjectMeta: o.meta("", name),
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}}
}

// admissionMatch selects the requests of the agent, except for the kinds that it needs in its own namespace and in that of Argo CD.
// A pod there is limited like others.
func (o Options) admissionMatch() []admissionv1.MatchCondition {
	except := func(name, namespace, resources string) admissionv1.MatchCondition {
		return admissionv1.MatchCondition{Name: name, Expression: inNamespace + " ? !(request.namespace == " + quote(namespace) + " && request.resource.resource in " + resources + ") : true"}
	}
	out := []admissionv1.MatchCondition{
		{Name: "agent", Expression: "request.userInfo.username == " + quote("system:serviceaccount:"+o.AgentNamespace+":"+agentName)},
		except("not-its-own-objects", o.AgentNamespace, "['configmaps', 'secrets', 'leases', 'events', 'serviceaccounts']"),
	}
	if o.Agent.EngineNamespace != "" {
		out = append(out, except("not-for-argo-cd", o.Agent.EngineNamespace, "['applications', 'appprojects', 'secrets']"))
	}
	return out
}

func (a *Admission) validations() (out []admissionv1.Validation) {
	add := func(expression, message string) {
		out = append(out, admissionv1.Validation{Expression: expression, Message: message, Reason: new(metav1.StatusReasonForbidden)})
	}
	limited := len(a.Namespaces) > 0 || len(a.NamespaceLabels) > 0
	if limited && !a.ClusterScoped {
		add("variables.namespaceName != ''", "this agent may not write objects without a namespace")
	}
	if len(a.Namespaces) > 0 {
		add("variables.namespaceName == '' || variables.namespaceName.matches("+quote(patternOf(a.Namespaces))+")",
			"this agent may only write in namespaces "+strings.Join(a.Namespaces, ", "))
	}
	for _, key := range sortedKeys(a.NamespaceLabels) {
		has := func(object string) string {
			return fmt.Sprintf("(has(%[1]s.metadata.labels) && %[2]s in %[1]s.metadata.labels && %[1]s.metadata.labels[%[2]s] == %[3]s)", object, quote(key), quote(a.NamespaceLabels[key]))
		}
		// A label that a namespace has must not be set in the same request.
		add("variables.namespaceName == '' || (variables.isNamespace ? (request.operation == 'CREATE' ? "+has("object")+" : "+has("oldObject")+") : "+has("namespaceObject")+")",
			fmt.Sprintf("this agent may only write in namespaces with the label %s=%s", key, a.NamespaceLabels[key]))
	}
	if len(a.Kinds) > 0 {
		add(kindIn(a.Kinds), "this agent may only write these kinds: "+strings.Join(a.Kinds, ", "))
	}
	if len(a.ExcludeKinds) > 0 {
		add("!("+kindIn(a.ExcludeKinds)+")", "this agent may not write these kinds: "+strings.Join(a.ExcludeKinds, ", "))
	}
	if len(a.Kinds)+len(a.ExcludeKinds) > 0 { // their kind is not that of the object: Scale, TokenRequest, Eviction
		add("!has(request.subResource) || request.subResource in ['', 'status']", "this agent may not write subresources")
	}
	if !a.Privileged {
		for _, rule := range podRules {
			add(rule.Expression, rule.Message)
		}
	}
	for _, rule := range a.Rules {
		add(rule, "refused by the rule of this cluster: "+strings.Join(strings.Fields(rule), " "))
	}
	if len(out) == 0 {
		add("true", "nothing is limited")
	}
	return out
}

// For a Namespace, the API server sets the namespace of a request to its name.
const (
	isNamespace = "request.kind.kind == 'Namespace' && request.kind.group == ''"
	inNamespace = "has(request.namespace) && request.namespace != '' && !(" + isNamespace + ")"
)

// namespaceVariables has the namespace of an object, or that which the object is; "" for other objects without a namespace.
var namespaceVariables = []admissionv1.Variable{
	{Name: "isNamespace", Expression: isNamespace},
	{Name: "namespaceName", Expression: "variables.isNamespace ? (has(request.name) ? request.name : '*') : has(request.namespace) ? request.namespace : ''"},
}

// patternOf returns the regular expression of patterns.
func patternOf(patterns []string) string {
	parts := make([]string, 0, len(patterns))
	for _, p := range patterns {
		parts = append(parts, strings.ReplaceAll(regexp.QuoteMeta(p), `\*`, ".*"))
	}
	return "^(" + strings.Join(parts, "|") + ")$"
}

// kindIn returns an expression that is true for kinds of a filter.
func kindIn(kinds []string) string {
	parts := make([]string, 0, len(kinds))
	for _, k := range kinds {
		kind, group, _ := strings.Cut(k, ".")
		part := "request.kind.group == " + quote(group)
		switch {
		case k == "*":
			part = "true"
		case group == "*":
			part = "request.kind.kind == " + quote(kind)
		case kind != "*":
			part += " && request.kind.kind == " + quote(kind)
		}
		parts = append(parts, "("+part+")")
	}
	return strings.Join(parts, " || ")
}

// podVariables has the specification of the pods of an object; an empty one for an object without pods.
var podVariables = []admissionv1.Variable{
	{Name: "pod", Expression: `request.operation == 'DELETE' || !has(object.spec) ? dyn({}) : ` +
		`(request.kind.group == '' && request.kind.kind == 'Pod') ? dyn(object.spec) : ` +
		`(request.kind.group == 'batch' && request.kind.kind == 'CronJob') ? dyn(object.spec.jobTemplate.spec.template.spec) : ` +
		`(request.kind.group in ['', 'apps', 'batch', 'extensions'] && has(object.spec.template) && has(object.spec.template.spec)) ? dyn(object.spec.template.spec) : dyn({})`},
	{Name: "containers", Expression: `(has(variables.pod.containers) ? variables.pod.containers : []) + ` +
		`(has(variables.pod.initContainers) ? variables.pod.initContainers : []) + (has(variables.pod.ephemeralContainers) ? variables.pod.ephemeralContainers : [])`},
}

// podRules are the most important ones of the Pod Security Standard "baseline". They hold for the templates of workloads too,
// whose pods other accounts create.
var podRules = []admissionv1.Validation{
	{Expression: `variables.containers.all(c, !has(c.securityContext) || !has(c.securityContext.privileged) || !c.securityContext.privileged)`,
		Message: "this agent may not create privileged containers"},
	{Expression: `[has(variables.pod.hostNetwork) && variables.pod.hostNetwork, has(variables.pod.hostPID) && variables.pod.hostPID, has(variables.pod.hostIPC) && variables.pod.hostIPC].all(x, !x)`,
		Message: "this agent may not create pods in the namespaces of their node (hostNetwork, hostPID, hostIPC)"},
	{Expression: `!has(variables.pod.volumes) || variables.pod.volumes.all(v, !has(v.hostPath))`,
		Message: "this agent may not create pods with hostPath volumes"},
	{Expression: `request.operation == 'DELETE' || request.kind.kind != 'PersistentVolume' || request.kind.group != '' || !has(object.spec) || !has(object.spec.hostPath) && !has(object.spec.local)`,
		Message: "this agent may not create volumes of files of a node"},
	{Expression: `(variables.containers + [variables.pod]).all(c, !has(c.securityContext) || !has(c.securityContext.windowsOptions) || !has(c.securityContext.windowsOptions.hostProcess) || !c.securityContext.windowsOptions.hostProcess)`,
		Message: "this agent may not create processes of the node (windowsOptions.hostProcess)"},
	{Expression: `variables.containers.all(c, !has(c.securityContext) || !has(c.securityContext.capabilities) || !has(c.securityContext.capabilities.add) || ` +
		`c.securityContext.capabilities.add.all(x, x in ['AUDIT_WRITE', 'CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'FSETID', 'KILL', 'MKNOD', 'NET_BIND_SERVICE', 'SETFCAP', 'SETGID', 'SETPCAP', 'SETUID', 'SYS_CHROOT']))`,
		Message: "this agent may not create containers with additional capabilities"},
}

// quote returns a string literal of CEL.
func quote(text string) string { return strconv.Quote(text) }

func sortedKeys(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
