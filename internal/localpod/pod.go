package localpod

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Config configures a Pod.
type Config struct {
	Kubectl    string // path of the program
	Kubeconfig string // of the user who installs the agent; "" means the default of kubectl
	Namespace  string
	Deployment string
	Binary     string   // replaces the image of the container
	Dir        string   // for the mounted files; must exist
	ExtraArgs  []string // appended to those of the manifest
}

// Pod is the container of a Deployment as a local process.
type Pod struct {
	cfg   Config
	Args  []string // of the manifest, with mount paths replaced by folders in Dir
	Env   []string
	token string // file of the ServiceAccount's token
	name  string // of the ServiceAccount
	spec  podSpec
}

// deployment has the fields of a Deployment that are used.
type deployment struct {
	Spec struct {
		Template struct {
			Spec podSpec `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

type podSpec struct {
	ServiceAccountName string      `json:"serviceAccountName"`
	Containers         []container `json:"containers"`
	Volumes            []volume    `json:"volumes"`
}

type container struct {
	Args         []string `json:"args"`
	Env          []envVar `json:"env"`
	VolumeMounts []mount  `json:"volumeMounts"`
}

type envVar struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	ValueFrom *struct {
		FieldRef *struct {
			FieldPath string `json:"fieldPath"`
		} `json:"fieldRef"`
	} `json:"valueFrom"`
}

type mount struct {
	Name      string `json:"name"`
	MountPath string `json:"mountPath"`
}

type volume struct {
	Name   string `json:"name"`
	Secret *struct {
		SecretName string `json:"secretName"`
	} `json:"secret"`
	ConfigMap *struct {
		Name     string `json:"name"`
		Optional bool   `json:"optional"`
	} `json:"configMap"`
}

// Load reads the applied Deployment, writes its mounted files and requests the first token.
func Load(ctx context.Context, cfg Config) (*Pod, error) {
	p := &Pod{cfg: cfg}
	var d deployment
	if err := p.get(ctx, &d, "deployment", cfg.Deployment); err != nil {
		return nil, err
	}
	spec := d.Spec.Template.Spec
	if len(spec.Containers) != 1 {
		return nil, fmt.Errorf("deployment %s/%s has %d containers, not one", cfg.Namespace, cfg.Deployment, len(spec.Containers))
	}
	p.name, p.spec = spec.ServiceAccountName, spec
	c := spec.Containers[0]
	folders, err := p.mountAll(ctx, c.VolumeMounts, spec.Volumes)
	if err != nil {
		return nil, err
	}
	p.Args = localArgs(c.Args, folders)
	if p.Env, err = p.environment(c.Env); err != nil {
		return nil, err
	}
	return p, p.writeKubeconfig(ctx)
}

// Command returns the command of the process, which is not started yet. The process ends with ctx.
func (p *Pod) Command(ctx context.Context) *exec.Cmd {
	args := slices.Concat(p.Args, []string{"--kubeconfig=" + p.kubeconfig()}, p.cfg.ExtraArgs)
	cmd := exec.CommandContext(ctx, p.cfg.Binary, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.cfg.Dir}, p.Env...)
	return cmd
}

func (p *Pod) environment(vars []envVar) ([]string, error) {
	fields := map[string]string{
		// Like the names that a ReplicaSet gives its pods.
		"metadata.name":      p.cfg.Deployment + "-" + strings.ToLower(rand.Text()[:5]),
		"metadata.namespace": p.cfg.Namespace,
	}
	var out []string
	for _, v := range vars {
		value := v.Value
		if v.ValueFrom != nil {
			if v.ValueFrom.FieldRef == nil {
				return nil, fmt.Errorf("environment variable %s: only values and fieldRefs are supported", v.Name)
			}
			var ok bool
			if value, ok = fields[v.ValueFrom.FieldRef.FieldPath]; !ok {
				return nil, fmt.Errorf("environment variable %s: field %s is not supported", v.Name, v.ValueFrom.FieldRef.FieldPath)
			}
		}
		out = append(out, v.Name+"="+value)
	}
	return out, nil
}

// localArgs replaces mount paths in arguments by local folders.
func localArgs(args []string, folders map[string]string) []string {
	out := slices.Clone(args)
	for i := range out {
		for mountPath, folder := range folders {
			if flag, value, ok := strings.Cut(out[i], "="); ok && within(value, mountPath) {
				out[i] = flag + "=" + folder + strings.TrimPrefix(value, mountPath)
			} else if within(out[i], mountPath) {
				out[i] = folder + strings.TrimPrefix(out[i], mountPath)
			}
		}
	}
	return out
}

func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}

// errNotFound means that the object does not exist in the cluster.
var errNotFound = errors.New("the object does not exist")

func (p *Pod) get(ctx context.Context, out any, kind, name string) error {
	raw, err := p.kubectl(ctx, "get", kind, name, "-o", "json", "--ignore-not-found")
	if err == nil && len(raw) == 0 {
		err = errNotFound
	}
	if err != nil {
		return fmt.Errorf("reading %s %s/%s: %w", kind, p.cfg.Namespace, name, err)
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("decoding %s %s/%s: %w", kind, p.cfg.Namespace, name, err)
	}
	return nil
}

func (p *Pod) kubectl(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, p.cfg.Kubectl, append([]string{"-n", p.cfg.Namespace}, args...)...)
	if p.cfg.Kubeconfig != "" {
		cmd.Args = slices.Insert(cmd.Args, 1, "--kubeconfig", p.cfg.Kubeconfig)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("running kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}
