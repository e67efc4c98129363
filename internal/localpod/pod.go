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

// Config says which Deployment to run, and where.
type Config struct {
	Kubectl    string // path of the program
	Kubeconfig string // of whoever installs; "" when the program knows it by itself
	Namespace  string
	Deployment string
	Binary     string   // stands in for the container's image
	Dir        string   // for the mounted files; has to exist
	ExtraArgs  []string // after those of the manifest
}

// Pod is a container's way of being started on this machine.
type Pod struct {
	cfg   Config
	Args  []string // of the manifest, with mount paths replaced by folders below Dir
	Env   []string
	token string // file of the ServiceAccount's token
	name  string // of the ServiceAccount
	spec  podSpec
}

// The parts of a Deployment that are needed here.
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

// Load reads the applied Deployment, writes its mounted files, and asks for a first token.
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

// Command is the process, not yet started. It ends with ctx.
func (p *Pod) Command(ctx context.Context) *exec.Cmd {
	args := slices.Concat(p.Args, []string{"--kubeconfig=" + p.kubeconfig()}, p.cfg.ExtraArgs)
	cmd := exec.CommandContext(ctx, p.cfg.Binary, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.cfg.Dir}, p.Env...)
	return cmd
}

func (p *Pod) environment(vars []envVar) ([]string, error) {
	fields := map[string]string{
		// As a ReplicaSet names its pods: two agents of one cluster have different names.
		"metadata.name":      p.cfg.Deployment + "-" + strings.ToLower(rand.Text()[:5]),
		"metadata.namespace": p.cfg.Namespace,
	}
	var out []string
	for _, v := range vars {
		value := v.Value
		if v.ValueFrom != nil {
			if v.ValueFrom.FieldRef == nil {
				return nil, fmt.Errorf("environment variable %s: only values and fieldRefs are known here", v.Name)
			}
			var ok bool
			if value, ok = fields[v.ValueFrom.FieldRef.FieldPath]; !ok {
				return nil, fmt.Errorf("environment variable %s: field %s is not known here", v.Name, v.ValueFrom.FieldRef.FieldPath)
			}
		}
		out = append(out, v.Name+"="+value)
	}
	return out, nil
}

// localArgs replaces mount paths inside arguments by the folders that stand in for them.
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

// errNotFound says that the cluster holds no such object.
var errNotFound = errors.New("it does not exist")

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
