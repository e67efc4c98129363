package kustomize

import (
	"errors"
	"io/fs"
	"regexp"
	"strings"

	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// explain says to a user why a build failed: name is the kustomization that was built.
func (t *tree) explain(name string, err error) error {
	if ctxErr := t.ctx.Err(); ctxErr != nil {
		return ctxErr
	}
	if t.first != nil {
		return t.first
	}
	return &treefs.Error{Path: name, Problem: plainWords(err.Error())}
}

// userError is what a user has to mend about something that should be there.
func (t *tree) userError(name, missing string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &treefs.Error{Path: name, Problem: missing}
	}
	return err
}

var (
	// rooted is a path in the repository as Kustomize sees it. The paths of JSON patches, which are in objects, are
	// the first alternative, and kept.
	rooted = regexp.MustCompile(`(\b(?:path|from)\\?["']?: ?\\?["']?/)|(^|[\s'"(=])/([A-Za-z0-9._])`)
	// address is where something was in memory: nothing to anybody, and another one each time.
	address = regexp.MustCompile(`(from generator )?&?\{?0x[0-9a-f]{6,}( <nil>)?\}?:? ?`)
	// identity is an object as Go prints it.
	identity = regexp.MustCompile(`resid\.ResId\{Gvk:resid\.Gvk\{Group:"([^"]*)", Version:"([^"]*)", Kind:"([^"]*)", isClusterScoped:\w+\}, Name:"([^"]*)", Namespace:"[^"]*"\}`)
)

// maxWords is the most that is said of one mistake: Kustomize prints whole objects.
const maxWords = 1000

// plainWords is the adapter for Kustomize's errors, which are texts: paths are those of the repository,
// and what matters is said once.
func plainWords(text string) string {
	text = oneAttempt(strings.Join(strings.Fields(text), " "))
	text = rooted.ReplaceAllString(text, "$1$2$3")
	text = address.ReplaceAllString(text, "")
	text = identity.ReplaceAllString(text, "$3 $4")
	if len(text) > maxWords {
		text = strings.ToValidUTF8(text[:maxWords], "") + " …"
	}
	if strings.Contains(text, "plugins disabled") {
		text += " (plugins and functions are programs, and no program is run while rendering: use what is built into Kustomize, or commit what they make)"
	}
	return text
}

// What Kustomize says of a resource that it could read neither as a file nor, after that, as a folder:
// accumulation err='accumulating resources from 'x': FIRST': SECOND.
const (
	attemptBegins = "accumulation err='"
	attemptFile   = "accumulating resources from '"
	notFolder     = "': must build at directory"
)

// oneAttempt keeps the half that tells: the first for a file, the second for a folder.
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
