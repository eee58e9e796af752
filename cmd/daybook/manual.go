package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// rootLong is the help of the command without a subcommand and the head of the
// manual: the facts that no single command's help contains.
const rootLong = `Linux charges the writes of the ext4 journal to the root cgroup, so no weight or limit
of a container applies to them. Daybook shows which container caused them (top),
corrects I/O weights until measured shares match the configured ones (control), and
gives a container its own file system and journal (volume).

Exit codes:
  0    the work is done
  1    the work failed, or a check found something wrong (doctor, --check-config)
  2    the command line, or a file given to it, is wrong
  3    this host lacks something: root, BTF, BFQ or FUSE
  130  interrupted by Ctrl-C, SIGTERM, SIGHUP or SIGQUIT, after cleaning up;
       control, adopt, agent, volume keep and serve docker, which run until then,
       end with 0
  141  nobody reads the output any more, as after "| head"; after cleaning up

Files:
  /sys/fs/cgroup     cgroups (read), their weights and limits (written)
  /sys/kernel/btf    the kernel's types, which the eBPF programs need
  /var/lib/daybook   settings to restore, calibrations, list of pools, default pool

Environment:
  DAYBOOK_POOL       the pool of daybook volume without --pool
  NO_COLOR           if not empty, screens have no colours`

const rootExample = `  # Which container causes the journal's writes?
  sudo daybook top

  # Enforce the configured shares, and restore all weights
  sudo daybook control --config /etc/daybook/control.yaml --device sda
  sudo daybook restore`

// knownCommand rejects an unknown subcommand and suggests the nearest names.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	hint := "see " + cmd.CommandPath() + " --help"
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return usageError{fmt.Errorf("there is no command %q; %s", args[0], hint)}
}

// noArgs rejects arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no arguments, got %q", cmd.CommandPath(), args[0])}
	}
	return nil
}
