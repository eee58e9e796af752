package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/daemon/node"
)

func newK8sCommand() *cobra.Command {
	b := &bench{name: "k8s", command: "make bench-k8s"}
	var from string
	var busy bool
	cmd := &cobra.Command{
		Use:   "k8s",
		Short: "Write the page of the agent on a real Kubernetes node",
		Long: `K8s writes the page from figures that the tests on a real node measured ("make
bench-k8s", "make k8s-test"). It measures nothing itself. It fails if a goal is missed.`,
		Example: "  daybook-bench k8s --docs docs/results",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var result node.Result
			if err := b.readKept(from, &result); err != nil {
				return err
			}
			result.Busy = busy
			return b.finish(cmd, result)
		},
	}
	b.flags(cmd)
	_ = cmd.Flags().MarkHidden("quick")
	cmd.Flags().StringVar(&from, "from", filepath.Join("build", "bench", "k8s.json"), "`FILE` with the figures")
	cmd.Flags().BoolVar(&busy, "busy", false, "state on the page that other programs used the host during the measurement")
	return cmd
}
