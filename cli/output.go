package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/output"
)

// outputFlags are the flags that say how a command prints its result.
type outputFlags struct {
	output.Format
	text      string
	noHeaders bool
	allowed   []string
}

// add defines the flags. Without allowed every format is.
func (o *outputFlags) add(cmd *cobra.Command, allowed ...string) {
	o.allowed = allowed
	if len(allowed) == 0 {
		o.allowed = output.Formats
	}
	cmd.Flags().StringVarP(&o.text, "output", "o", "", "output format: "+strings.Join(o.names(), "|")+" (default table)")
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "print tables without their header line")
	must(cmd.RegisterFlagCompletionFunc("output", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return o.allowed, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}))
}

// names are the allowed formats as help shows them.
func (o *outputFlags) names() []string {
	var out []string
	for _, name := range o.allowed {
		if strings.HasSuffix(name, "=") {
			name += "TEMPLATE"
		}
		out = append(out, name)
	}
	return out
}

// parse reads the flags.
func (o *outputFlags) parse() error {
	var err error
	if o.Format, err = output.ParseFormat(o.text, o.allowed); err != nil {
		return &exitError{exitUsage, err.Error(), "use one of " + strings.Join(o.names(), ", ")}
	}
	return nil
}

// table makes a table as the flags ask for it.
func (a *app) table(o outputFlags, header []string, rows ...[]string) output.Table {
	return output.Table{Header: header, Rows: rows, Wide: o.IsWide(), NoHeaders: o.noHeaders, Colour: a.colour()}
}

// facts prints names and values in two columns, without a header.
func (a *app) facts(rows [][]string) error {
	return output.Table{Header: []string{"", ""}, Rows: rows, NoHeaders: true, Colour: a.colour()}.Write(a.Out)
}

// printOne prints one value in the chosen format. table prints it as a table.
func (a *app) printOne(o outputFlags, v any, name string, table func() error) error {
	switch {
	case o.IsTable():
		return table()
	case o.IsName():
		_, err := fmt.Fprintln(a.Out, name)
		return err
	default:
		return o.Encode(a.Out, v)
	}
}

func (a *app) colour() bool { return isTerminal(a.Out) && a.Env("NO_COLOR") == "" }
