package gitsource

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"golang.org/x/crypto/ssh"

	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

const unsignedCommit = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor Ann <a@b> 1700000000 +0000\ncommitter Ann <a@b> 1700000000 +0000\n\nmessage\n"

// withSignature adds a signature to a commit like git.
func withSignature(commit, signature string) []byte {
	headers, body, _ := strings.Cut(commit, "\n\n")
	folded := strings.ReplaceAll(strings.TrimSpace(signature), "\n", "\n ")
	return []byte(headers + "\ngpgsig " + folded + "\n\n" + body)
}

func newEntity(t *testing.T, at time.Time, lifetime time.Duration) *openpgp.Entity {
	t.Helper()
	e, err := openpgp.NewEntity("Ann", "", "ann@example.com", &packet.Config{
		Algorithm: packet.PubKeyAlgoEdDSA, Time: func() time.Time { return at }, KeyLifetimeSecs: uint32(lifetime.Seconds()),
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func publicKey(t *testing.T, e *openpgp.Entity) string {
	t.Helper()
	var out bytes.Buffer
	w, err := armor.Encode(&out, openpgp.PublicKeyType, nil)
	if err == nil {
		err = e.Serialize(w)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.String() + "\n"
}

func TestOpenPGPSignatures(t *testing.T) {
	t.Parallel()
	now := time.Now()
	made := now.Add(-48 * time.Hour)
	good, other, expired, revoked := newEntity(t, made, 0), newEntity(t, made, 0), newEntity(t, made, 24*time.Hour), newEntity(t, made, 0)
	signedBy := func(e *openpgp.Entity) []byte {
		t.Helper()
		var out bytes.Buffer
		config := &packet.Config{Time: func() time.Time { return made.Add(time.Hour) }}
		if err := openpgp.ArmoredDetachSign(&out, e, strings.NewReader(unsignedCommit), config); err != nil {
			t.Fatal(err)
		}
		return withSignature(unsignedCommit, out.String())
	}
	fromRevoked := signedBy(revoked)
	if err := revoked.RevokeKey(packet.KeyCompromised, "lost", nil); err != nil {
		t.Fatal(err)
	}
	who, err := parseSigners("# people\n" + publicKey(t, good) + publicKey(t, expired) + publicKey(t, revoked))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		reason string
		commit []byte
		want   string
	}{
		{"a signer", signedBy(good), ""},
		{"no signer", []byte(unsignedCommit), "it is not signed"},
		{"another key", signedBy(other), "which is not in the list of signers"},
		{"a key that has expired", signedBy(expired), "expired"},
		{"a key that was revoked", fromRevoked, "was revoked"},
		{"another message", bytes.Replace(signedBy(good), []byte("\n\nmessage"), []byte("\n\nMessage"), 1), "its signature is invalid"},
		{"another tree", bytes.Replace(signedBy(good), []byte("tree 4b"), []byte("tree 5b"), 1), "its signature is invalid"},
		{"two signatures", withSignature(string(signedBy(good)), "x"), "it is not signed"},
		{"an unknown format", withSignature(unsignedCommit, "-----BEGIN SIGNED MESSAGE-----\nx"), "not supported"},
		{"an empty signature", withSignature(unsignedCommit, "-----BEGIN PGP SIGNATURE-----\n-----END PGP SIGNATURE-----"), "its signature is invalid"},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			got := who.check(splitCommit(tt.commit))
			if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestInvalidSignersAreRejected(t *testing.T) {
	t.Parallel()
	private, public, err := gitserver.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public)))
	tests := []struct {
		reason, text, problem string
	}{
		{"none", " \n", ""},
		{"one", "ann@example.com " + line, ""},
		{"a comment, several names and options", "# us\n\nann@example.com,bob@example.com namespaces=\"git\",valid-after=\"20200101\",valid-before=\"20991231Z\" " + line + " a comment", ""},
		{"a quoted name", `"ann of the team" ` + line, ""},
		{"only a comment", "# us", "contains no key"},
		{"no name", line, "line 1 of the signers: the name before the key is missing"},
		{"no key", "# us\nann@example.com", "line 2 of the signers: write it as"},
		{"half a key", "ann@example.com " + line[:40], "contains no public key"},
		{"a private key", string(private), "private key"},
		{"another purpose", "ann namespaces=\"file\" " + line, "is not valid for git"},
		{"an authority", "ann cert-authority " + line, "certificates are not supported"},
		{"an unknown option", "ann no-pty " + line, "not an option"},
		{"an invalid time", "ann valid-before=\"tomorrow\" " + line, "is not a time"},
		{"half an OpenPGP key", pgpBegin + "\n\nAAAA", "is incomplete"},
		{"a broken OpenPGP key", pgpBegin + "\n\nAAAA\n" + pgpEnd, "is invalid"},
		{"too long", strings.Repeat("#", maxSigners+1), "longer than"},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			err := CheckSigners(tt.text)
			var bad *SignersError
			switch {
			case tt.problem == "" && err != nil:
				t.Error(err)
			case tt.problem != "" && (!errors.As(err, &bad) || !strings.Contains(err.Error(), tt.problem)):
				t.Errorf("got %v, want %q", err, tt.problem)
			}
		})
	}
}

func TestValidityOfASigner(t *testing.T) {
	t.Parallel()
	_, public, err := gitserver.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public)))
	who, err := parseSigners(`ann valid-after="20200101",valid-before="20210101" ` + line)
	if err != nil {
		t.Fatal(err)
	}
	if got := who.ssh[0]; !got.after.Equal(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)) || !got.before.Equal(time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("got %v to %v", got.after, got.before)
	}
}

// Parsing any commit and checking its signature terminates and accepts nothing.
func FuzzSplitSigned(f *testing.F) {
	f.Add(withSignature(unsignedCommit, sshBegin+"\nU1NIU0lHAAAAAQ==\n"+sshEnd))
	f.Add(withSignature(unsignedCommit, "-----BEGIN PGP SIGNATURE-----\n\nAAAA\n-----END PGP SIGNATURE-----"))
	f.Add([]byte("object 4b825dc642cb6eb9a060e54bf8d69288fbee4904\ntype commit\ntag v1\ntagger A <a> 1 +0000\n\nx\n" + sshBegin + "\n"))
	f.Add([]byte("gpgsig \n gpgsig\n\n\n"))
	_, public, err := gitserver.NewKey()
	if err != nil {
		f.Fatal(err)
	}
	who, err := parseSigners("ann " + string(ssh.MarshalAuthorizedKey(public)))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, o := range []signedObject{splitCommit(data), splitTag(data)} {
			if who.check(o) == "" {
				t.Errorf("%q was accepted", data)
			}
		}
	})
}

// Users write the list of signers. Any text is either accepted or rejected.
func FuzzParseSigners(f *testing.F) {
	_, public, err := gitserver.NewKey()
	if err != nil {
		f.Fatal(err)
	}
	f.Add("ann " + string(ssh.MarshalAuthorizedKey(public)))
	f.Add(pgpBegin + "\n\nAAAA\n" + pgpEnd)
	f.Add("\"a b\" namespaces=\"git\" ssh-ed25519 AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		who, err := parseSigners(text)
		var bad *SignersError
		if err != nil && (!errors.As(err, &bad) || who != nil) {
			t.Errorf("got %v, %v", who, err)
		}
		if who != nil && len(who.ssh)+len(who.pgp) == 0 {
			t.Error("signers without a key were read")
		}
	})
}
