// Package ownerpolicy reads the policy of a cluster's owner, which restricts what an agent may do in the cluster. It is a
// file that is mounted into the agent's pod. The server can neither write nor override it. A policy grants nothing: it
// only restricts the permissions that the agent's RBAC grants.
//
//	namespaces:
//	  allow: ["team-*"]         # absent: every namespace
//	  deny: ["team-secret"]
//	clusterScoped: false        # cluster-scoped objects; true when absent
//	kinds:
//	  include: ["Role.rbac.authorization.k8s.io"]   # allowed, even if excluded
//	  exclude: ["Secret", "*.rbac.authorization.k8s.io"]
//	serviceAccounts:
//	  require: true             # a deployment without a ServiceAccount is refused
//	  allow: ["team-*/deployer"]
//	deletions: false            # nothing is ever deleted; true when absent
//	tunnel:                     # requests of people, for example with kubectl
//	  enabled: false            # true when absent
//	  readOnly: true
//	  namespaces:               # no cluster-scoped objects then
//	    allow: ["team-*"]
//	  exec: false               # exec, attach, port-forward, proxy, debug; true when absent
//	  secrets: false            # true when absent
//
// Kinds are filtered in this order: included kinds are allowed, excluded kinds are refused, all other kinds are allowed. To
// allow only some kinds, exclude "*" and include these. The rules are written as in [fleet.KindFilter]. The kind filter of the
// agent, which the server sends, and its built-in exclusions apply in addition: an object needs the permission of both.
//
// Restrictions are not lifted by accident. While an agent runs, the last policy stays in force when the file is not valid,
// is empty or is deleted. To lift all restrictions, write {}. Only an agent that starts without the file has no
// restrictions.
package ownerpolicy
