package workload

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// environment passes the Spec to the child.
const environment = "DAYBOOK_WORKLOAD"

// RunIfAsked makes this process the load if its environment requests it, and
// then never returns. main and TestMain of programs that use Start call it
// first.
//
// The protocol uses standard input and output. The child waits for one line
// (before that, it is put into its cgroup), works until its input closes or
// SIGTERM, and prints its Result as JSON.
func RunIfAsked() {
	text, asked := os.LookupEnv(environment)
	if !asked {
		return
	}
	if err := runChild(text, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "workload:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runChild(text string, in io.Reader, out io.Writer) error {
	var spec Spec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return fmt.Errorf("cannot read the workload from %s: %w", environment, err)
	}
	if err := spec.Check(); err != nil {
		return err
	}
	input := bufio.NewReader(in)
	if _, err := input.ReadString('\n'); err != nil {
		return nil // the owner ended before the start
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, input) // until the owner closes or dies
		cancel()
	}()
	// The experiment is about the disk: a higher priority reduces waits for a
	// processor, as on a host with more of them.
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -10)
	result, err := run(ctx, spec)
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return json.NewEncoder(out).Encode(result)
}
