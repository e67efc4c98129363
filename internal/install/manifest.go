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

// LabelInstall is a label of every object of an installation. Its value is the name of the agent.
const LabelInstall = "kedge.dev/install"

// Names of objects in the agent's own namespace, and paths of files in the pod.
const (
	agentName   = "kedge-agent" // ServiceAccount, Deployment, Role, container
	tokenSecret = "kedge-agent-token"
	caSecret    = "kedge-agent-ca"
	tokenKey    = "token"
	// registrationKey is the key of the token in a Secret of a user.
	registrationKey = "registrationToken"
	caKey           = "ca.crt"
	tokenDir        = "/var/run/secrets/kedge/token"
	caDir           = "/var/run/secrets/kedge/ca"
	policyDir       = "/etc/kedge/policy"
	maxNameLength   = 63
	maxReplicas     = 9
)

// Options are the options of a manifest.
type Options struct {
	Agent      fleet.Agent
	TenantName string
	// ServerAddress is the address of the server for the agent: grpc://, grpcs://, ws:// or wss://.
	ServerAddress string
	// Token is the agent's token. It is required if WithSecret is set.
	Token string
	// CAPEM is the certificate of the private CA of the server. It is ignored without TLS; empty means that the
	// authorities of the image are used.
	CAPEM []byte
	Image string
	// AgentNamespace is the namespace of the agent; default Namespace(TenantName, Agent.Name).
	AgentNamespace string
	// Replicas is the number of pods; default 1.
	Replicas int
	// RegistrationSecret is a Secret in the namespace of the agent that a user creates. Its key registrationToken holds the
	// token; "" means the Secret of the manifest.
	RegistrationSecret string
	// WithSecret includes the token. A manifest without it is for upgrades and for uninstalling.
	WithSecret bool
	// WithoutDeployment omits the Deployment, for an agent that runs outside of its cluster. Image is not required then.
	WithoutDeployment bool
	// Admission adds an admission policy; nil for none.
	Admission *Admission
}

// Namespace returns the default namespace of an agent. Agents with the same name and different tenants have different
// namespaces.
func Namespace(tenant, agent string) string {
	if tenant == "" || tenant == fleet.DefaultTenant {
		return fit(agentName + "-" + agent)
	}
	// A hash instead of the tenant's name, so that "a-b" and "c" differ from "a" and "b-c".
	sum := sha256.Sum256([]byte(tenant))
	return fit(agentName + "-" + agent + "-" + hex.EncodeToString(sum[:3]))
}

// fit shortens a name to the maximum of Kubernetes. A hash keeps long names unique.
func fit(name string) string {
	if len(name) <= maxNameLength {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	const hash = 8
	return strings.TrimRight(name[:maxNameLength-hash-1], "-") + "-" + hex.EncodeToString(sum[:hash/2])
}

// Manifest returns YAML for kubectl apply and kubectl delete. It fails with a *fleet.InvalidError when an option is not
// valid.
func Manifest(o Options) ([]byte, error) {
	o.AgentNamespace = cmp.Or(o.AgentNamespace, Namespace(o.TenantName, o.Agent.Name))
	if !needsCA(o.ServerAddress) {
		o.CAPEM = nil
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	objects := []runtime.Object{o.namespace(), o.serviceAccount(agentName)}
	objects = append(objects, o.rbac()...)
	if o.Agent.Tunnel {
		objects = append(objects, o.tunnel()...)
	}
	if o.Admission != nil {
		objects = append(objects, o.admission()...)
	}
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
		return fleet.Invalid("replicas", "must be between 1 and %d: one replica leads, the others are standbys", maxReplicas)
	}
	if o.Admission != nil {
		if err := o.Admission.check(); err != nil {
			return err
		}
	}
	if o.WithSecret && o.Token == "" {
		return fmt.Errorf("generating the manifest of agent %q: the token is missing", o.Agent.Name)
	}
	if o.Agent.EngineNamespace == o.AgentNamespace {
		return fleet.Invalid("engineNamespace", "%q is the namespace of the agent itself: Argo CD needs another one", o.AgentNamespace)
	}
	if slices.Contains(o.Agent.Namespaces, o.AgentNamespace) {
		return fleet.Invalid("namespaces", "%q is the namespace of the agent itself, which an agent does not manage: remove it", o.AgentNamespace)
	}
	return nil
}

// CheckServerAddress returns an error when an address of the server for agents is not valid.
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
		return fleet.Invalid("serverAddress", "must not contain a user, query or fragment: the token is in a file")
	}
	return nil
}

// imageRE matches names that container runtimes accept, approximately.
var imageRE = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._:/@-]{0,499}$`)

// checkImage checks that there is a valid image. There is no default: until Kedge publishes an image, somebody else could
// register its name and take over every cluster that pulls it.
func (o Options) checkImage() error {
	switch {
	case o.WithoutDeployment:
		return nil
	case o.Image == "":
		return fleet.Invalid("image", "is required because the server has no default: Kedge does not publish an agent image yet. Build one that contains kedge-agent "+
			"and set it here, or start the server with --agent-image. For an agent outside of the cluster, set withoutDeployment")
	default:
		return CheckImage(o.Image)
	}
}

// CheckImage returns an error when the name of an image is not valid.
func CheckImage(image string) error {
	if !imageRE.MatchString(image) {
		return fleet.Invalid("image", "%q is not a valid container image, such as registry.example.com/kedge-agent:v1", image)
	}
	return nil
}

func needsCA(address string) bool {
	return strings.HasPrefix(address, "grpcs://") || strings.HasPrefix(address, "wss://")
}

// encode returns the objects as a YAML stream, without fields that only the API server sets.
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

// dropEmpty removes fields that typed objects encode although they are not set, such as creationTimestamp.
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
