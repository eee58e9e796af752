package ext4

import (
	"context"
	"strings"

	"github.com/daybook-project/daybook/internal/program"
)

// Signatures lists what a device holds, before something is written to it: types of
// file systems, partition tables and the like, as wipefs reports them. It changes nothing.
func Signatures(ctx context.Context, node string) ([]string, error) {
	output, err := program.Run(ctx, program.Command{
		Path: "wipefs", Args: []string{"--no-act", "--noheadings", "--output", "TYPE", node}, IfMissing: "install util-linux",
	})
	return strings.Fields(output), err
}
