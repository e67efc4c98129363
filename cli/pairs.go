package cli

import (
	"encoding/csv"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// pairs is a flag of key=value,… that may be given as empty, which pflag's own cannot: it removes all.
type pairs struct{ into *map[string]string }

func pairsFlag(f *pflag.FlagSet, into *map[string]string, name, usage string) {
	f.Var(pairs{into}, name, usage)
}

// Set implements pflag.Value. Given several times, it adds.
func (p pairs) Set(text string) error {
	if *p.into == nil {
		*p.into = map[string]string{}
	}
	if text == "" {
		return nil
	}
	fields, err := csv.NewReader(strings.NewReader(text)).Read()
	if err != nil {
		return err
	}
	for _, field := range fields {
		key, value, ok := strings.Cut(field, "=")
		if !ok {
			return fmt.Errorf("%s must be formatted as key=value", field)
		}
		(*p.into)[key] = value
	}
	return nil
}

// Type implements pflag.Value.
func (p pairs) Type() string { return "key=value,…" }

// String implements pflag.Value: what is not given changes nothing, so that there is no default.
func (p pairs) String() string { return "" }
