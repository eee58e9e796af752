package vm_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// One boot for each kernel shows all that commands can do.
func TestCommands(t *testing.T) {
	vmtest.EachKernel(t, func(t *testing.T, kernel string) {
		m := vmtest.BootWithKernelProblems(t, vm.Config{Kernel: kernel, Modules: []string{"ext4", "bfq"}})
		ctx := t.Context()
		t.Run("find a system", func(t *testing.T) { findASystem(t, m) })
		t.Run("give what they print", func(t *testing.T) {
			out, err := m.Run(ctx, "uname", "-r")
			if err != nil || strings.TrimSpace(out) != m.Kernel() || !strings.HasPrefix(out, kernel+".") {
				t.Errorf("%q, %v: want %s", out, err, m.Kernel())
			}
		})
		t.Run("keep standard output and standard error apart", func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			err := m.Do(ctx, vm.Command{Args: []string{"sh", "-c", "echo out; echo err >&2"}, Stdout: &stdout, Stderr: &stderr})
			if err != nil || stdout.String() != "out\n" || stderr.String() != "err\n" {
				t.Errorf("%q, %q, %v", &stdout, &stderr, err)
			}
		})
		t.Run("end with their status", func(t *testing.T) {
			for _, test := range []struct {
				args   []string
				code   int
				signal syscall.Signal
				status int
			}{
				{[]string{"sh", "-c", "echo why >&2; exit 3"}, 3, 0, 3},
				{[]string{"sh", "-c", "kill -TERM $$"}, 0, syscall.SIGTERM, 143},
				{[]string{"no-such-command"}, 127, 0, 127},
				{[]string{"/no/such/path"}, 127, 0, 127},
				{[]string{"/etc/passwd"}, 126, 0, 126},
			} {
				_, err := m.Run(ctx, test.args...)
				var exit *vm.ExitError
				if !errors.As(err, &exit) || exit.Code != test.code || exit.Signal != test.signal || exit.Status() != test.status {
					t.Errorf("%v: %#v, want code %d, signal %d", test.args, err, test.code, test.signal)
				}
			}
			_, err := m.Run(ctx, "sh", "-c", "echo why >&2; exit 3")
			if err == nil || !strings.Contains(err.Error(), "exit status 3: why") {
				t.Errorf("the error does not say what the command said: %v", err)
			}
		})
		t.Run("get environment and directory", func(t *testing.T) {
			var stdout bytes.Buffer
			err := m.Do(ctx, vm.Command{
				Args: []string{"sh", "-c", "echo $A $HOME $(pwd)"}, Env: []string{"A=b c", "HOME=/tmp"}, Dir: "/usr/bin", Stdout: &stdout,
			})
			if err != nil || stdout.String() != "b c /tmp /usr/bin\n" {
				t.Errorf("%q, %v", &stdout, err)
			}
		})
		t.Run("run beside each other, and get signals", func(t *testing.T) {
			sleeper, err := m.Start(vm.Command{Args: []string{"sh", "-c", "sleep 1000 & wait"}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.Run(ctx, "true"); err != nil {
				t.Error(err)
			}
			if err := sleeper.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			var exit *vm.ExitError
			if err := sleeper.Wait(ctx); !errors.As(err, &exit) || exit.Signal != syscall.SIGINT {
				t.Errorf("%v", err)
			}
		})
		t.Run("are killed when their context ends", func(t *testing.T) {
			why := errors.New("enough")
			short, cancel := context.WithTimeoutCause(ctx, 100*time.Millisecond, why)
			defer cancel()
			if _, err := m.Run(short, "sleep", "54321"); !errors.Is(err, why) {
				t.Errorf("%v", err)
			}
			out, err := m.Run(ctx, "sh", "-c", "while pgrep -f 'sleep 5432[1]'; do sleep 0.1; done; echo gone")
			if err != nil || !strings.HasSuffix(out, "gone\n") {
				t.Errorf("%q, %v", out, err)
			}
		})
		t.Run("may leave something running that holds their output", func(t *testing.T) {
			out, err := m.Run(ctx, "sh", "-c", "sleep 1000 & echo started")
			if err != nil || out != "started\n" {
				t.Errorf("%q, %v", out, err)
			}
		})
		t.Run("may print much", func(t *testing.T) {
			var stdout bytes.Buffer
			err := m.Do(ctx, vm.Command{Args: []string{"sh", "-c", "seq 1 500000"}, Stdout: &stdout})
			lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
			if err != nil || len(lines) != 500000 || lines[499999] != "500000" {
				t.Errorf("%d lines, %v", len(lines), err)
			}
		})
		t.Run("leave no zombies", func(t *testing.T) {
			if _, err := m.Run(ctx, "sh", "-c", "(sleep 0.2 &) ; true"); err != nil {
				t.Fatal(err)
			}
			out, err := m.Run(ctx, "sh", "-c", "sleep 0.5; ps -o stat,args | grep '^Z' || true")
			if err != nil || out != "" {
				t.Errorf("%q, %v", out, err)
			}
		})
		if problems := m.KernelProblems(); problems != nil {
			t.Errorf("the kernel is not well: %q", problems)
		}
		t.Run("are told when the kernel panics", func(t *testing.T) {
			_, err := m.Run(ctx, "sh", "-c", "echo c >/proc/sysrq-trigger")
			if !errors.Is(err, vm.ErrPanicked) || !strings.Contains(err.Error(), "sysrq triggered crash") {
				t.Errorf("the command's error: %v", err)
			}
			if !errors.Is(m.Err(), vm.ErrPanicked) {
				t.Errorf("the guest is gone because: %v", m.Err())
			}
			if problems := m.KernelProblems(); len(problems) == 0 || !strings.Contains(problems[0], "Kernel panic") {
				t.Errorf("problems: %q", problems)
			}
		})
	})
}

// findASystem looks for what docs/vm-reference.md says is in a guest.
func findASystem(t *testing.T, m *vm.Machine) {
	for script, want := range map[string]string{
		"grep -c ' /sys/fs/cgroup cgroup2 ' /proc/mounts":                   "1",
		"tr ' ' '\\n' </sys/fs/cgroup/cgroup.subtree_control | grep -cx io": "1",
		"cd /sys/fs/cgroup; cmp cgroup.controllers cgroup.subtree_control":  "",
		"ls /sys/kernel/tracing/events/jbd2/jbd2_run_stats/id":              "/sys/kernel/tracing/events/jbd2/jbd2_run_stats/id",
		"ls -d /sys/kernel/debug/block":                                     "/sys/kernel/debug/block",
		"ls /sys/kernel/btf/vmlinux /sys/kernel/btf/ext4":                   "/sys/kernel/btf/ext4\n/sys/kernel/btf/vmlinux",
		"grep -c ' /sys/fs/bpf bpf ' /proc/mounts":                          "1",
		"stat -f -c %T /tmp; stat -c %a /tmp":                               "tmpfs\n1777",
		"ping -c1 -q 127.0.0.1 >/dev/null":                                  "",
		"hostname":                                                          "daybook-vm",
		"ulimit -n":                                                         "524288",
		"ulimit -l":                                                         "unlimited",
		"id -un; whoami; echo $HOME":                                        "root\nroot\n/root",
		"touch /file && ls /file":                                           "/file",
		"nproc":                                                             "2",
		"lsmod | grep -cw ^bfq":                                             "1",
		"modprobe crypto-crc32c && echo known":                              "known",
		"command -v mke2fs":                                                 "/usr/lib/daybook-vm/applets/mke2fs",
		"readlink /proc/1/exe":                                              vm.Self,
		"echo '#!/usr/bin/env sh\necho script' >/tmp/s; chmod +x /tmp/s; /tmp/s": "script",
	} {
		if out, err := m.Run(t.Context(), "sh", "-c", script); err != nil || strings.TrimSpace(out) != want {
			t.Errorf("%s: %q, %v; want %q", script, out, err, want)
		}
	}
}
