package e2e_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// covers: G1
func TestPrivateRepositoriesOverHTTPSAndSSHNeedNoCredentialInTheCluster(t *testing.T) {
	t.Parallel()
	cluster, repo := testkit.SharedCluster(t), newRepo(t)
	web, err := repo.server.ServeTLS()
	if err != nil {
		t.Fatal(err)
	}
	shell, err := repo.server.ServeSSH()
	if err != nil {
		t.Fatal(err)
	}
	roots := filepath.Join(t.TempDir(), "roots.pem")
	overwrite(t, roots, string(web.CertPEM))
	s := &testServer{dir: t.TempDir(), args: []string{"--git-allow=https,ssh", "--git-allow-cidr=127.0.0.0/8"}, wrap: func(cmd *exec.Cmd) *exec.Cmd {
		cmd.Env = append(cmd.Environ(), "SSL_CERT_FILE="+roots)
		return cmd
	}}
	s.startAt(t, "127.0.0.1:0")
	d := s.tenantClient(t, "default")
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "no-git-credential"})

	password := "git-" + randomToken()
	repo.server.Protect(repo.name, map[string]string{"robot": password})
	private, public, err := gitserver.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	shell.Authorize(public)
	d.want(t, 201, "POST", "credentials", apiv1.CreateCredential{Name: "web", Kind: "https", Username: "robot", Secret: password})
	d.want(t, 201, "POST", "credentials", apiv1.CreateCredential{Name: "shell", Kind: "ssh", Secret: string(private), KnownHosts: string(shell.KnownHosts())})
	sources := map[string]string{"web": web.URL(repo.name), "shell": shell.URL(repo.name)}
	namespaces := map[string]string{}
	manifest := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: page}\ndata: {value: %s}\n"
	commit := repo.push(t, map[string]string{"cm.yaml": strings.ReplaceAll(manifest, "%s", "one")})
	for name, url := range sources {
		namespaces[name] = cluster.Namespace(t)
		bare := apiv1.CreateDeployment{Name: name, Namespace: namespaces[name], Source: apiv1.Source{RepoURL: url}}
		refused := d.want(t, 422, "POST", "deployments", bare)
		if !strings.Contains(string(refused.Body), "repoURL") {
			t.Errorf("%s without its credential is refused with %s", url, refused.Body)
		}
		d.want(t, 201, "POST", "repositories", apiv1.CreateRepository{URL: url, Credential: name})
		d.want(t, 201, "POST", "deployments", bare)
	}
	for name := range sources {
		d.await(t, name, healthyAt(commit, 1))
		shows(t, cluster, "one", "-n", namespaces[name], "get", "configmap", "page", "-o", "jsonpath={.data.value}")
	}
	next := repo.push(t, map[string]string{"cm.yaml": strings.ReplaceAll(manifest, "%s", "two-"+randomToken())})
	for name, url := range sources {
		d.look(t, url)
		d.await(t, name, healthyAt(next, 1))
	}

	places := clusterContents(t, cluster)
	places["files of the agent"] = filesBelow(t, filepath.Dir(filepath.Dir(a.flag(t, "token-file"))))
	places["log of the agent"], places["environment of the agent"] = a.Log(), strings.Join(a.pod.Env, "\n")+strings.Join(a.pod.Args, "\n")
	body := strings.Split(strings.TrimSpace(string(private)), "\n")[2] // a line of the key without the parts that all keys share
	for what, secret := range map[string]string{"password": password, "private key": body} {
		for place, text := range places {
			if strings.Contains(text, secret) {
				t.Errorf("the %s for Git is in %s", what, place)
			}
		}
	}
	// The search must find existing data: otherwise it proves nothing.
	for what, secret := range map[string]string{"the agent's token": a.secret(t), "what was applied": "two-"} {
		found := false
		for _, text := range places {
			found = found || strings.Contains(text, secret)
		}
		if !found {
			t.Errorf("the search does not find %s", what)
		}
	}
}

// clusterContents is everything in Secrets and ConfigMaps of a cluster, decoded and uncompressed, by where it is.
func clusterContents(t *testing.T, cluster *testkit.Cluster) map[string]string {
	t.Helper()
	var list struct {
		Items []struct {
			Kind     string
			Metadata struct{ Namespace, Name string }
			Data     map[string]string
		}
	}
	raw := cluster.Kubectl(t, "get", "secrets,configmaps", "-A", "-o", "json")
	if err := json.Unmarshal([]byte(raw), &list); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{"objects as they are": raw}
	for _, item := range list.Items {
		for key, value := range item.Data {
			data := []byte(value)
			if decoded, err := base64.StdEncoding.DecodeString(value); err == nil && item.Kind == "Secret" {
				data = decoded
			}
			out[strings.Join([]string{item.Kind, item.Metadata.Namespace, item.Metadata.Name, key}, " ")] = string(data) + uncompressed(data)
		}
	}
	return out
}

// uncompressed returns the uncompressed content of data, if any.
func uncompressed(data []byte) string {
	magic := []byte{0x28, 0xb5, 0x2f, 0xfd}
	at := bytes.Index(data, magic)
	if at < 0 {
		return ""
	}
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		return ""
	}
	defer decoder.Close()
	out, _ := decoder.DecodeAll(data[at:], nil) // content before an error counts, too
	return string(out)
}

// filesBelow is the content of all files below a folder.
func filesBelow(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		out.Write(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}
