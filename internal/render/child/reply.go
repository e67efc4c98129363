package child

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// The questions about a tree.
const (
	opStat = 's'
	opRead = 'r'
	opList = 'l'
)

// The first byte of a reply.
const (
	replyOK       = 'k'
	replyNotExist = 'n'
	replyMistake  = 'm' // path and text follow
	replyFault    = 'f' // the parent keeps the error
)

// errParent is the error in the child for every fault of its parent.
var errParent = errors.New("the tree cannot be read")

// maxPath limits the length of paths in questions.
const maxPath = 4 << 10

// parseQuery parses the payload of a query.
func parseQuery(payload []byte) (op byte, path string, err error) {
	if len(payload) == 0 || len(payload) > 1+maxPath || !slices.Contains([]byte{opStat, opRead, opList}, payload[0]) {
		return 0, "", errFrame
	}
	return payload[0], string(payload[1:]), nil
}

// replyError is the form of an error in a reply.
func replyError(err error) []byte {
	var mistake *treefs.Error
	var source *filetree.Error
	switch {
	case errors.As(err, &mistake):
		return appendText(appendText([]byte{replyMistake}, mistake.Path), mistake.Problem)
	case errors.As(err, &source):
		return appendText(appendText([]byte{replyMistake}, source.Path), source.Problem)
	case errors.Is(err, fs.ErrNotExist):
		return []byte{replyNotExist}
	default:
		return []byte{replyFault}
	}
}

// cutReply splits the first byte from a reply.
func cutReply(payload []byte, path string) ([]byte, error) {
	if len(payload) == 0 {
		return nil, errFrame
	}
	body := payload[1:]
	switch payload[0] {
	case replyOK:
		return body, nil
	case replyNotExist:
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	case replyFault:
		return nil, errParent
	case replyMistake:
		where, rest, err := cutText(body)
		if err != nil {
			return nil, err
		}
		text, _, err := cutText(rest)
		if err != nil {
			return nil, err
		}
		return nil, &treefs.Error{Path: where, Problem: text}
	}
	return nil, errFrame
}

func appendNode(b []byte, n treefs.Node) []byte {
	return append(appendText(appendText(b, n.Name), n.Real), byte(n.Kind))
}

func cutNode(b []byte) (n treefs.Node, rest []byte, err error) {
	if n.Name, b, err = cutText(b); err != nil {
		return n, nil, err
	}
	if n.Real, b, err = cutText(b); err != nil {
		return n, nil, err
	}
	if len(b) == 0 {
		return n, nil, errFrame
	}
	n.Kind = treefs.Kind(b[0])
	return n, b[1:], nil
}

func cutNodes(b []byte) ([]treefs.Node, error) {
	var out []treefs.Node
	for len(b) > 0 {
		n, rest, err := cutNode(b)
		if err != nil {
			return nil, err
		}
		out, b = append(out, n), rest
	}
	return out, nil
}

// appendText appends a text with its length.
func appendText[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

func cutText(b []byte) (string, []byte, error) {
	text, rest, err := cutBytes(b)
	return string(text), rest, err
}

// cutBytes returns the text that appendText appended, as a part of b, and the rest.
func cutBytes(b []byte) (text, rest []byte, err error) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return nil, nil, fmt.Errorf("cutting a text out of %d bytes: %w", len(b), errFrame)
	}
	end := n + int(size)
	return b[n:end:end], b[end:], nil
}
