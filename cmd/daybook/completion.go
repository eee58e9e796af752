package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func newCompletionCommand() *cobra.Command {
	write := map[string]func(root *cobra.Command, w io.Writer) error{
		"bash": func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"fish": func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) },
		"zsh":  func(root *cobra.Command, w io.Writer) error { return root.GenZshCompletion(w) },
	}
	return &cobra.Command{
		Use:   "completion bash|fish|zsh",
		Short: "Print the completion script for a shell",
		Long: `Completion writes, to the standard output, a script that lets the shell complete
daybook's commands, flags, disks, volumes and laws. The packaged names are
/usr/share/bash-completion/completions/daybook, /usr/share/zsh/site-functions/_daybook
and /usr/share/fish/vendor_completions.d/daybook.fish.`,
		Example: `  source <(daybook completion bash)
  daybook completion zsh > /usr/share/zsh/site-functions/_daybook`,
		ValidArgs: []cobra.Completion{"bash", "fish", "zsh"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || write[args[0]] == nil {
				return usageError{fmt.Errorf("want one of bash, fish and zsh")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return write[args[0]](cmd.Root(), cmd.OutOrStdout())
		},
	}
}

// completeWith completes the value of a flag with one of these. The only possible error is a
// flag that does not exist.
func completeWith(cmd *cobra.Command, flag string, values ...cobra.Completion) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// completeDisks completes a flag with the names of disks.
func completeDisks(cmd *cobra.Command, flag string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return diskNames(), cobra.ShellCompDirectiveNoFileComp
	})
}
