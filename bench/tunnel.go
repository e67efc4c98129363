package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
)

// b14 is the agent and the namespace of the benchmark.
const b14 = "b14"

// tunnelBench sends the same requests directly and through the tunnel, over warm connections.
type tunnelBench struct {
	*rigging
	kube            dynamic.Interface
	direct, through kubeEnd
}

// kubeEnd is one way to an API server.
type kubeEnd struct {
	client *http.Client
	url    string
	token  string
}

// benchTunnel is B14: requests through the tunnel beside the same requests to the API server.
func benchTunnel(ctx context.Context, r *rigging) error {
	b, err := r.newTunnelBench(ctx)
	if err != nil {
		return err
	}
	if err := b.fill(ctx, "small", 1, 10); err != nil {
		return err
	}
	if err := b.fill(ctx, "list", 10, 100<<10); err != nil { // 1 MB
		return err
	}
	if err := b.fill(ctx, "bulk", of(r.options, 5, 60, 120), 900<<10); err != nil {
		return err
	}
	runs := of(r.options, 10, 300, 1000)
	if err := b.compare(ctx, "get", runs, "/configmaps/small-0"); err != nil {
		return err
	}
	if err := b.compare(ctx, "list_1mb", runs/3+1, "/configmaps?labelSelector=bench%3Dlist"); err != nil {
		return err
	}
	if err := b.watch(ctx, of(r.options, 5, 100, 300)); err != nil {
		return err
	}
	if err := b.atOnce(ctx, 100); err != nil {
		return err
	}
	return b.download(ctx, of(r.options, 1, 5, 10))
}

func (r *rigging) newTunnelBench(ctx context.Context) (*tunnelBench, error) {
	kube, err := r.kube(ctx)
	if err != nil {
		return nil, err
	}
	server, err := r.server(ctx, "--tls-host=localhost", "--api-rate=100000")
	if err != nil {
		return nil, err
	}
	c := rig.Cluster{Kubectl: filepath.Join(r.kubeBin, "kubectl"), Kubeconfig: r.cluster.Kubeconfig()}
	if _, err := server.Install(ctx, c, apiv1.EnrollAgent{Name: b14, Tunnel: true}); err != nil {
		return nil, err
	}
	if _, err := r.runAgent(ctx, c, b14); err != nil {
		return nil, err
	}
	if _, err := c.Run(ctx, "", "create", "clusterrolebinding", b14, "--clusterrole=cluster-admin", "--group=kedge:tenant:default:admin"); err != nil {
		return nil, err
	}
	var token apiv1.NewAPIToken
	if err := server.Call(ctx, http.MethodPost, rig.TenantPath+"/tokens", apiv1.CreateAPIToken{Name: b14, Role: "admin"}, &token); err != nil {
		return nil, err
	}
	if err := server.Call(ctx, http.MethodPost, rig.TenantPath+"/access-rules", apiv1.CreateAccessRule{
		Name: b14, Subjects: []apiv1.AccessSubject{{Kind: "token", Name: b14}}, AllAgents: true,
	}, nil); err != nil {
		return nil, err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", r.cluster.Kubeconfig())
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	b := &tunnelBench{
		rigging: r, kube: kube, direct: kubeEnd{client: client, url: strings.TrimRight(cfg.Host, "/")},
		through: kubeEnd{client: server.HTTP, url: server.URL + "/api/v1" + rig.TenantPath + "/agents/" + b14 + "/kube", token: token.Token},
	}
	if err := makeNamespace(ctx, kube, b14); err != nil {
		return nil, err
	}
	return b, (&yard{pusher: &pusher{name: b14, server: server}}).connected(ctx)
}

// fill creates n ConfigMaps of a size.
func (b *tunnelBench) fill(ctx context.Context, name string, n, size int) error {
	for i := range n {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprintf("%s-%d", name, i), "labels": map[string]any{"bench": name}},
			"data": map[string]any{"value": strings.Repeat("x", size)},
		}}
		if _, err := b.kube.Resource(configMaps).Namespace(b14).Create(ctx, o, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// open sends a request below the namespace of the benchmark.
func (e kubeEnd) open(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url+"/api/v1/namespaces/"+b14+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if e.token != "" {
		req.Header.Set("Authorization", "Bearer "+e.token)
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s: %s: %s", path, resp.Status, text)
	}
	return resp.Body, nil
}

// get returns how long a complete request took, and its bytes.
func (e kubeEnd) get(ctx context.Context, path string) (time.Duration, int64, error) {
	began := time.Now()
	body, err := e.open(ctx, path)
	if err != nil {
		return 0, 0, err
	}
	defer body.Close()
	n, err := io.Copy(io.Discard, body)
	return time.Since(began), n, err
}

// compare measures a request both ways, in turns.
func (b *tunnelBench) compare(ctx context.Context, name string, runs int, path string) error {
	var direct, through samples
	for i := range runs + 3 { // the first ones open connections
		d, _, err := b.direct.get(ctx, path)
		if err != nil {
			return err
		}
		t, _, err := b.through.get(ctx, path)
		if err != nil {
			return err
		}
		if i >= 3 {
			direct, through = append(direct, d), append(through, t)
		}
	}
	return b.reportAll(
		through.percentile("B14."+name+".p50", 50, direct.at(50)), through.percentile("B14."+name+".p99", 99, direct.at(99)),
		single("B14."+name+".added.p50", ms(through.at(50)-direct.at(50)), "ms"), single("B14."+name+".added.p99", ms(through.at(99)-direct.at(99)), "ms"),
	)
}

// watch measures how much later an event arrives through the tunnel.
func (b *tunnelBench) watch(ctx context.Context, runs int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	const path = "/configmaps?watch=true&fieldSelector=metadata.name%3Dsmall-0"
	arrivals := [2]chan time.Time{make(chan time.Time, runs+1), make(chan time.Time, runs+1)}
	for i, end := range []kubeEnd{b.direct, b.through} {
		body, err := end.open(ctx, path)
		if err != nil {
			return err
		}
		go func() {
			defer body.Close()
			lines := bufio.NewScanner(body)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				arrivals[i] <- time.Now()
			}
		}()
	}
	for _, c := range arrivals {
		<-c // the object as it is
	}
	var late samples
	for i := range runs {
		patch, err := json.Marshal(map[string]any{"data": map[string]any{"value": fmt.Sprint(i)}})
		if err != nil {
			return err
		}
		if _, err := b.kube.Resource(configMaps).Namespace(b14).Patch(ctx, "small-0", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
		direct, through := <-arrivals[0], <-arrivals[1]
		late = append(late, max(0, through.Sub(direct)))
	}
	return b.reportAll(late.percentile("B14.watch.added.p50", 50, 0), late.percentile("B14.watch.added.p99", 99, 0))
}

// atOnce measures concurrent requests.
func (b *tunnelBench) atOnce(ctx context.Context, n int) error {
	measure := func(e kubeEnd) (time.Duration, error) {
		began := time.Now()
		var all sync.WaitGroup
		errs := make([]error, n)
		for i := range n {
			all.Go(func() { _, _, errs[i] = e.get(ctx, "/configmaps/small-0") })
		}
		all.Wait()
		for _, err := range errs {
			if err != nil {
				return 0, err
			}
		}
		return time.Since(began), nil
	}
	var direct, through samples
	for range 5 {
		d, err := measure(b.direct)
		if err != nil {
			return err
		}
		t, err := measure(b.through)
		if err != nil {
			return err
		}
		direct, through = append(direct, d), append(through, t)
	}
	return b.report(through.percentile(fmt.Sprintf("B14.%d_at_once", n), 50, direct.at(50)))
}

// download measures the throughput of a large list, in turns. The first one of each way fills caches.
func (b *tunnelBench) download(ctx context.Context, runs int) error {
	var speeds [2]float64
	for run := range runs + 1 {
		for i, end := range []kubeEnd{b.direct, b.through} {
			took, n, err := end.get(ctx, "/configmaps?labelSelector=bench%3Dbulk")
			if err != nil {
				return err
			}
			if run > 0 {
				speeds[i] = max(speeds[i], float64(n)/1e6/took.Seconds())
			}
		}
	}
	res := single("B14.download", speeds[1], "MB/s")
	res.Floor = speeds[0]
	return b.report(res)
}
