package main

import (
	"context"
	"net/http"
	"os"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
)

// enroll makes n agents, with labels unless that is nil, and returns the folders with their tokens.
func (r *rigging) enroll(ctx context.Context, s *station, n int, labels func(i int) map[string]string) ([]string, error) {
	dirs, file, err := r.tokenDirs(n)
	if err != nil {
		return nil, err
	}
	return dirs, s.each(ctx, n, func(ctx context.Context, c *rig.Server, i int) error {
		req, e := apiv1.EnrollAgent{Name: agentName(i)}, apiv1.Enrollment{}
		if labels != nil {
			req.Labels = labels(i)
		}
		if err := c.Call(ctx, http.MethodPost, rig.TenantPath+"/agents", req, &e); err != nil {
			return err
		}
		return os.WriteFile(file(i, req.Name), []byte(e.Token), 0o600)
	})
}
