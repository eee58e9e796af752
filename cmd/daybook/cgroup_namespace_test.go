package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/cgrouptest"
	"github.com/daybook-project/daybook/internal/doctor"
	"github.com/daybook-project/daybook/internal/needs"
)

// inNamespaces returns a daybook command in a cgroup namespace and a mount namespace of its own,
// in which the shell runs mount first.
func inNamespaces(t *testing.T, mount, arguments string) *exec.Cmd {
	t.Helper()
	needs.Root(t)
	unshare := needs.Tool(t, "unshare")
	tree := cgrouptest.Tree(t)
	own := filepath.Join(tree.Root(), cgrouptest.New(t, tree, "namespace"), "cgroup.procs")
	words := append([]string{"-c", `echo $$ >"$0" && exec "$@"`, own, unshare, "--cgroup", "--mount", "sh", "-c", mount + ` && exec "$0" "$@"`, os.Args[0]}, strings.Fields(arguments)...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	command := exec.CommandContext(ctx, "sh", words...)
	command.Env = append(os.Environ(), commandVariable+"=1")
	return command
}

// ofItsOwn mounts what a cgroup namespace has in the place of the hierarchy, as Podman does on
// cgroup v2.
func ofItsOwn(t *testing.T) string {
	t.Helper()
	tree := cgrouptest.Tree(t)
	kind := map[cgroup.Version]string{cgroup.V1: "cgroup -o blkio", cgroup.V2: "cgroup2"}[tree.Version()]
	return fmt.Sprintf("umount -l %[1]s && mount -t %[2]s none %[1]s", tree.Root(), kind)
}

// refusesAPart fails unless a command ends with the right exit status and advice.
func refusesAPart(t *testing.T, command *exec.Cmd) {
	t.Helper()
	out, err := command.CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != exitUnsupported || !strings.Contains(string(out), cgroup.AdvicePartial) {
		t.Errorf("%v, want the exit status %d and a message: %s", err, exitUnsupported, out)
	}
}

// It would show no other container.
func TestCommandsInACgroupNamespaceOfTheirOwnSayThatTheySeeNoContainer(t *testing.T) {
	config := filepath.Join(t.TempDir(), "control.yaml")
	if err := os.WriteFile(config, []byte("devices: [loop0]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, arguments := range []string{
		"top --once --interval 1s", "metrics --listen 127.0.0.1:0", "blame --interval 1s", "advise --interval 1s",
		"control --config " + config, "adopt / --cgroup /x --state-dir " + t.TempDir(),
	} {
		t.Run(strings.Fields(arguments)[0], func(t *testing.T) { refusesAPart(t, inNamespaces(t, ofItsOwn(t), arguments)) })
	}
}

func TestDoctorSaysThatItSeesAPartOfTheCgroups(t *testing.T) {
	for mount, want := range map[string]bool{ofItsOwn(t): true, "true": false} {
		t.Run(mount, func(t *testing.T) {
			out, err := inNamespaces(t, mount, "doctor --json").Output() // the exit status is about other findings, too
			var report doctor.Report
			if json.Unmarshal(out, &report) != nil || report.Facts.Cgroups.Partial != want || (report.Facts.Cgroups.Version == "") != want {
				t.Errorf("%v, want partial: %t: %s", err, want, out)
			}
		})
	}
}

// As in a privileged container with a cgroup namespace of its own and the host's /sys: it sees
// all cgroups, but /proc/PID/cgroup names them otherwise.
func TestACgroupNamespaceAloneHidesNoContainerFromTop(t *testing.T) {
	out, err := inNamespaces(t, "true", "top --once --interval 1s").CombinedOutput()
	if strings.Contains(string(out), cgroup.ErrPartial.Error()) {
		t.Errorf("top: %v: %s", err, out)
	}
	t.Run("adopt", func(t *testing.T) {
		refusesAPart(t, inNamespaces(t, "true", "adopt / --cgroup /x --state-dir "+t.TempDir()))
	})
}

// At the boot the unit can be earlier than the mount.
func TestAdoptWaitsForAHierarchyThatIsNotMountedYet(t *testing.T) {
	layout, err := cgroup.Mounted()
	if err != nil {
		t.Fatal(err)
	}
	points := append([]string{cgrouptest.Tree(t).Root()}, layout.V2...)
	dir := t.TempDir()
	config := filepath.Join(dir, "adopt.yaml")
	if err := os.WriteFile(config, []byte("mounts: [{mountpoint: "+dir+", cgroup: /x}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	command := inNamespaces(t, "{ umount -l "+strings.Join(points, " ")+" || :; }", "adopt --config "+config+" --state-dir "+dir)
	said, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for buffer := make([]byte, 4096); !strings.Contains(all.String(), "not all are placed yet"); {
		n, err := said.Read(buffer)
		all.Write(buffer[:n])
		if err != nil {
			break
		}
	}
	if !strings.Contains(all.String(), "not all are placed yet") {
		t.Errorf("it does not wait: %s", all.String())
	}
	_ = command.Process.Signal(syscall.SIGTERM) // if it has ended, Wait says how
	if err := command.Wait(); err != nil {
		t.Errorf("%v: %s", err, all.String())
	}
}
