package gitsource

import (
	"bytes"
	"context"
	"fmt"
	"strings"
)

// maxSigned bounds a commit or tag that is read to check who signed it.
const maxSigned = 1 << 20

// SignatureError says that a commit or a tag is not used because of who has, or has not, signed it.
type SignatureError struct {
	Object string // "commit" or "tag v1.2.0"
	ID     string // of the object
	Reason string
}

func (e *SignatureError) Error() string {
	return fmt.Sprintf("%s %.12s is not used: %s; the signers of this repository are those who may sign", e.Object, e.ID, e.Reason)
}

// signedObject is a commit or a tag taken apart.
type signedObject struct {
	payload   []byte
	signature string // armored, "" when there is none
	name      string // of a tag
	time      int64  // of the committer or tagger, in seconds
}

// checkRefs turns what is not signed by one of the signers into an error, revision by revision.
func (r *mirror) checkRefs(ctx context.Context, who *signers, refs map[string]Ref) error {
	for revision, ref := range refs {
		if ref.Err != nil {
			continue
		}
		refused, err := r.checkRef(ctx, who, ref)
		if err != nil {
			return fmt.Errorf("checking the signature of %s in %s: %w", ref.Commit, r.url, err)
		}
		if refused != nil {
			refs[revision] = Ref{Err: refused}
		}
	}
	return nil
}

// checkRef asks for the signature of the tag that is followed, and otherwise for that of the commit.
func (r *mirror) checkRef(ctx context.Context, who *signers, ref Ref) (*SignatureError, error) {
	if short, ok := strings.CutPrefix(ref.Name, tags); ok {
		return r.checkTag(ctx, who, ref.Name, short)
	}
	_, data, err := r.cat.read(ctx, ref.Commit+"^{commit}", maxSigned)
	if err != nil {
		return nil, err
	}
	if reason := who.check(splitCommit(data)); reason != "" {
		return &SignatureError{Object: "commit", ID: ref.Commit, Reason: reason}, nil
	}
	return nil, nil
}

// checkTag asks for the signature of a tag itself. That of its commit is not enough: who may push, and
// signs nothing, could put a new version on an old commit.
func (r *mirror) checkTag(ctx context.Context, who *signers, name, short string) (*SignatureError, error) {
	found, data, err := r.cat.read(ctx, localRef(name), maxSigned)
	if err != nil {
		return nil, err
	}
	tag := splitTag(data)
	reason := "the tag itself is not signed, which a signed commit does not make up for: sign it by git tag -s"
	if found.kind == "tag" && tag.signature != "" {
		reason = who.check(tag)
	}
	if reason == "" && tag.name != short {
		reason = fmt.Sprintf("what was signed is the tag %q", tag.name)
	}
	if reason == "" {
		return nil, nil
	}
	return &SignatureError{Object: "tag " + short, ID: found.id, Reason: reason}, nil
}

// splitCommit takes the signature out of a commit, which is a header of it. What was signed is all the
// rest, to the byte. A second signature makes it none: it is not clear which one counts.
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

// armors begin a signature at the end of a tag.
var armors = [][]byte{[]byte("-----BEGIN PGP SIGNATURE-----"), []byte("-----BEGIN SSH SIGNATURE-----")}

// splitTag takes the signature off the end of an annotated tag.
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

// timeOf reads the seconds of "Name <address> seconds zone"; 0 when there are none.
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
