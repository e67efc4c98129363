package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"

	"charm.land/fang/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// The exit codes; the package comment says what they mean.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnhealthy   = 3
	exitTimeout     = 4
	exitInterrupted = 130
)

// exitError ends the program with a code and, when text is not empty, a message.
type exitError struct {
	code       int
	text, next string
}

func (e *exitError) Error() string { return e.text }

// failure is what went wrong and what to do about it.
func failure(text, next string) error { return &exitError{code: exitFailed, text: text, next: next} }

// Run carries out one command line, without the program's name, and returns the exit code.
func Run(ctx context.Context, args []string, o Options) int {
	root, a := build(o)
	root.SetArgs(typeFirst(root, args))
	err := execute(ctx, root, isTerminal(o.Out) && asksForHelp(args))
	if err == nil {
		return exitOK
	}
	var many errorList
	if !errors.As(err, &many) {
		many = errorList{err}
	}
	code := exitOK
	for _, err := range many {
		exit := a.explain(ctx, err)
		if exit.text != "" {
			fmt.Fprintln(o.Err, "Error:", exit.text)
		}
		if exit.next != "" {
			fmt.Fprintln(o.Err, "Next: ", exit.next)
		}
		code = cmp.Or(code, exit.code)
	}
	return code
}

// errorList are the errors of a command that goes on with its other names after one has failed. The first decides the
// exit code.
type errorList []error

// Error implements error.
func (l errorList) Error() string { return errors.Join(l...).Error() }

// Unwrap implements the interface of errors.Is and errors.As.
func (l errorList) Unwrap() []error { return l }

// orNil is nil for an empty list.
func (l errorList) orNil() error {
	if len(l) == 0 {
		return nil
	}
	return l
}

// asksForHelp keeps fang out of everything else: it questions the terminal about its colours.
func asksForHelp(args []string) bool {
	return len(args) == 0 || args[0] == "help" || slices.Contains(args, "--help") || slices.Contains(args, "-h")
}

// execute styles help for people; pipes and files get the plain one.
func execute(ctx context.Context, root *cobra.Command, styled bool) error {
	if !styled {
		return root.ExecuteContext(ctx)
	}
	quiet := func(io.Writer, fang.Styles, error) {} // Run says it, the same way everywhere
	return fang.Execute(ctx, root, fang.WithErrorHandler(quiet), fang.WithoutManpage(), fang.WithoutVersion())
}

// explain turns any error into what the user is told: what happened, and what to do next.
func (a *app) explain(ctx context.Context, err error) *exitError {
	var exit *exitError
	var unreachable *client.UnreachableError
	switch {
	case errors.As(err, &exit):
		return exit
	case !a.started:
		return a.misused(err)
	case errors.Is(ctx.Err(), context.Canceled):
		return &exitError{code: exitInterrupted}
	case client.UnknownCA(err):
		return &exitError{exitFailed, err.Error(), "if the server has its own CA, pass its certificate: kedge login URL --ca-file ca.pem (it is in the server's data folder)"}
	case errors.As(err, &unreachable):
		return &exitError{exitFailed, err.Error(), "check the address, and that the server runs and can be reached from here"}
	default:
		return refused(err)
	}
}

// misused is for command lines that no command could begin with.
func (a *app) misused(err error) *exitError {
	if a.chosen == nil {
		return &exitError{exitUsage, strings.TrimSpace(firstLine(err) + didYouMean(err)), "kedge --help"}
	}
	text, help := firstLine(err), a.chosen.CommandPath()+" --help"
	if rest, ok := strings.CutPrefix(text, `required flag(s) "`); ok {
		names := strings.ReplaceAll(strings.TrimSuffix(rest, `" not set`), `", "`, ", --")
		text = fmt.Sprintf("%s needs --%s: %s", a.chosen.CommandPath(), names, usageLine(a.chosen))
	}
	if rest, ok := strings.CutPrefix(text, "if any flags in the group ["); ok {
		names, _, _ := strings.Cut(rest, "]")
		text = fmt.Sprintf("%s takes only one of --%s", a.chosen.CommandPath(), strings.ReplaceAll(names, " ", ", --"))
	}
	return &exitError{exitUsage, text, help}
}

// refused explains a refused request with commands of this program: the detail of a problem names requests of the API.
func refused(err error) *exitError {
	problem := client.Problem(err)
	text := cmp.Or(problem.Message, err.Error())
	switch client.Status(err) {
	case http.StatusUnauthorized:
		return &exitError{exitFailed, "the token is missing, wrong or revoked", "kedge login URL"}
	case http.StatusNotFound:
		next := "kedge get deployments and kedge get agents list what there is; another tenant: --tenant NAME"
		if problem.List != "" {
			next = listing(path.Base(problem.List)) + " lists what there is; another tenant: --tenant NAME"
		}
		return &exitError{exitFailed, text, next}
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return &exitError{exitUsage, text, ""}
	case http.StatusForbidden:
		if problem.Reason == string(fleet.ReasonQuotaExceeded) {
			return &exitError{exitFailed, text, "delete what you do not need, or ask a fleet admin to raise the quota"}
		}
		return &exitError{exitFailed, text, "kedge login URL with a token that has the role, or another tenant: --tenant NAME"}
	default:
		return &exitError{exitFailed, text, ""}
	}
}

// listing is the command that lists what the API has under a name.
func listing(noun string) string {
	if noun == "runs" {
		return "kedge run get DEPLOYMENT"
	}
	return "kedge get " + noun
}

// didYouMean is the suggestion that cobra appends to some errors, in one line.
func didYouMean(err error) string {
	_, rest, ok := strings.Cut(err.Error(), "Did you mean this?\n")
	if !ok {
		return ""
	}
	return "; did you mean " + quoted(strings.Fields(rest)) + "?"
}

// firstLine drops the usage that cobra appends to some errors.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
