package kustomize

import (
	"errors"
	"io/fs"
	"regexp"
	"strings"

	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// explain converts an error of a build to a message for users; name is the kustomization.
func (t *tree) explain(name string, err error) error {
	if ctxErr := t.ctx.Err(); ctxErr != nil {
		return ctxErr
	}
	if t.first != nil {
		return t.first
	}
	return &treefs.Error{Path: name, Problem: plainWords(err.Error())}
}

// userError returns the user error for a missing or unreadable file.
func (t *tree) userError(name, missing string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &treefs.Error{Path: name, Problem: missing}
	}
	return err
}

var (
	// rooted matches a path in the repository as Kustomize sees it. The first alternative matches paths of JSON
	// patches, which are kept.
	rooted = regexp.MustCompile(`(\b(?:path|from)\\?["']?: ?\\?["']?/)|(^|[\s'"(=])/([A-Za-z0-9._])`)
	// address matches memory addresses, which are useless and differ each time.
	address = regexp.MustCompile(`(from generator )?&?\{?0x[0-9a-f]{6,}( <nil>)?\}?:? ?`)
	// identity matches an object as printed by Go.
	identity = regexp.MustCompile(`resid\.ResId\{Gvk:resid\.Gvk\{Group:"([^"]*)", Version:"([^"]*)", Kind:"([^"]*)", isClusterScoped:\w+\}, Name:"([^"]*)", Namespace:"[^"]*"\}`)
)

// maxWords limits the length of an error: Kustomize prints complete objects.
const maxWords = 1000

// plainWords adapts errors of Kustomize, which are texts: it converts paths to paths of the repository and
// removes repetitions.
func plainWords(text string) string {
	text = oneAttempt(strings.Join(strings.Fields(text), " "))
	text = rooted.ReplaceAllString(text, "$1$2$3")
	text = address.ReplaceAllString(text, "")
	text = identity.ReplaceAllString(text, "$3 $4")
	if len(text) > maxWords {
		text = strings.ToValidUTF8(text[:maxWords], "") + " …"
	}
	if strings.Contains(text, "plugins disabled") {
		text += " (plugins and functions are programs, and renders run no programs: use the built-in transformers of Kustomize, or commit the output of the plugin)"
	}
	return text
}

// The error of Kustomize about a resource that it could read neither as a file nor as a folder: accumulation
// err='accumulating resources from 'x': FIRST': SECOND.
const (
	attemptBegins = "accumulation err='"
	attemptFile   = "accumulating resources from '"
	notFolder     = "': must build at directory"
)

// oneAttempt keeps the relevant half: the first for a file, the second for a folder.
func oneAttempt(text string) string {
	for {
		before, rest, ok := strings.Cut(text, attemptBegins)
		if !ok {
			return text
		}
		if strings.HasSuffix(rest, "file is not directory") || strings.HasSuffix(rest, errMissing.Error()) {
			if i := strings.LastIndex(rest, notFolder); i >= 0 {
				return before + strings.Replace(rest[:i], attemptFile, "'", 1)
			}
		}
		i := strings.Index(rest, "must resolve to a file': ")
		if i < 0 {
			return text
		}
		text = before + rest[i+len("must resolve to a file': "):]
	}
}
