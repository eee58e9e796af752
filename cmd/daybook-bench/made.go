package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/daybook-project/daybook/internal/safetext"
)

// placesOfFiles are flags that have no part in a measurement.
var placesOfFiles = []string{"output", "docs", "again", "from", "advice", "source", "recordings", "module", "busy", "quick"}

// made is the command that makes the page again.
func (b *bench) made() string {
	target := cmp.Or(b.target, b.name)
	switch words := strings.Fields(b.chosen); {
	case b.quick && !b.kept:
		return strings.Join(append([]string{"daybook-bench", target, "--quick"}, words...), " ")
	case len(words) == 0 || b.kept:
		return cmp.Or(b.command, "make bench-"+target)
	case len(words) == 1:
		return "make bench-" + target + " BENCHFLAGS=" + b.chosen
	default:
		return "make bench-" + target + ` BENCHFLAGS="` + b.chosen + `"`
	}
}

// chosen returns the flags by which the user changed what is measured.
func chosen(cmd *cobra.Command) string {
	var words []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch values, isSlice := f.Value.(pflag.SliceValue); {
		case slices.Contains(placesOfFiles, f.Name):
		case isSlice:
			words = append(words, "--"+f.Name, safetext.Word(strings.Join(values.GetSlice(), ",")))
		case f.Value.Type() == "bool":
			words = append(words, "--"+f.Name+map[bool]string{false: "=false"}[f.Value.String() == "true"])
		default:
			words = append(words, "--"+f.Name, safetext.Word(f.Value.String()))
		}
	})
	return strings.Join(words, " ")
}
