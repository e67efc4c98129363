package gitserver

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
)

// Grow gives the branch a history like that of a large repository: a first commit with files manifests in
// folders of ten, and further commits that change one file each, until there are commits. It pushes nothing.
// The content is the same in every run, except for the times of commits.
func (r *Repo) Grow(ctx context.Context, files, commits int) (string, error) {
	var in bytes.Buffer
	w := bufio.NewWriter(&in)
	header := func(i int) {
		fmt.Fprintf(w, "commit refs/heads/%s\nmark :%d\ncommitter Kedge <kedge@localhost> %d +0000\ndata 1\nx\n", r.branch, i, 1_700_000_000+i)
	}
	write := func(file, version int) {
		content := manifestOf(file, version)
		fmt.Fprintf(w, "M 100644 inline %s\ndata %d\n%s\n", GrownFile(file), len(content), content)
	}
	header(1)
	if head := r.Head(); head != "" {
		fmt.Fprintf(w, "from %s\n", head)
	}
	for i := range files {
		write(i, 0)
	}
	for i := 2; i <= commits; i++ {
		header(i)
		write(i*7919%files, i) // a prime, so that every file changes
	}
	fmt.Fprintf(w, "get-mark :%d\ndone\n", commits)
	if err := w.Flush(); err != nil {
		return "", err
	}
	return r.importStream(ctx, &in)
}

// GrownFile returns the path of a file from Grow.
func GrownFile(i int) string { return fmt.Sprintf("apps/%04d/manifest-%d.yaml", i/10, i%10) }

// manifestOf returns a Deployment of typical size.
func manifestOf(file, version int) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata:
  name: app-%[1]d
  labels:
    app.kubernetes.io/name: app-%[1]d
    app.kubernetes.io/version: "%[2]d"
spec:
  replicas: %[3]d
  selector:
    matchLabels:
      app.kubernetes.io/name: app-%[1]d
  template:
    metadata:
      labels:
        app.kubernetes.io/name: app-%[1]d
      annotations:
        checksum/config: %08[4]x%08[5]x%08[6]x
    spec:
      containers:
        - name: app
          image: registry.example.com/team-%[3]d/app-%[1]d:1.%[2]d.0
          ports:
            - containerPort: 8080
          resources:
            requests: {cpu: %[3]dm, memory: %[3]dMi}
          readinessProbe:
            httpGet: {path: /healthz, port: 8080}
`, file, version, file%7+1, uint32(file*2654435761+version), uint32(version*2246822519+file), uint32(file*3266489917))
}
