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
	f.DurationVar(&r.Timeout, "render-timeout", 30*time.Second, "how long one render may take")
	f.Var((*size)(&r.Memory), "render-memory", "how much memory one render may have (default: 1Gi, or less where there is less memory)")
	f.Var((*size)(&r.Output), "render-output", "how large the objects of one render may be together")
	f.IntVar(&r.Processes, "render-processes", 0, "how many renders go on at once (default: four for each processor, or as many as the memory holds; a tenant has at most a quarter of them)")
	f.StringSliceVar(&r.RequireSandbox, "require-sandbox", nil, "do not start unless renders are confined by these: limits, namespaces, root, landlock, seccomp, or all (the default when none is named)")
	f.Lookup("require-sandbox").NoOptDefVal = "all"
	f.BoolVar(&r.AllowWeakSandbox, "allow-weak-sandbox", false, "render Kustomize and Helm for several tenants although the sandbox of renders is incomplete")
}

func gitFlags(f *pflag.FlagSet, g *server.GitResources) {
	g.Disk, g.TenantDisk, g.MinFree = 64<<30, 16<<30, 1<<30
	f.IntVar(&g.Processes, "git-processes", 0, "how many repositories are fetched at once, with two processes each (default: as many as the memory holds)")
	f.Var((*size)(&g.Memory), "git-memory", "how much memory a process of git may have (default: 512Mi, or less where there is less memory)")
	f.Var((*size)(&g.Disk), "git-disk", "how much disk the mirrors of all repositories may take")
	f.Var((*size)(&g.TenantDisk), "git-tenant-disk", "how much disk the mirrors of one tenant's repositories may take")
	f.Var((*size)(&g.MinFree), "git-min-free", "free space of the disk below which nothing is fetched")
}

// size is a number of bytes on the command line, as Kubernetes writes them: 512Mi, 1Gi.
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
