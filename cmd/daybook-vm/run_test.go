package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/victimtest"
	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// commandVariable makes the test binary the command.
const commandVariable = "DAYBOOK_VM_TEST_COMMAND"

func TestMain(m *testing.M) {
	vm.InitIfAsked()
	if os.Getenv(commandVariable) == "1" {
		main()
		os.Exit(0)
	}
	victimtest.HearSignals()
	os.Exit(m.Run())
}

// ran is the outcome of a command.
type ran struct {
	code           int
	stdout, stderr string
}

func command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), commandVariable+"=1")
	return cmd
}

func run(t *testing.T, args ...string) ran {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := command(args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func TestRun(t *testing.T) {
	vmtest.EachKernel(t, func(t *testing.T, kernel string) {
		vmtest.Need(t, kernel)
		dir := t.TempDir()
		given := filepath.Join(dir, "given")
		if err := os.WriteFile(given, []byte("given\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		disk := "--disk=" + filepath.Join(dir, "disk") + ":64M"
		got := run(t, "run", "--kernel", kernel, disk, "--pmem", "32M", "--modules", "ext4,bfq", "--memory", "512M", "--give", given+":/in/file", "--give", "mke2fs",
			"--fetch", "/tmp/out:"+filepath.Join(dir, "out"), "--append", "a.b=c", "--timeout", "2m", "--console", filepath.Join(dir, "console"), "--",
			"sh", "-c", "set -e; uname -r; cat /in/file >&2; mke2fs -q -t ext4 /dev/vda; mount /dev/vda /mnt; echo kept >/mnt/file; cat /proc/cmdline >/tmp/out; ls /dev/daybook; exit 42")
		if got.code != 42 || !strings.HasPrefix(got.stdout, kernel+".") || !strings.HasSuffix(got.stdout, "\ndisk0\npmem0\n") || got.stderr != "given\n" {
			t.Errorf("%+v", got)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "out")); err != nil || !strings.Contains(string(text), "a.b=c") {
			t.Errorf("fetched: %q, %v", text, err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "console")); err != nil || !strings.Contains(string(text), "[    ") {
			t.Errorf("the console: %q, %v", text, err)
		}
		// The disk was unmounted although the command did not unmount it, and
		// is kept.
		got = run(t, "run", "--kernel", kernel, disk, "--modules", "ext4", "--", "sh", "-c", "mount -o ro /dev/vda /mnt && cat /mnt/file")
		if got.code != 0 || got.stdout != "kept\n" || got.stderr != "" {
			t.Errorf("at the second boot: %+v", got)
		}
	})
}

func TestExitCodesOfRun(t *testing.T) {
	kernel := vmtest.Kernels(t)[0]
	vmtest.Need(t, kernel)
	for _, test := range []struct {
		code int
		said string
		args []string
	}{
		{127, "no-such-command", []string{"--", "no-such-command"}},
		{exitEnded, "powered off", []string{"--", "sh", "-c", "poweroff -f; sleep 60"}},
		{exitKilled, "killed after 300ms (--kill-after)", []string{"--kill-after", "300ms", "--", "sleep", "60"}},
		{exitPanicked, "kernel panicked", []string{"--", "sh", "-c", "echo c >/proc/sysrq-trigger"}},
		{exitTimeout, "the time-out of 6s expired", []string{"--timeout", "6s", "--", "sleep", "600"}},
		{exitTimeout, "the time-out of 100ms expired", []string{"--timeout", "100ms", "--", "true"}},
		{exitHarness, "cannot fetch /none", []string{"--fetch", "/none:" + t.TempDir(), "--", "true"}},
	} {
		t.Run(test.said, func(t *testing.T) {
			if test.code == exitEnded || test.code == exitHarness {
				vmtest.Long(t)
			}
			got := run(t, append([]string{"run", "--kernel", kernel}, test.args...)...)
			if got.code != test.code || !strings.Contains(got.stderr, test.said) {
				t.Errorf("%+v, want code %d", got, test.code)
			}
		})
	}
}

// A command that succeeded is no success of the whole if its files could not be fetched any more.
func TestAGuestThatIsGoneTooEarlyIsNoSuccess(t *testing.T) {
	for _, test := range []struct {
		gone    error
		fetches [][2]string
		code    int
	}{
		{vm.ErrEnded, nil, 0},
		{vm.ErrEnded, [][2]string{{"/out", "out"}}, 121},
		{fmt.Errorf("%w: BUG", vm.ErrPanicked), nil, 123},
		{errTimeout, nil, 124},
	} {
		err := request{fetches: test.fetches}.leftUndone(test.gone)
		var status statusError
		if errors.As(err, &status); status.code != test.code || (err == nil) != (test.code == 0) {
			t.Errorf("%v, %q: %v; want code %d", test.gone, test.fetches, err, test.code)
		}
	}
}

func TestOutputOfACommandThatCannotBeWrittenIsNoSuccess(t *testing.T) {
	kernel := vmtest.Kernels(t)[0]
	vmtest.Need(t, kernel)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	var stderr bytes.Buffer
	cmd := command("run", "--kernel", kernel, "--", "echo", "lost")
	cmd.Stdout, cmd.Stderr = full, &stderr
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != exitHarness || !strings.Contains(stderr.String(), "cannot write all of the command's output") {
		t.Errorf("exit code %d, %s", code, &stderr)
	}
}

func TestATimeOutEndsARunWhoseOutputNobodyReads(t *testing.T) {
	kernel := vmtest.Kernels(t)[0]
	vmtest.Need(t, kernel)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	var stderr bytes.Buffer
	cmd := command("run", "--kernel", kernel, "--timeout", "20s", "--", "yes")
	cmd.Stdout, cmd.Stderr = write, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	const patience = 5 * time.Minute
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); !late.Stop() || code != exitTimeout {
		t.Errorf("exit code %d, %s", code, &stderr)
	}
}

// The pipe holds up the fetch of a program of 2 MB until the time has passed.
func TestAGuestIsNotKilledAfterItsCommandHasEnded(t *testing.T) {
	kernel := vmtest.Kernels(t)[0]
	vmtest.Need(t, kernel)
	vmtest.Long(t)
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	const killAfter = 10 * time.Second
	var stderr bytes.Buffer
	cmd := command("run", "--kernel", kernel, "--kill-after", killAfter.String(), "--fetch", "/bin/busybox:"+pipe, "--", "echo", "up")
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if _, err := out.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(killAfter + time.Second)
	got, err := os.ReadFile(pipe)
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 0 || len(got) < 1<<20 {
		t.Errorf("exit code %d, fetched %d bytes: %s", code, len(got), &stderr)
	}
}

func TestMistakesOfRun(t *testing.T) {
	for said, args := range map[string][]string{
		"not a kernel that is pinned in vm/kernels/kernels.yaml: want 5.10 or 6.1 or 6.1-arm64 or 6.12 or 6.16 or 7.2 or 7.3": {"--kernel", "5.4", "--", "true"},
		"give one for arm64":                          {"--kernel", "6.1-arm64", "--", "true"},
		"--disk: disk \"big\": \"big\" is not a size": {"--disk", "big", "--", "true"},
		"want a multiple of 2 MiB":                    {"--pmem", "1M", "--", "true"},
		"no command to run":                           {"--kernel", "6.1"},
		"want GUESTPATH:HOSTPATH":                     {"--fetch", "x:y", "--", "true"},
		"unknown flag: --disc":                        {"--disc", "1G", "--", "true"},
		"at least 256 MiB":                            {"--memory", "1M", "--", "true"},
		"--timeout and --kill-after want a time":      {"--timeout", "0s", "--", "true"},
		"cgroup version 3":                            {"--cgroup", "3", "--", "true"},
		"--memory: \"much\" is not a size":            {"--memory", "much", "--", "true"},
	} {
		got := run(t, append([]string{"run"}, args...)...)
		if got.code != exitHarness || !strings.Contains(got.stderr, said) || got.stdout != "" {
			t.Errorf("%v: %+v; want %q", args, got, said)
		}
	}
	if got := run(t, "fetch", "--kernel", "5.4"); got.code != exitUsage || !strings.Contains(got.stderr, "want 5.10 or 6.1 or 6.1-arm64 or 6.12 or 6.16 or 7.2 or 7.3") {
		t.Errorf("%+v", got)
	}
	if got := run(t, "pin", "more"); got.code != exitUsage {
		t.Errorf("%+v", got)
	}
	for _, args := range [][]string{{"help", "frob"}, {"help", "run", "frob"}} {
		if got := run(t, args...); got.code != exitUsage || !strings.Contains(got.stderr, "frob") || got.stdout != "" {
			t.Errorf("%v: %+v", args, got)
		}
	}
	if got := run(t, "help", "run"); got.code != 0 || !strings.Contains(got.stdout, "--kill-after") {
		t.Errorf("help run: %+v", got)
	}
	if got := run(t, "foo"); got.code != exitUsage || !strings.Contains(got.stderr, "foo") || got.stdout != "" {
		t.Errorf("%+v", got)
	}
}

func TestHelp(t *testing.T) {
	got := run(t, "run", "--help")
	for _, want := range []string{"Examples:", "--kill-after", "125  no guest", "6.1-arm64 or 6.12"} {
		if got.code != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("no %q in the help", want)
		}
	}
	if got := run(t, "kernels"); got.code != 0 || !strings.Contains(got.stdout, "6.12") {
		t.Errorf("%+v", got)
	}
}

// Ctrl-C reaches the whole foreground process group.
func TestInterruptedRunEndsItsGuest(t *testing.T) {
	kernel := vmtest.Kernels(t)[0]
	vmtest.Need(t, kernel)
	cmd := command("run", "--kernel", kernel, "--", "sh", "-c", "echo up; sleep 600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line := make([]byte, 3)
	if _, err := out.Read(line); err != nil || string(line) != "up\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		t.Fatal("the command did not end")
	}
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("exit code %d", code)
	}
}
