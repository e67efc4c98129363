// Package seal encrypts the secrets that the server keeps, and knows nothing of what they are for.
//
// Every secret is encrypted under a data key of its own (AES-256-GCM), and that key under a key of
// the server. The server's keys are in a file of lines "id:base64 of 32 bytes": the first one seals,
// all of them open. So a key is rotated by putting a new line first, sealing everything anew, and
// taking the old line out.
//
// A sealed secret is bound to the words that it was sealed with, which name its owner: the row of one
// credential cannot be opened as that of another.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// ErrWrongKey says that no key of the ring opens a secret: the key file is not the one that it was
// sealed with, or the secret was damaged.
var ErrWrongKey = errors.New("the secret cannot be opened with the keys of this server")

const keySize = 32

// Ring holds the keys of the server. It is safe for concurrent use.
type Ring struct {
	newest string
	keys   map[string]cipher.AEAD
}

var keyID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// NewKey returns a fresh line for a key file.
func NewKey(id string) (string, error) {
	if !keyID.MatchString(id) {
		return "", fmt.Errorf("%q is not a name for a key: use letters, digits, dots and dashes", id)
	}
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	return id + ":" + base64.StdEncoding.EncodeToString(key) + "\n", nil
}

// Parse reads the lines of a key file; empty ones and comments (#) are passed over. Its errors name
// lines and ids, never keys.
func Parse(data []byte) (*Ring, error) {
	r := &Ring{keys: map[string]cipher.AEAD{}}
	n := 0
	for line := range bytes.Lines(data) {
		n++
		text := strings.TrimSpace(string(line))
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		id, encoded, ok := strings.Cut(text, ":")
		if !ok || !keyID.MatchString(id) {
			return nil, fmt.Errorf("line %d of the key file is not \"id:key\"", n)
		}
		if _, twice := r.keys[id]; twice {
			return nil, fmt.Errorf("line %d of the key file: the key %q is there twice", n, id)
		}
		key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
		if err != nil || len(key) != keySize {
			return nil, fmt.Errorf("line %d of the key file: the key %q is not %d bytes in base64", n, id, keySize)
		}
		if r.keys[id], err = newAEAD(key); err != nil {
			return nil, err
		}
		if r.newest == "" {
			r.newest = id
		}
	}
	if r.newest == "" {
		return nil, errors.New("the key file holds no key")
	}
	return r, nil
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("preparing a key: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block) // so that nobody else has to see to nonces
}

// KeyID names the key that seals.
func (r *Ring) KeyID() string { return r.newest }

// Seal encrypts a secret, bound to about.
func (r *Ring) Seal(secret Secret, about string) (fleet.Sealed, error) {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	data, err := newAEAD(key)
	if err != nil {
		return fleet.Sealed{}, err
	}
	return fleet.Sealed{
		KeyID: r.newest,
		Key:   r.keys[r.newest].Seal(nil, nil, key, bind("key", about)),          //nolint:gosec // it makes its own nonce
		Data:  data.Seal(nil, nil, []byte(secret.Reveal()), bind("data", about)), //nolint:gosec // so does this
	}, nil
}

// Open decrypts what Seal returned for the same about. It fails with ErrWrongKey.
func (r *Ring) Open(s fleet.Sealed, about string) (Secret, error) {
	outer, ok := r.keys[s.KeyID]
	if !ok {
		return Secret{}, fmt.Errorf("%w: it was sealed with the key %q, which is not in the key file", ErrWrongKey, s.KeyID)
	}
	key, err := outer.Open(nil, nil, s.Key, bind("key", about))
	if err != nil {
		return Secret{}, fmt.Errorf("%w: the key %q is another one, or the secret was damaged", ErrWrongKey, s.KeyID)
	}
	inner, err := newAEAD(key)
	if err != nil {
		return Secret{}, err
	}
	text, err := inner.Open(nil, nil, s.Data, bind("data", about))
	if err != nil {
		return Secret{}, fmt.Errorf("%w: the secret was damaged", ErrWrongKey)
	}
	return Secret{text: string(text)}, nil
}

// bind keeps the two layers apart, so that neither can be taken for the other.
func bind(layer, about string) []byte { return []byte("kedge " + layer + "\x00" + about) }
