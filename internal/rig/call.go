package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// TenantPath is where the default tenant's resources are, below /api/v1.
const TenantPath = "/tenants/default"

// StatusError is an answer that is not a success.
type StatusError struct {
	Code    int
	Request string
	Body    string
}

func (e *StatusError) Error() string { return fmt.Sprintf("%s: %d: %s", e.Request, e.Code, e.Body) }

// Call sends a request to /api/v1 + path as the admin and decodes the answer into out unless that
// is nil.
func (s *Server) Call(ctx context.Context, method, path string, in, out any) error {
	var content io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encoding a request: %w", err)
		}
		content = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.URL+"/api/v1"+path, content)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.Token)
	req.Header.Set("Content-Type", "application/json")
	res, err := s.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("reading the answer to %s %s: %w", method, path, err)
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return &StatusError{Code: res.StatusCode, Request: method + " " + path, Body: string(answer)}
	}
	if raw, ok := out.(*[]byte); ok {
		*raw = answer
		return nil
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}
