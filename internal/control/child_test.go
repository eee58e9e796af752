package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
)

// child is another process that controls the testbed's disk.
type child struct {
	cmd    *exec.Cmd
	output io.Reader
	ended  bool
}

const childEnv = "DAYBOOK_CONTROL_TEST_CHILD"

func (b *testbed) startChild(t *testing.T, stateDir string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestMain$")
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(append([]string{b.disk.Name, stateDir, b.parent}, b.cgroups...), "\n"))
	// It must not outlive a killed test run.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: cmd, output: output}
	t.Cleanup(func() { c.kill(t) })
	return c
}

func (c *child) kill(t *testing.T) {
	t.Helper()
	if c.ended {
		return
	}
	c.ended = true
	if err := c.cmd.Process.Kill(); err != nil {
		t.Errorf("kill: %v", err)
	}
	var exit *exec.ExitError
	if err := c.cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the child ended by itself: %v", err)
	}
}

// waitUntilRunning returns when the child has answered its tenth interval.
func (c *child) waitUntilRunning(t *testing.T) {
	t.Helper()
	scanner := bufio.NewScanner(c.output)
	for n := 0; n < 10; n++ {
		if !scanner.Scan() {
			t.Fatal("the child ended")
		}
	}
	go func() { // it must not block when a pipe is full
		for scanner.Scan() {
		}
	}()
}

func TestMain(m *testing.M) {
	job := os.Getenv(childEnv)
	if job == "" {
		os.Exit(m.Run())
	}
	if err := beChild(strings.Split(job, "\n")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func beChild(job []string) error {
	disk, err := blockdev.Lookup(job[0])
	if err != nil {
		return err
	}
	tree, err := cgroup.Find()
	if err != nil {
		return err
	}
	b := &testbed{disk: disk, tree: tree, parent: job[2], cgroups: job[3:]}
	if b.host, err = OpenHost(tree, disk); err != nil {
		return err
	}
	if b.host.Weights.File() != "io.weight" {
		b.tunables = FairTunables()
	}
	options := b.options(job[1])
	options.OpenSource = b.restless()
	if os.Getpid()%2 == 0 {
		options.Config.Actuator = ActuatorLimits
	}
	options.OnInterval = func(Decision) { fmt.Println("interval") }
	return Run(context.Background(), options)
}
