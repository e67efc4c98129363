package control

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/server/internal/auth"
)

// kubeTokenTTL is how long a kube token is accepted for new requests. Requests that are open then continue.
const kubeTokenTTL = 10 * time.Minute

// CreateKubeToken returns a token for requests to clusters in the name of p, and for nothing else. It is short-lived, ends
// with the token or session of p, and is not stored: it contains the hash of that token, its own expiry, and a signature.
func (s *Service) CreateKubeToken(_ context.Context, p auth.Principal) (token string, expires time.Time, err error) {
	if p.Kube || len(p.TokenHash) != sha256.Size {
		return "", time.Time{}, auth.ErrForbidden
	}
	expires = s.cfg.Now().Add(kubeTokenTTL).Truncate(time.Second)
	payload := binary.BigEndian.AppendUint64(append([]byte(nil), p.TokenHash...), uint64(expires.Unix()))
	return auth.KubeTokenPrefix + base64.RawURLEncoding.EncodeToString(append(payload, s.signKubeToken(payload)...)), expires, nil
}

func (s *Service) signKubeToken(payload []byte) []byte {
	mac := hmac.New(sha256.New, s.cfg.Key)
	mac.Write([]byte("kube-token\x00"))
	mac.Write(payload)
	return mac.Sum(nil)
}

// parseKubeToken returns the hash of the token that a kube token belongs to.
func (s *Service) parseKubeToken(token string) (hash []byte, expires time.Time, err error) {
	const signed = sha256.Size + 8
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(token, auth.KubeTokenPrefix))
	if err != nil || len(raw) != signed+sha256.Size || !hmac.Equal(raw[signed:], s.signKubeToken(raw[:signed])) {
		return nil, time.Time{}, auth.ErrUnauthenticated
	}
	return raw[:sha256.Size], time.Unix(int64(binary.BigEndian.Uint64(raw[sha256.Size:signed])), 0), nil
}
