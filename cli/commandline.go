package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagAliases are older spellings of flags, which scripts use. Each flag has one spelling in help.
var flagAliases = map[string]string{
	"environment": "env", "labels": "label", "repository": "repo", "variables": "var", "to-revision": "revision", "match-label": "match-labels",
}

// canonicalFlag is the spelling of a flag in help.
func canonicalFlag(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if canonical, ok := flagAliases[name]; ok {
		name = canonical
	}
	return pflag.NormalizedName(name)
}

// typeFirst puts the type of kedge get before the flags, and divides TYPE/NAME, so that kedge get -o yaml deployment/web
// is the same as kedge get deployment web -o yaml.
func typeFirst(root *cobra.Command, args []string) []string {
	if len(args) < 2 {
		return args
	}
	get, _, err := root.Find(args[:1])
	if err != nil || get.Name() != "get" || get.Parent() != root {
		return args
	}
	i := firstArgument(get, args[1:])
	if i < 0 {
		return args
	}
	rest := slices.Concat(args[1:1+i], args[2+i:])
	kind, name, ok := strings.Cut(args[1+i], "/")
	if ok && slices.ContainsFunc(get.Commands(), func(c *cobra.Command) bool { return c.Name() == kind || c.HasAlias(kind) }) {
		return slices.Concat([]string{args[0], kind, name}, rest)
	}
	return slices.Concat([]string{args[0], args[1+i]}, rest)
}

// firstArgument is the index of the first word that is neither a flag nor the value of one, or -1.
func firstArgument(get *cobra.Command, args []string) int {
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--":
			return -1
		case !strings.HasPrefix(args[i], "-"):
			return i
		case !strings.Contains(args[i], "=") && takesValue(get, args[i]):
			i++
		}
	}
	return -1
}

// takesValue reports whether the word after a flag is its value.
func takesValue(get *cobra.Command, word string) bool {
	for _, cmd := range append([]*cobra.Command{get}, get.Commands()...) {
		for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.InheritedFlags()} {
			flag := flags.Lookup(strings.TrimPrefix(word, "--"))
			if !strings.HasPrefix(word, "--") {
				if len(word) != 2 {
					return false
				}
				flag = flags.ShorthandLookup(word[1:])
			}
			if flag != nil {
				return flag.NoOptDefVal == ""
			}
		}
	}
	return false
}

// similarCommands suggests the subcommands that a mistyped word may mean.
func similarCommands(cmd *cobra.Command, word string) string {
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	found := cmd.SuggestionsFor(word)
	if len(found) == 0 {
		return ""
	}
	return "; did you mean " + quoted(found) + "?"
}

// similarFlags suggests the flags that an unknown flag may mean.
func similarFlags(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || len(unknown.GetSpecifiedName()) < 2 {
		return ""
	}
	// Cobra measures distances for commands only.
	names := &cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names.AddCommand(&cobra.Command{Use: "--" + f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	found := names.SuggestionsFor("--" + unknown.GetSpecifiedName())
	if len(found) == 0 {
		return ""
	}
	return "; did you mean " + quoted(found) + "?"
}

// quoted is a list of words as a sentence has it.
func quoted(words []string) string {
	var out []string
	for _, word := range words {
		out = append(out, fmt.Sprintf("%q", word))
	}
	return strings.Join(out, " or ")
}
