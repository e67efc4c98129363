package gitsource

import (
	"bytes"
	"context"
	"fmt"
	"strings"
)

// maxSigned limits a commit or tag whose signature is checked.
const maxSigned = 1 << 20

// SignatureError is returned for a commit or a tag that no allowed signer signed.
type SignatureError struct {
	Object string // "commit" or "tag v1.2.0"
	ID     string // of the object
	Reason string
}

func (e *SignatureError) Error() string {
	return fmt.Sprintf("%s %.12s is not accepted: %s; the repository has a list of allowed signers", e.Object, e.ID, e.Reason)
}

// signedObject is a parsed commit or tag.
type signedObject struct {
	payload   []byte
	signature string // armored; "" if there is none
	name      string // of a tag
	time      int64  // of the committer or tagger, in seconds
}

// checkRefs sets Err of every revision that no allowed signer signed.
func (r *mirror) checkRefs(ctx context.Context, allowed *signers, refs map[string]Ref) error {
	for revision, ref := range refs {
		if ref.Err != nil {
			continue
		}
		refused, err := r.checkRef(ctx, allowed, ref)
		if err != nil {
			return fmt.Errorf("checking the signature of %s in %s: %w", ref.Commit, r.url, err)
		}
		if refused != nil {
			refs[revision] = Ref{Err: refused}
		}
	}
	return nil
}

// checkRef checks the signature of the tag if the ref is a tag, and of the commit otherwise.
func (r *mirror) checkRef(ctx context.Context, allowed *signers, ref Ref) (*SignatureError, error) {
	if short, ok := strings.CutPrefix(ref.Name, tags); ok {
		return r.checkTag(ctx, allowed, ref.Name, short)
	}
	_, data, err := r.cat.read(ctx, ref.Commit+"^{commit}", maxSigned)
	if err != nil {
		return nil, err
	}
	if reason := allowed.check(splitCommit(data)); reason != "" {
		return &SignatureError{Object: "commit", ID: ref.Commit, Reason: reason}, nil
	}
	return nil, nil
}

// checkTag checks the signature of a tag itself. The signature of its commit is not enough: a user with push
// access and no signing key could tag an old commit as a new version.
func (r *mirror) checkTag(ctx context.Context, allowed *signers, name, short string) (*SignatureError, error) {
	found, data, err := r.cat.read(ctx, localRef(name), maxSigned)
	if err != nil {
		return nil, err
	}
	tag := splitTag(data)
	reason := "the tag is not signed, and the signature of its commit is not sufficient: sign the tag with git tag -s"
	if found.kind == "tag" && tag.signature != "" {
		reason = allowed.check(tag)
	}
	if reason == "" && tag.name != short {
		reason = fmt.Sprintf("the signature is for the tag %q", tag.name)
	}
	if reason == "" {
		return nil, nil
	}
	return &SignatureError{Object: "tag " + short, ID: found.id, Reason: reason}, nil
}

// splitCommit separates a commit from its signature, which is a header. The signature covers all other bytes. A
// commit with two signatures counts as unsigned, because it is ambiguous which one is valid.
func splitCommit(data []byte) signedObject {
	var out signedObject
	var signature []string
	count, inside := 0, false
	headers, body, _ := bytes.Cut(data, []byte("\n\n"))
	for line := range bytes.Lines(append(bytes.Clone(headers), '\n')) {
		key, value, _ := bytes.Cut(line, []byte(" "))
		switch {
		case inside && len(line) > 0 && line[0] == ' ':
			signature = append(signature, string(line[1:]))
			continue
		case string(key) == "gpgsig":
			count, inside = count+1, true
			signature = append(signature, string(value))
			continue
		case string(key) == "gpgsig-sha256":
			inside = true
			count++
			continue
		case string(key) == "committer":
			out.time = timeOf(value)
		}
		inside = false
		out.payload = append(out.payload, line...)
	}
	out.payload = append(append(out.payload, '\n'), body...)
	if count == 1 {
		out.signature = strings.Join(signature, "")
	}
	return out
}

// armors are the first lines of a signature at the end of a tag.
var armors = [][]byte{[]byte("-----BEGIN PGP SIGNATURE-----"), []byte("-----BEGIN SSH SIGNATURE-----")}

// splitTag separates an annotated tag from the signature at its end.
func splitTag(data []byte) signedObject {
	at := -1
	for _, armor := range armors {
		if i := bytes.LastIndex(data, append([]byte("\n"), armor...)); i >= 0 {
			at = max(at, i+1)
		}
	}
	out := signedObject{payload: data}
	if at >= 0 {
		out.payload, out.signature = data[:at], string(data[at:])
	}
	headers, _, _ := bytes.Cut(out.payload, []byte("\n\n"))
	for line := range bytes.Lines(headers) {
		key, value, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
		switch string(key) {
		case "tag":
			out.name = string(value)
		case "tagger":
			out.time = timeOf(value)
		}
	}
	return out
}

// timeOf parses the seconds of "Name <address> seconds zone". It returns 0 if there are none.
func timeOf(line []byte) int64 {
	var seconds int64
	var zone string
	if i := bytes.LastIndexByte(line, '>'); i >= 0 {
		if _, err := fmt.Sscanf(string(line[i+1:]), "%d %s", &seconds, &zone); err != nil {
			return 0
		}
	}
	return seconds
}
