package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker for a release: -ldflags "-X main.version=v1.2.3".
var version string

// buildVersion is the version of this binary: that of the release, or else the
// one that the Go command read from the source repository.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}

// buildSetting is a setting that the Go command stored in the binary, "" if it
// is missing.
func buildSetting(key string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == key {
				return s.Value
			}
		}
	}
	return ""
}

func newVersionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of daybook",
		Long: `Version prints the version of daybook, the revision of the source it was built
from, and the Go version and platform it was built with.`,
		Example: `  daybook version
  daybook version --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			platform := runtime.GOOS + "/" + runtime.GOARCH
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(struct {
					Version  string `json:"version"`
					Revision string `json:"revision"`
					Go       string `json:"go"`
					Platform string `json:"platform"`
				}{buildVersion(), buildSetting("vcs.revision"), runtime.Version(), platform})
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "daybook %s (%s, %s)\n", buildVersion(), runtime.Version(), platform)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write a JSON object")
	return cmd
}
