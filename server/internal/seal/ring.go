// Package seal encrypts the secrets that the server stores. It knows nothing about their purpose.
//
// Every secret is encrypted with its own data key (AES-256-GCM), and that key with a key of the server. The
// server's keys are lines "id:base64 of 32 bytes" of a file. The first key encrypts, and all keys decrypt. To
// rotate a key, add a new first line, encrypt all secrets again, and remove the old line.
//
// An encrypted secret is bound to its owner as associated data: the secret of one credential cannot be decrypted
// as that of another.
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

// ErrWrongKey is returned when no key decrypts a secret: the key file is another one, or the secret was damaged.
var ErrWrongKey = errors.New("the secret cannot be decrypted with the keys of this server")

const keySize = 32

// Ring holds the keys of the server. It is safe for concurrent use.
type Ring struct {
	newest string
	keys   map[string]cipher.AEAD
}

var keyID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// NewKey returns a line with a new key for a key file.
func NewKey(id string) (string, error) {
	if !keyID.MatchString(id) {
		return "", fmt.Errorf("%q is not a valid key id: use letters, digits, dots, underscores and dashes", id)
	}
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	return id + ":" + base64.StdEncoding.EncodeToString(key) + "\n", nil
}

// Parse parses a key file. It ignores empty lines and comments (#). Its errors contain line numbers and ids, but
// no keys.
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
		if _, duplicate := r.keys[id]; duplicate {
			return nil, fmt.Errorf("line %d of the key file: the key %q is a duplicate", n, id)
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
		return nil, errors.New("the key file contains no key")
	}
	return r, nil
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("preparing a key: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block) // it creates the nonces
}

// KeyID returns the id of the key that encrypts.
func (r *Ring) KeyID() string { return r.newest }

// Seal encrypts a secret for an owner.
func (r *Ring) Seal(secret Secret, owner string) (fleet.Sealed, error) {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	data, err := newAEAD(key)
	if err != nil {
		return fleet.Sealed{}, err
	}
	return fleet.Sealed{
		KeyID: r.newest,
		Key:   r.keys[r.newest].Seal(nil, nil, key, bind("key", owner)),          //nolint:gosec // it creates its own nonce
		Data:  data.Seal(nil, nil, []byte(secret.Reveal()), bind("data", owner)), //nolint:gosec // so does this
	}, nil
}

// Open decrypts a secret of the same owner. It returns ErrWrongKey if that fails.
func (r *Ring) Open(s fleet.Sealed, owner string) (Secret, error) {
	outer, ok := r.keys[s.KeyID]
	if !ok {
		return Secret{}, fmt.Errorf("%w: it was encrypted with the key %q, which is not in the key file", ErrWrongKey, s.KeyID)
	}
	key, err := outer.Open(nil, nil, s.Key, bind("key", owner))
	if err != nil {
		return Secret{}, fmt.Errorf("%w: the key %q in the key file is another one, or the secret was damaged", ErrWrongKey, s.KeyID)
	}
	inner, err := newAEAD(key)
	if err != nil {
		return Secret{}, err
	}
	text, err := inner.Open(nil, nil, s.Data, bind("data", owner))
	if err != nil {
		return Secret{}, fmt.Errorf("%w: the secret was damaged", ErrWrongKey)
	}
	return Secret{text: string(text)}, nil
}

// bind returns the associated data of a layer. It differs, so that one layer is not valid as the other.
func bind(layer, owner string) []byte { return []byte("kedge " + layer + "\x00" + owner) }
