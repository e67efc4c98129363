package kuberequest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// reasons are the reasons of the Kubernetes API for statuses. kubectl decides by them.
var reasons = map[int]string{
	http.StatusBadRequest:         "BadRequest",
	http.StatusUnauthorized:       "Unauthorized",
	http.StatusForbidden:          "Forbidden",
	http.StatusNotFound:           "NotFound",
	http.StatusUpgradeRequired:    "BadRequest",
	http.StatusTooManyRequests:    "TooManyRequests",
	http.StatusBadGateway:         "InternalError",
	http.StatusServiceUnavailable: "ServiceUnavailable",
	http.StatusGatewayTimeout:     "Timeout",
}

// status is the Status of the Kubernetes API.
type status struct {
	Kind       string         `json:"kind"`
	APIVersion string         `json:"apiVersion"`
	Metadata   struct{}       `json:"metadata"`
	Status     string         `json:"status"`
	Message    string         `json:"message"`
	Reason     string         `json:"reason,omitempty"`
	Details    *statusDetails `json:"details,omitempty"`
	Code       int            `json:"code"`
}

type statusDetails struct {
	RetryAfterSeconds int           `json:"retryAfterSeconds,omitempty"`
	Causes            []statusCause `json:"causes,omitempty"`
}

type statusCause struct {
	Type string `json:"reason"`
}

// WriteStatus responds with a Status of the Kubernetes API, which kubectl prints. origin says who responds. With retry, the
// client may try again after that time. causes are reasons of Kedge. For discovery it is plain text: there, kubectl ignores a Status and prints
// "unknown". It also ignores the text of 503 and 504 there, which become 502.
func WriteStatus(w http.ResponseWriter, u *url.URL, origin string, code int, message string, retry time.Duration, causes ...string) {
	s := status{Kind: "Status", APIVersion: "v1", Status: "Failure", Message: origin + ": " + message, Reason: reasons[code], Code: code}
	h := w.Header()
	var details statusDetails
	if retry > 0 {
		details.RetryAfterSeconds = int((retry + time.Second - 1) / time.Second)
		h.Set("Retry-After", strconv.Itoa(details.RetryAfterSeconds))
	}
	for _, cause := range causes {
		details.Causes = append(details.Causes, statusCause{cause})
	}
	if retry > 0 || len(causes) > 0 {
		s.Details = &details
	}
	h.Set(OriginHeader, origin)
	if discovery(u.Path) {
		h.Set("Content-Type", "text/plain; charset=utf-8")
		if code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout {
			code = http.StatusBadGateway
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, s.Message+"\n")
		return
	}
	h.Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(s)
}

func discovery(path string) bool {
	r, err := Of(http.MethodGet, &url.URL{Path: path})
	return err == nil && r.Resource == ""
}
