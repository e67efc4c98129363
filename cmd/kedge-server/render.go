package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kedge-dev/kedge/internal/render/child"
	"github.com/kedge-dev/kedge/server"
)

func renderFlags(f *pflag.FlagSet, r *server.RenderConfig) {
	r.Program = child.Self()
	r.Output = 64 << 20
	f.DurationVar(&r.Timeout, "render-timeout", 30*time.Second, "timeout of one render")
	f.Var((*size)(&r.Memory), "render-memory", "memory limit of one render (default: 1Gi, or less if the machine has little memory)")
	f.Var((*size)(&r.Output), "render-output", "size limit of all objects of one render")
	f.IntVar(&r.Processes, "render-processes", 0, "number of concurrent renders (default: four per processor, or fewer if the memory is insufficient; a tenant gets at most a quarter of them)")
	f.StringSliceVar(&r.RequireSandbox, "require-sandbox", nil, "do not start unless the sandbox of renders has these parts: limits, namespaces, root, landlock, seccomp, or all (the default if no part is given)")
	f.Lookup("require-sandbox").NoOptDefVal = "all"
	f.BoolVar(&r.AllowWeakSandbox, "allow-weak-sandbox", false, "render Kustomize and Helm for several tenants even if the sandbox of renders is incomplete")
}

func gitFlags(f *pflag.FlagSet, g *server.GitResources) {
	g.Disk, g.TenantDisk, g.MinFree = 64<<30, 16<<30, 1<<30
	f.IntVar(&g.Processes, "git-processes", 0, "number of concurrent fetches, with two processes each (default: as many as the memory allows)")
	f.Var((*size)(&g.Memory), "git-memory", "memory limit of a git process (default: 512Mi, or less if the machine has little memory)")
	f.Var((*size)(&g.Disk), "git-disk", "disk space limit of the mirrors of all repositories")
	f.Var((*size)(&g.TenantDisk), "git-tenant-disk", "disk space limit of the mirrors of one tenant")
	f.Var((*size)(&g.MinFree), "git-min-free", "free disk space below which the server does not fetch")
}

// size is a flag in bytes, in the notation of Kubernetes: 512Mi, 1Gi.
type size int64

func (s *size) String() string { return resource.NewQuantity(int64(*s), resource.BinarySI).String() }

func (s *size) Set(text string) error {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 {
		return fmt.Errorf("%q is not a size such as 512Mi or 1Gi", text)
	}
	*s = size(q.Value())
	return nil
}

func (s *size) Type() string { return "size" }
