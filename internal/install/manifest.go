package install

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// LabelInstall is on every object of an installation; its value is the name of the agent.
const LabelInstall = "kedge.dev/install"

// Names of objects in the agent's own namespace, and where the pod finds its files.
const (
	agentName     = "kedge-agent" // ServiceAccount, Deployment, Role, container
	tokenSecret   = "kedge-agent-token"
	caSecret      = "kedge-agent-ca"
	tokenKey      = "token"
	caKey         = "ca.crt"
	tokenDir      = "/var/run/secrets/kedge/token"
	caDir         = "/var/run/secrets/kedge/ca"
	policyDir     = "/etc/kedge/policy"
	maxNameLength = 63
	maxReplicas   = 9
)

// Options says what to install.
type Options struct {
	Agent      fleet.Agent
	TenantName string
	// ServerAddress is where the agent connects to: grpc://, grpcs://, ws:// or wss://.
	ServerAddress string
	// Token is the agent's token; needed exactly when WithSecret is set.
	Token string
	// CAPEM is the certificate of a private CA that signed the server's certificate. It is used
	// only when ServerAddress has TLS; empty means that the CAs of the image are enough.
	CAPEM []byte
	Image string
	// AgentNamespace is where the agent lives; default Namespace(TenantName, Agent.Name).
	AgentNamespace string
	// Replicas is how many pods there are; one of them leads. 1 when zero.
	Replicas int
	// WithSecret includes the token. Without it the manifest serves to upgrade and to uninstall.
	WithSecret bool
	// WithoutDeployment leaves out the Deployment, for an agent that runs outside of its cluster. No
	// image is needed then.
	WithoutDeployment bool
}

// Namespace is where an agent lives unless told otherwise. Agents of one name but of different
// tenants get different ones.
func Namespace(tenant, agent string) string {
	if tenant == "" || tenant == fleet.DefaultTenant {
		return fit(agentName + "-" + agent)
	}
	// A hash and not the tenant's name: "a-b" and "c" must not meet "a" and "b-c".
	sum := sha256.Sum256([]byte(tenant))
	return fit(agentName + "-" + agent + "-" + hex.EncodeToString(sum[:3]))
}

// fit shortens a name to what Kubernetes allows for a namespace, still telling long ones apart.
func fit(name string) string {
	if len(name) <= maxNameLength {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	const hash = 8
	return strings.TrimRight(name[:maxNameLength-hash-1], "-") + "-" + hex.EncodeToString(sum[:hash/2])
}

// Manifest returns YAML for kubectl apply and kubectl delete. Mistakes in the options that a user
// can make are a *fleet.InvalidError.
func Manifest(o Options) ([]byte, error) {
	o.AgentNamespace = cmp.Or(o.AgentNamespace, Namespace(o.TenantName, o.Agent.Name))
	if !needsCA(o.ServerAddress) {
		o.CAPEM = nil
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	objects := []runtime.Object{o.namespace(), o.serviceAccount()}
	objects = append(objects, o.rbac()...)
	if o.WithSecret {
		objects = append(objects, o.tokenSecret())
	}
	if len(o.CAPEM) > 0 {
		objects = append(objects, o.caSecret())
	}
	if !o.WithoutDeployment {
		objects = append(objects, o.deployment())
	}
	return encode(objects)
}

func (o Options) check() error {
	if err := CheckServerAddress(o.ServerAddress); err != nil {
		return err
	}
	if err := o.checkImage(); err != nil {
		return err
	}
	if o.Replicas < 0 || o.Replicas > maxReplicas {
		return fleet.Invalid("replicas", "must be between 1 and %d: one replica does the work, the others wait to take over", maxReplicas)
	}
	if o.WithSecret && o.Token == "" {
		return fmt.Errorf("making the manifest of agent %q: no token given", o.Agent.Name)
	}
	if slices.Contains(o.Agent.Namespaces, o.AgentNamespace) {
		return fleet.Invalid("namespaces", "%q is where the agent itself lives, and it never manages its own installation: leave it out", o.AgentNamespace)
	}
	return nil
}

// CheckServerAddress says what is wrong with an address that agents shall connect to.
func CheckServerAddress(address string) error {
	const want = "must look like grpcs://host:port (or grpc://, ws://, wss://)"
	u, err := url.Parse(address)
	if err != nil {
		return fleet.Invalid("serverAddress", "%s", want)
	}
	if !slices.Contains([]string{"grpc", "grpcs", "ws", "wss"}, u.Scheme) || u.Hostname() == "" {
		return fleet.Invalid("serverAddress", "%q %s", address, want)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fleet.Invalid("serverAddress", "must hold no user, query or fragment: the token travels in a file")
	}
	return nil
}

// imageRE is what a container runtime accepts, roughly: enough to catch a mistake before a pod does.
var imageRE = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._:/@-]{0,499}$`)

// checkImage refuses a manifest that no cluster could run. There is no default: whoever registered
// the name of an image that nobody has published would own every cluster that pulls it.
func (o Options) checkImage() error {
	switch {
	case o.WithoutDeployment:
		return nil
	case o.Image == "":
		return fleet.Invalid("image", "no image is given and the server has no default: Kedge publishes no agent image yet, so build one that holds kedge-agent "+
			"and name it here, or start the server with --agent-image; withoutDeployment makes a manifest for an agent that runs outside of the cluster")
	default:
		return CheckImage(o.Image)
	}
}

// CheckImage says what is wrong with the name of an image.
func CheckImage(image string) error {
	if !imageRE.MatchString(image) {
		return fleet.Invalid("image", "%q is not the name of a container image, such as registry.example.com/kedge-agent:v1", image)
	}
	return nil
}

func needsCA(address string) bool {
	return strings.HasPrefix(address, "grpcs://") || strings.HasPrefix(address, "wss://")
}

// encode writes the objects as one YAML stream, without what only a server fills in.
func encode(objects []runtime.Object) ([]byte, error) {
	var out bytes.Buffer
	for i, obj := range objects {
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return nil, fmt.Errorf("encoding %T: %w", obj, err)
		}
		delete(u, "status")
		dropEmpty(u)
		text, err := yaml.Marshal(u)
		if err != nil {
			return nil, fmt.Errorf("encoding %T: %w", obj, err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}

// dropEmpty removes what typed objects write although it is not set: creationTimestamp, spec.
func dropEmpty(m map[string]any) {
	for k, v := range m {
		switch v := v.(type) {
		case nil:
			delete(m, k)
		case map[string]any:
			if dropEmpty(v); len(v) == 0 {
				delete(m, k)
			}
		}
	}
}
