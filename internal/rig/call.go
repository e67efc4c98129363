package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// TenantPath is the path of the resources of the default tenant, below /api/v1.
const TenantPath = "/tenants/default"

// StatusError is a response without success.
type StatusError struct {
	Code    int
	Request string
	Body    string
}

func (e *StatusError) Error() string { return fmt.Sprintf("%s: %d: %s", e.Request, e.Code, e.Body) }

// Answer is a response of a server.
type Answer struct {
	Code   int
	Header http.Header
	Body   []byte
}

// As returns the same server for a caller with another token; "" means none.
func (s *Server) As(token string) *Server {
	other := *s
	other.Token = token
	return &other
}

// At returns the same server at another address.
func (s *Server) At(url string) *Server {
	other := *s
	other.URL = url
	return &other
}

// Ask sends a request to /api/v1 + path and returns any response. in is the body: nil for none, raw bytes, or a
// value that is encoded as JSON.
func (s *Server) Ask(ctx context.Context, method, path string, header http.Header, in any) (Answer, error) {
	var content io.Reader
	switch body := in.(type) {
	case nil:
	case []byte:
		content = bytes.NewReader(body)
	default:
		raw, err := json.Marshal(in)
		if err != nil {
			return Answer{}, fmt.Errorf("encoding a request: %w", err)
		}
		content = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.URL+"/api/v1"+path, content)
	if err != nil {
		return Answer{}, err
	}
	if s.Token != "" {
		req.Header.Set("Authorization", "Bearer "+s.Token)
	}
	req.Header.Set("Content-Type", "application/json")
	for name, values := range header {
		req.Header[name] = values
	}
	res, err := s.HTTP.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return Answer{}, fmt.Errorf("reading the answer to %s %s: %w", method, path, err)
	}
	return Answer{Code: res.StatusCode, Header: res.Header, Body: answer}, nil
}

// Call is Ask for requests that must succeed: it decodes the response into out unless out is nil. Any other
// response is a StatusError.
func (s *Server) Call(ctx context.Context, method, path string, in, out any) error {
	answer, err := s.Ask(ctx, method, path, nil, in)
	if err != nil {
		return err
	}
	if answer.Code >= http.StatusMultipleChoices {
		return &StatusError{Code: answer.Code, Request: method + " " + path, Body: string(answer.Body)}
	}
	if raw, ok := out.(*[]byte); ok {
		*raw = answer.Body
		return nil
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer.Body, out)
}
