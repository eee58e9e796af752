package program

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/cgrouptest"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/procstat"
)

// parentVariable makes the test binary start a program, print its number, and
// wait to be killed.
const parentVariable = "DAYBOOK_PROGRAM_TEST_PARENT"

func TestMain(m *testing.M) {
	if kind := os.Getenv(parentVariable); kind != "" {
		c := Command{Path: "sleep", Args: []string{"1000"}}
		if kind == "nobody" {
			c.User = &Nobody
		}
		c.Completes = kind == "completes"
		p, err := Start(c)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(p.PID())
		select {}
	}
	os.Exit(m.Run())
}

// gone waits until a process ends; a zombie has ended, too.
func gone(t *testing.T, pid int) {
	t.Helper()
	deadline := time.Now().Add(awaittest.Patience)
	for {
		process, err := procstat.Read(pid)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || err == nil && process.State == 'Z' {
			return
		}
		if time.Now().After(deadline) {
			_ = unix.Kill(pid, unix.SIGKILL)
			t.Fatalf("process %d is still alive", pid)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestAProgramDiesWithItsParent(t *testing.T) {
	for _, kind := range []string{"own", "nobody", "completes"} {
		t.Run(kind, func(t *testing.T) {
			if kind == "nobody" {
				needs.Root(t)
			}
			parent := exec.Command("/proc/self/exe")
			parent.Env = append(os.Environ(), parentVariable+"="+kind)
			output, err := parent.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := parent.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(output).ReadString('\n')
			pid, numberErr := strconv.Atoi(strings.TrimSpace(line))
			if err != nil || numberErr != nil {
				t.Fatalf("the parent prints %q: %v", line, err)
			}
			if kind == "nobody" {
				awaitUser(t, pid, Nobody.UID)
			}
			if err := parent.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = parent.Wait()
			if kind == "completes" {
				time.Sleep(50 * time.Millisecond) // a death signal is there at once
				if err := unix.Kill(pid, 0); err != nil {
					t.Errorf("it ended with its parent: %v", err)
				}
				if err := unix.Kill(pid, unix.SIGKILL); err != nil {
					t.Error(err)
				}
			}
			gone(t, pid)
		})
	}
}

// awaitUser waits until setpriv has become the program.
func awaitUser(t *testing.T, pid, uid int) {
	t.Helper()
	for range 12000 {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		info, statErr := os.Stat(fmt.Sprintf("/proc/%d", pid))
		if err == nil && statErr == nil && strings.TrimSpace(string(comm)) == "sleep" && int(info.Sys().(*syscall.Stat_t).Uid) == uid {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("process %d did not become sleep of user %d", pid, uid)
}

func TestAProgramIsInItsCgroupFromItsFirstInstruction(t *testing.T) {
	needs.Root(t)
	tree := cgrouptest.Tree(t)
	path := cgrouptest.New(t, tree, "program")
	directory := tree.Root() + path
	// This is the cgroup and the user that the program itself sees first.
	output, err := Run(t.Context(), Command{Path: "sh", Args: []string{"-c", "cat /proc/self/cgroup; id -u"}, Cgroup: directory, User: &Nobody})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(output, ":"+path+"\n") || !strings.HasSuffix(output, "\n65534\n") {
		t.Errorf("the program prints %q; want the cgroup %s and the user 65534", output, path)
	}

	p, err := Start(Command{Path: "sleep", Args: []string{"1000"}, Cgroup: directory})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	var pids []int
	for range 12000 { // until the shell has entered
		if pids, err = tree.Processes(path); err != nil || len(pids) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil || !slices.Equal(pids, []int{p.PID()}) {
		t.Errorf("in the cgroup are %v, %v; want %d", pids, err, p.PID())
	}
}

func TestStopEndsAProgramInOrderAndKillsOneThatDoesNot(t *testing.T) {
	orderly, err := Start(Command{Path: "sh", Args: []string{"-c", "trap 'echo ended in order; exit 0' TERM; echo ready; while :; do sleep 0.05; done"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 12000 {
		if orderly.Said() != "" {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := orderly.Stop(syscall.SIGTERM, awaittest.Patience); err != nil {
		t.Error(err)
	}
	if got := orderly.Said(); got != "ready\nended in order" {
		t.Errorf("it said %q", got)
	}
	if err := orderly.Stop(syscall.SIGTERM, awaittest.Patience); err != nil {
		t.Errorf("stopping what has ended: %v", err)
	}

	// The child of the program that ignores signals must be killed with it.
	deaf, err := Start(Command{Path: "sh", Args: []string{"-c", "trap '' TERM; sleep 1000 & echo $!; wait"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 12000 {
		if deaf.Said() != "" {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	child, err := strconv.Atoi(deaf.Said())
	if err != nil {
		t.Fatal(err)
	}
	if err := deaf.Stop(syscall.SIGTERM, 50*time.Millisecond); err == nil {
		t.Error("killing a program that ignores signals is no error")
	}
	gone(t, deaf.PID())
	gone(t, child)
}

func TestAProgramThatCannotBeStartedIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		command Command
		want    string
	}{
		"program": {Command{Path: "daybook-no-such-program"}, "daybook-no-such-program"},
		"cgroup":  {Command{Path: "true", Cgroup: "/nowhere"}, "/nowhere"},
	} {
		if _, err := Start(c.command); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v; want an error that names %s", name, err, c.want)
		}
	}
	_, err := Run(t.Context(), Command{Path: "sh", Args: []string{"-c", "echo out of luck; exit 3"}})
	if err == nil || !strings.Contains(err.Error(), "out of luck") {
		t.Errorf("a failing program: got %v; want its output", err)
	}
}

func TestTheContextEndsAProgram(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	p, err := Start(Command{Path: "sleep", Args: []string{"1000"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v; want the context's error", err)
	}
	gone(t, p.PID())
}

// Such as a command of LVM, which could leave a device suspended.
func TestTheContextDoesNotEndAProgramThatCompletes(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dir := t.TempDir()
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(dir, "started")); err == nil {
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
		_ = os.WriteFile(filepath.Join(dir, "cancelled"), nil, 0o600) // else the program waits in vain
	}()
	output, err := Run(ctx, Command{Path: "sh", Args: []string{"-c", `: >started; while [ ! -e cancelled ]; do sleep 0.05; done; sleep 0.2; echo done`}, Directory: dir, Completes: true})
	if err != nil || output != "done\n" || ctx.Err() == nil {
		t.Errorf("got %q, %v", output, err)
	}
}

func TestOutputIsKeptToItsEnd(t *testing.T) {
	var kept tail
	for n := range 2 * tailBytes / 64 {
		if _, err := fmt.Fprintf(&kept, "%063d\n", n); err != nil {
			t.Fatal(err)
		}
	}
	text := kept.String()
	if len(text) != tailBytes || !strings.HasSuffix(text, fmt.Sprintf("%063d\n", 2*tailBytes/64-1)) {
		t.Errorf("%d bytes kept, ending in %q", len(text), text[len(text)-64:])
	}
}

func TestDirectoriesOfKilledProcessesAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	mine, err := PrivateDirectory("test")
	if err != nil {
		t.Fatal(err)
	}
	// No process has this number.
	dead := filepath.Join(os.TempDir(), "daybook-test-4194305-1")
	other := filepath.Join(os.TempDir(), "daybook-test-somebody")
	for _, directory := range []string{dead, other} {
		if err := os.Mkdir(directory, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	again, err := PrivateDirectory("test")
	if err != nil || again == mine {
		t.Fatalf("%s, %v", again, err)
	}
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dead process's directory was left: %v", err)
	}
	for _, directory := range []string{mine, again, other} {
		if _, err := os.Stat(directory); err != nil {
			t.Error(err)
		}
	}
}
