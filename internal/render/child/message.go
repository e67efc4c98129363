package child

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/render/sandbox"
)

// hello is the first message of a child.
type hello struct {
	Sandbox sandbox.Status `json:"sandbox"`
}

// jobMessage is a render.Job without its tree.
type jobMessage struct {
	Kind         fleet.SourceKind
	Path         string
	Namespace    string
	Helm         fleet.Helm
	Capabilities fleet.Capabilities
}

// endMessage is the result of a job.
type endMessage struct {
	Problem  *problem      `json:"problem,omitempty"` // nil if all objects were sent
	Notes    []string      `json:"notes,omitempty"`
	Volatile bool          `json:"volatile,omitempty"`
	Tainted  bool          `json:"tainted,omitempty"` // the build changed state that the next one would see
	CPU      time.Duration `json:"cpu"`               // used since the child started
	// Memory is the peak memory that the child requested, in bytes. The peak that the system reports starts
	// with the memory of its parent, which may be large.
	Memory int64 `json:"memory"`
}

// problem is an encoded error.
type problem struct {
	Path string `json:"path,omitempty"`
	Text string `json:"text"`
	// Fault is set if it may not be a mistake of a user.
	Fault bool `json:"fault,omitempty"`
}

// objectFrame is the payload of a frame that carries an object.
func objectFrame(o manifest.Object) ([]byte, error) {
	var buf bytes.Buffer
	buf.Write(binary.AppendUvarint(nil, uint64(len(o.Source))))
	buf.WriteString(o.Source)
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(o.Content); err != nil {
		return nil, fmt.Errorf("encoding %s: %w", o.Ref, err)
	}
	return buf.Bytes(), nil
}

// maxSource limits the source of an object, which is a path and a few words.
const maxSource = 4 << 10

// parseObject parses an object from a child as untrusted input. Errors in the object are of type
// [*manifest.Error].
func parseObject(payload []byte) ([]manifest.Object, error) {
	source, rest, err := cutText(payload)
	if err != nil {
		return nil, err
	}
	if len(source) > maxSource {
		return nil, errFrame
	}
	source = clean(source, maxSource)
	if o, ok := manifest.ParseCanonical(source, bytes.TrimSuffix(rest, []byte("\n"))); ok {
		return []manifest.Object{o}, nil
	}
	if !json.Valid(rest) {
		return nil, errFrame
	}
	return manifest.Parse(source, rest)
}
