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

// hello is the first thing that a child says.
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

// endMessage is what a job came to.
type endMessage struct {
	Problem  *problem      `json:"problem,omitempty"` // nil when all objects were sent
	Notes    []string      `json:"notes,omitempty"`
	Volatile bool          `json:"volatile,omitempty"`
	Tainted  bool          `json:"tainted,omitempty"` // the build has changed what the next one would see
	CPU      time.Duration `json:"cpu"`               // used since the child began
	// Memory is the most that it ever asked the system for, in bytes. What the system counts as the most that a process had begins
	// with what its parent had, and a server may have much.
	Memory int64 `json:"memory"`
}

// problem is an error on its way.
type problem struct {
	Path string `json:"path,omitempty"`
	Text string `json:"text"`
	// Fault says that it is not known to be a user's mistake.
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

// maxSource bounds the place of an object, which is a path and a few words.
const maxSource = 4 << 10

// parseObject reads an object that a child has sent, as if it were a file that a stranger wrote. Mistakes
// in the object are of type [*manifest.Error].
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
