package restapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/server/internal/auth"
)

// authenticated lets in whoever presents a valid token.
func (a *api) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		principal, err := a.authenticate(r)
		if err != nil {
			p := mapError(r.Context(), err, subject{})
			if p.Status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="kedge"`)
			}
			writeProblem(w, p)
			return
		}
		infoFrom(r.Context()).principal = principal
		next.ServeHTTP(w, r)
	})
}

func (a *api) authenticate(r *http.Request) (auth.Principal, error) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return auth.Principal{}, auth.ErrUnauthenticated
	}
	return a.control.Authenticate(r.Context(), token)
}

type whoamiOutput struct{ Body apiv1.Whoami }

func (a *api) registerWhoami() {
	op := operation("whoami", http.MethodGet, base+"/whoami", "Who the caller is", http.StatusOK)
	register(a, op, func(*struct{}) subject { return subject{} },
		func(_ context.Context, p auth.Principal, _ *struct{}) (*whoamiOutput, error) {
			return &whoamiOutput{apiv1.Whoami{Name: p.Name, Role: string(p.Role), ServerVersion: a.cfg.Version}}, nil
		})
}
