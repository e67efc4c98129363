package fleet

import "fmt"

// EngineMismatch says that a replica runs with another engine than its agent is enrolled with; "" if it does not.
func EngineMismatch(c Connection, a Agent) string {
	if c.EngineNamespace == a.EngineNamespace {
		return ""
	}
	name := func(namespace string) string {
		if namespace == "" {
			return "without Argo CD"
		}
		return fmt.Sprintf("with Argo CD in namespace %q", namespace)
	}
	return fmt.Sprintf("replica %s runs %s, and the agent is enrolled %s: it gets no deployments, and changes nothing, until both agree; apply the manifest of the agent again",
		c.Replica, name(c.EngineNamespace), name(a.EngineNamespace))
}
