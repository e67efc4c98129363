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

// The discovery client of client-go would link every API type, so that this file reads the few documents that are needed.

// kubeVersion returns the Kubernetes version of the cluster.
func kubeVersion(ctx context.Context, cluster *rest.Config) (string, error) {
	var info apiversion.Info
	err := getJSON(ctx, cluster, "version", "application/json", &info)
	return info.GitVersion, err
}

// aggregated requests all groups with their kinds in one response. An old API server responds with only the groups.
const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"

// groups has the fields of both responses that are used.
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

// apiVersions returns the API versions of the cluster in the form that charts use: group/version and group/version/Kind. It
// returns either all of them or an error.
func apiVersions(ctx context.Context, cluster *rest.Config) ([]string, error) {
	var out []string
	for _, root := range []string{"api", "apis"} {
		var found groups
		if err := getJSON(ctx, cluster, root, aggregated, &found); err != nil {
			return nil, err
		}
		if name := found.stale(); name != "" {
			return nil, fmt.Errorf("reading /%s of the API server: the API that serves %s is unavailable", root, name)
		}
		out = append(out, found.list()...)
	}
	return out, nil
}

// stale returns a group version whose aggregated API is unavailable, or "". Its kinds may be outdated or missing, and objects
// that charts create only for these kinds would be pruned.
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

// groupVersion returns the name of a group version as charts use it. The core group has no name.
func groupVersion(group, version string) string {
	if group == "" {
		return version
	}
	return group + "/" + version
}

// maxDiscovery bounds one response. A cluster with many hundreds of CustomResourceDefinitions has a few MiB.
const maxDiscovery = 32 << 20

// checkReady fails while the API server is not ready: it serves requests before it knows all kinds. It counts as ready if
// the agent may not read /readyz.
func checkReady(ctx context.Context, cluster *rest.Config) error {
	resp, err := get(ctx, cluster, "readyz", "*/*")
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("reading /readyz of the API server: status %s", resp.Status)
	}
	return nil
}

// getJSON reads one JSON document of the API server.
func getJSON(ctx context.Context, cluster *rest.Config, path, accept string, into any) error {
	resp, err := get(ctx, cluster, path, accept)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("reading /%s of the API server: status %s", path, resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxDiscovery)).Decode(into); err != nil {
		return fmt.Errorf("reading /%s of the API server: %w", path, err)
	}
	return nil
}

func get(ctx context.Context, cluster *rest.Config, path, accept string) (*http.Response, error) {
	base, _, err := rest.DefaultServerUrlFor(cluster)
	if err != nil {
		return nil, fmt.Errorf("determining the address of the API server: %w", err)
	}
	client, err := rest.HTTPClientFor(cluster)
	if err != nil {
		return nil, fmt.Errorf("preparing a request to the API server: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath(path).String(), nil)
	if err != nil {
		return nil, fmt.Errorf("preparing a request to the API server: %w", err)
	}
	req.Header.Set("Accept", accept)
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("sending a request to the API server: %w", err)
	}
	return resp, nil
}
