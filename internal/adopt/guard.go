package adopt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/cgroup"
)

// A thread in the cgroup of a container that has ended prevents the removal of the cgroup,
// also after the death of the keeper. So a separate process, the guardian, waits for the
// keeper's death and then undoes its placements. It is in a session of its own and in the
// root cgroups, so that what ends the keeper's service or container does not end it too.

const (
	// guardVariable in the environment makes a program that calls [GuardIfAsked] a
	// guardian, with the state directory and the keeper's process ID as arguments.
	guardVariable = "DAYBOOK_ADOPT_GUARD"
	guardName     = "daybook-adopt-guard"
	// guardFD is a pipe that the keeper holds open while it lives. Before it closes it at
	// its end, it writes guardGoodbye.
	guardFD      = 3
	guardGoodbye = "goodbye"
	// guardAttempts and guardPause bound how long a guardian retries.
	guardAttempts = 60
	guardPause    = time.Second
	guardPatience = 30 * time.Second
	// deathPause is between two looks whether the keeper has died.
	deathPause = 10 * time.Millisecond
)

// GuardIfAsked turns the calling program into a guardian and never returns, if it was
// started for that. A program that calls [StartGuardian] calls it first in main, and tests
// in TestMain.
func GuardIfAsked() {
	if os.Getenv(guardVariable) == "" {
		return
	}
	if err := guard(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", guardName, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func guard() error {
	if len(os.Args) != 3 {
		return errors.New("want the state directory and the keeper's process ID as arguments")
	}
	keeper, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return fmt.Errorf("the keeper's process ID: %w", err)
	}
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE)
	still := cgroup.LeaveAll()
	// Without CAP_SYS_RESOURCE the kernel refuses; then it may be killed for memory.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0)
	pipe := os.NewFile(guardFD, "keeper")
	if _, err := fmt.Fprintf(os.Stdout, "ready %q\n", still); err != nil {
		return err
	}
	if err := os.Stdout.Close(); err != nil {
		return err
	}
	said, err := io.ReadAll(pipe)
	if err != nil {
		return err
	}
	if string(said) != guardGoodbye {
		awaitDeath(keeper)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	store := Existing(os.Args[1])
	for attempt := 1; ; attempt++ {
		_, err := store.UndoAbandoned(context.Background(), false, log)
		if err == nil || attempt == guardAttempts {
			return err
		}
		time.Sleep(guardPause)
	}
}

// awaitDeath waits until the keeper, the parent process, has died. A process that dies closes
// its files one after the other: when the pipe is closed, it may still have its locks, and
// its placements then do not look abandoned. It has closed all when its children get another
// parent.
func awaitDeath(keeper int) {
	for deadline := time.Now().Add(guardAttempts * guardPause); os.Getppid() == keeper && time.Now().Before(deadline); {
		time.Sleep(deathPause)
	}
}

// Guardian is a guardian process of this keeper.
type Guardian struct {
	command *exec.Cmd
	pipe    *os.File
}

// StartGuardian starts a guardian for the placements of this process in a state directory.
func StartGuardian(stateDir string, log *slog.Logger) (*Guardian, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ready, said, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirs.Close(), ours.Close())
	}
	command := exec.Command("/proc/self/exe")
	command.Args = []string{guardName, stateDir, strconv.Itoa(os.Getpid())}
	command.Env = []string{guardVariable + "=1"}
	command.Dir = "/"
	command.Stdout, command.Stderr = said, os.Stderr
	command.ExtraFiles = []*os.File{theirs}
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = command.Start()
	err = errors.Join(err, theirs.Close(), said.Close())
	var text []byte
	if err == nil {
		_ = ready.SetReadDeadline(time.Now().Add(guardPatience)) // a pipe has deadlines
		text, err = io.ReadAll(ready)
	}
	_ = ready.Close()
	if err == nil && len(text) == 0 {
		err = errors.New("it does not answer: does the program call adopt.GuardIfAsked first in main?")
	}
	if err != nil {
		if command.Process != nil {
			_ = command.Process.Kill()
			_ = command.Wait()
		}
		return nil, fmt.Errorf("cannot start the guardian: %w", errors.Join(err, ours.Close()))
	}
	if string(text) != "ready []\n" {
		log.Warn("the guardian cannot leave these cgroups, and ends with them; placements then stay until the next start, or daybook restore", "cgroups", string(text))
	}
	return &Guardian{command: command, pipe: ours}, nil
}

// PID is the guardian's process.
func (g *Guardian) PID() int { return g.command.Process.Pid }

// Close ends the guardian after the keeper has undone its placements.
func (g *Guardian) Close() error {
	_, err := g.pipe.WriteString(guardGoodbye)
	err = errors.Join(err, g.pipe.Close())
	ended := make(chan error, 1)
	go func() { ended <- g.command.Wait() }()
	select {
	case waited := <-ended:
		return errors.Join(err, waited)
	case <-time.After(guardPatience):
		return errors.Join(err, errors.New("the guardian does not end"))
	}
}
