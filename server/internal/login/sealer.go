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

// errSealed is returned for a text that this server did not seal, or that was changed.
var errSealed = errors.New("it was not created by this server, or was changed")

// sealer encrypts and authenticates values. Each purpose has its own key, so that a value of one purpose is not
// valid for another.
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

// seal returns a text that is valid in a cookie and in a URL.
func (s sealer) seal(v any) (string, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encoding: %w", err)
	}
	sealed := s.aead.Seal(nil, nil, plain, nil) //nolint:gosec // G407: this AEAD creates a random nonce for every message
	return base64.RawURLEncoding.EncodeToString(sealed), nil
}

// open opens a sealed text. It returns errSealed if the text is not from seal.
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

// challengeOf returns the challenge of a verifier (RFC 7636, S256).
func challengeOf(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// random returns a new random text.
func random() string { return rand.Text() }
