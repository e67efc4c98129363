package login

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
)

// errSealed says that something was not sealed here, or was changed since.
var errSealed = errors.New("it was not made by this server, or was changed")

// sealer hides values and notices changes. Each purpose has a key of its own, so that a value of one
// cannot pass for another's.
type sealer struct{ aead cipher.AEAD }

func newSealer(key []byte, purpose string) (sealer, error) {
	derived, err := hkdf.Key(sha256.New, key, nil, purpose, 32)
	if err != nil {
		return sealer{}, fmt.Errorf("deriving the key of %s: %w", purpose, err)
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return sealer{}, fmt.Errorf("using the key of %s: %w", purpose, err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return sealer{aead}, err
}

// seal makes text that fits into a cookie and a URL.
func (s sealer) seal(v any) (string, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encoding: %w", err)
	}
	sealed := s.aead.Seal(nil, nil, plain, nil) //nolint:gosec // G407: this AEAD makes a random nonce for every message
	return base64.RawURLEncoding.EncodeToString(sealed), nil
}

// open fails with errSealed for everything that seal did not make.
func (s sealer) open(text string, v any) error {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return errSealed
	}
	plain, err := s.aead.Open(nil, nil, sealed, nil)
	if err != nil || json.Unmarshal(plain, v) != nil {
		return errSealed
	}
	return nil
}

// challengeOf is what a verifier is checked against (RFC 7636, S256).
func challengeOf(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// random is a fresh text that nobody can guess.
func random() string { return rand.Text() }
