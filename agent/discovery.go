package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
)

// The discovery client would link every API type there is, so the API server is asked for the little that
// is needed.

// kubeVersion is the version of the cluster.
func kubeVersion(ctx context.Context, cluster *rest.Config) (string, error) {
	var info apiversion.Info
	err := ask(ctx, cluster, "version", "application/json", &info)
	return info.GitVersion, err
}

// aggregated asks for all groups with their kinds in one answer; an API server that is too old for that
// answers with the groups alone.
const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"

// groups is what is read of either answer.
type groups struct {
	Items []struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Versions []struct {
			Version   string `json:"version"`
			Freshness string `json:"freshness"`
			Resources []struct {
				ResponseKind struct {
					Kind string `json:"kind"`
				} `json:"responseKind"`
			} `json:"resources"`
		} `json:"versions"`
	} `json:"items"`
	Groups []struct {
		Versions []struct {
			GroupVersion string `json:"groupVersion"`
		} `json:"versions"`
	} `json:"groups"`
	Versions []string `json:"versions"` // of the core group
}

// apiVersions lists what the cluster serves as charts ask for it: group/version and group/version/Kind. A
// chart must not be told half of it, so an error means that nothing is known.
func apiVersions(ctx context.Context, cluster *rest.Config) ([]string, error) {
	var out []string
	for _, root := range []string{"api", "apis"} {
		var answer groups
		if err := ask(ctx, cluster, root, aggregated, &answer); err != nil {
			return nil, err
		}
		if name := answer.stale(); name != "" {
			return nil, fmt.Errorf("reading what the API server answers for /%s: %s is served by an API that is down", root, name)
		}
		out = append(out, answer.list()...)
	}
	return out, nil
}

// stale names a group version that the API server could not ask its own API for, "" when there is none. Its kinds
// may be old or missing: objects that a chart guards by them would be pruned because an API was down.
func (g groups) stale() string {
	for _, group := range g.Items {
		for _, v := range group.Versions {
			if v.Freshness == "Stale" {
				return groupVersion(group.Metadata.Name, v.Version)
			}
		}
	}
	return ""
}

func (g groups) list() []string {
	out := append([]string(nil), g.Versions...)
	for _, group := range g.Groups {
		for _, v := range group.Versions {
			out = append(out, v.GroupVersion)
		}
	}
	for _, group := range g.Items {
		for _, v := range group.Versions {
			name := groupVersion(group.Metadata.Name, v.Version)
			out = append(out, name)
			for _, r := range v.Resources {
				if r.ResponseKind.Kind != "" {
					out = append(out, name+"/"+r.ResponseKind.Kind)
				}
			}
		}
	}
	return out
}

// groupVersion names a version of a group as charts do; the core group has no name.
func groupVersion(group, version string) string {
	if group == "" {
		return version
	}
	return group + "/" + version
}

// maxDiscovery bounds one answer: a cluster of many hundreds of definitions has a few MiB.
const maxDiscovery = 32 << 20

// ready fails while the API server says that it has not come up: it answers before it knows all of its kinds. One that
// may not be asked counts as ready.
func ready(ctx context.Context, cluster *rest.Config) error {
	resp, err := get(ctx, cluster, "readyz", "*/*")
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("asking the API server whether it is ready: it answers with status %s", resp.Status)
	}
	return nil
}

// ask reads one JSON answer of the API server.
func ask(ctx context.Context, cluster *rest.Config, path, accept string, into any) error {
	resp, err := get(ctx, cluster, path, accept)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("asking the API server for /%s: it answers with status %s", path, resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxDiscovery)).Decode(into); err != nil {
		return fmt.Errorf("reading what the API server answers for /%s: %w", path, err)
	}
	return nil
}

func get(ctx context.Context, cluster *rest.Config, path, accept string) (*http.Response, error) {
	base, _, err := rest.DefaultServerUrlFor(cluster)
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	client, err := rest.HTTPClientFor(cluster)
	if err != nil {
		return nil, fmt.Errorf("preparing to ask the API server: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath(path).String(), nil)
	if err != nil {
		return nil, fmt.Errorf("preparing to ask the API server: %w", err)
	}
	req.Header.Set("Accept", accept)
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking the API server: %w", err)
	}
	return resp, nil
}
