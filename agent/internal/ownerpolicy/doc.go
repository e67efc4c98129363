// Package ownerpolicy is what the owner of a cluster allows an agent to do there, whatever a server
// says: a file that is mounted into the agent's pod and that no server can write. It only ever
// forbids: what it does not mention is as the agent's RBAC has it.
//
//	namespaces:
//	  allow: ["team-*"]         # absent: every namespace
//	  deny: ["team-secret"]
//	clusterScoped: false        # objects without a namespace; true when absent
//	kinds:
//	  include: ["Lease.coordination.k8s.io"]   # allowed, even if the next two lists have it
//	  exclude: ["Secret", "*.rbac.authorization.k8s.io"]
//	serviceAccounts:
//	  require: true             # a deployment that names none is refused
//	  allow: ["team-*/deployer"]
//	deletions: false            # nothing is ever deleted; true when absent
//
// Kinds are filtered in this order: included ones are allowed, those that are built in as excluded
// (what a cluster makes by itself, such as Event) are refused, excluded ones are refused, the rest is
// allowed. To allow only some, exclude "*" and include those.
//
// Nothing is lifted by accident. While an agent runs, a file that is not a policy, is empty or has
// disappeared leaves the last policy in force; {} is how to forbid nothing. Only an agent that starts
// without the file has no limits.
package ownerpolicy
