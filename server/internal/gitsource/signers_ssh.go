package gitsource

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	sshNamespace = "git"
	sshBegin     = "-----BEGIN SSH SIGNATURE-----"
	sshEnd       = "-----END SSH SIGNATURE-----"
	sshMagic     = "SSHSIG"
)

// sshSignature is the format of a signature by OpenSSH, after its magic (PROTOCOL.sshsig).
type sshSignature struct {
	Version   uint32
	Key       string
	Namespace string
	Reserved  string
	Hash      string
	Signature string
}

// checkSSH returns why an object is not accepted, or "" if it is.
func (s *signers) checkSSH(o signedObject) string {
	signature, key, err := parseSSHSignature(o.signature)
	if err != nil {
		return "its signature is malformed: " + err.Error()
	}
	at := time.Unix(o.time, 0)
	known, validThen := false, false
	for _, signer := range s.ssh {
		if !bytes.Equal(signer.key, key.Marshal()) {
			continue
		}
		known = true
		if (signer.after.IsZero() || !at.Before(signer.after)) && (signer.before.IsZero() || at.Before(signer.before)) {
			validThen = true
		}
	}
	name := ssh.FingerprintSHA256(key)
	switch {
	case !known:
		return "it is signed by the SSH key " + name + ", which is not in the list of signers"
	case signature.Namespace != sshNamespace:
		return fmt.Sprintf("its signature is for %q, not for git", cleanText(signature.Namespace))
	}
	if err := verifySSH(signature, key, o.payload); err != nil {
		return "its signature by the SSH key " + name + " is invalid"
	}
	if !validThen {
		return fmt.Sprintf("the SSH key %s was not valid on %s, the date of the signature", name, at.UTC().Format(time.DateOnly))
	}
	return ""
}

func parseSSHSignature(armored string) (sshSignature, ssh.PublicKey, error) {
	var out sshSignature
	text, found := strings.CutPrefix(strings.TrimSpace(armored), sshBegin)
	text, ended := strings.CutSuffix(text, sshEnd)
	if !found || !ended {
		return out, nil, errors.New("its first or last line is missing")
	}
	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return out, nil, errors.New("it is not base64")
	}
	data, found = bytes.CutPrefix(data, []byte(sshMagic))
	if !found || ssh.Unmarshal(data, &out) != nil || out.Version != 1 {
		return out, nil, errors.New("its format is unknown")
	}
	key, err := ssh.ParsePublicKey([]byte(out.Key))
	if err != nil {
		return out, nil, errors.New("its key is invalid")
	}
	return out, key, nil
}

func verifySSH(s sshSignature, key ssh.PublicKey, payload []byte) error {
	var sum []byte
	switch s.Hash {
	case "sha256":
		h := sha256.Sum256(payload)
		sum = h[:]
	case "sha512":
		h := sha512.Sum512(payload)
		sum = h[:]
	default:
		return fmt.Errorf("hash %q", s.Hash)
	}
	var signature ssh.Signature
	if err := ssh.Unmarshal([]byte(s.Signature), &signature); err != nil {
		return err
	}
	if signature.Format == ssh.KeyAlgoRSA { // with SHA-1, which OpenSSH rejects too
		return errors.New("the signature uses SHA-1")
	}
	signed := ssh.Marshal(struct{ Namespace, Reserved, Hash, Sum string }{s.Namespace, s.Reserved, s.Hash, string(sum)})
	return key.Verify(append([]byte(sshMagic), signed...), &signature)
}
