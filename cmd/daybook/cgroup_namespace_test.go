package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/cgrouptest"
	"github.com/daybook-project/daybook/internal/needs"
)

// As in a container of Podman on cgroup v2, which also has a mount of its own there. It would show no
// other container.
func TestCommandsInACgroupNamespaceOfTheirOwnSayThatTheySeeNoContainer(t *testing.T) {
	needs.Root(t)
	unshare := needs.Tool(t, "unshare")
	tree := cgrouptest.Tree(t)
	own := filepath.Join(tree.Root(), cgrouptest.New(t, tree, "namespace"), "cgroup.procs")
	kind := map[cgroup.Version]string{cgroup.V1: "cgroup -o blkio", cgroup.V2: "cgroup2"}[tree.Version()]
	mount := fmt.Sprintf("umount -l %[1]s && mount -t %[2]s none %[1]s", tree.Root(), kind) // in the namespace alone
	config := filepath.Join(t.TempDir(), "control.yaml")
	if err := os.WriteFile(config, []byte("devices: [loop0]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, arguments := range []string{
		"top --once --interval 1s", "metrics --listen 127.0.0.1:0", "blame --interval 1s", "advise --interval 1s",
		"control --config " + config, "adopt / --cgroup /x --state-dir " + t.TempDir(),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		words := append([]string{"-c", `echo $$ >"$0" && exec "$@"`, own, unshare, "--cgroup", "--mount", "sh", "-c", mount + ` && exec "$0" "$@"`, os.Args[0]}, strings.Fields(arguments)...)
		command := exec.CommandContext(ctx, "sh", words...)
		command.Env = append(os.Environ(), commandVariable+"=1")
		out, err := command.CombinedOutput()
		cancel()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != exitUnsupported || !strings.Contains(string(out), "--cgroupns host") {
			t.Errorf("%s: %v, want the exit status %d and a message: %s", arguments, err, exitUnsupported, out)
		}
	}
}
