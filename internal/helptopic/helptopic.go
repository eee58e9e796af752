// Package helptopic lets "PROGRAM help NAME" reject an unknown name: cobra shows the nearest
// command's help instead, and succeeds.
package helptopic

import "github.com/spf13/cobra"

// Check adds that to a program. unknown is called with the nearest command and what follows
// its name; it returns nil if nothing does.
func Check(root *cobra.Command, unknown cobra.PositionalArgs) {
	root.InitDefaultHelpCmd()
	for _, command := range root.Commands() {
		if command.Name() != "help" {
			continue
		}
		command.Args = func(_ *cobra.Command, args []string) error {
			// The error of Find is of the first name, which unknown rejects, too.
			nearest, rest, err := root.Find(args)
			if err != nil {
				nearest, rest = root, args
			}
			return unknown(nearest, rest)
		}
		root.RemoveCommand(command) // cobra adds it again, after all others
		return
	}
}
