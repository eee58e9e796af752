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
	"slices"
	"strconv"
	"sync"
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
	// heldPatience and heldPause bound how long it retries records that a process has locked.
	heldPatience = 10 * time.Second
	heldPause    = 100 * time.Millisecond
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
	// If the keeper has died before it could read that, there may be something to undo: it
	// also starts a guardian in place of a dead one.
	_, _ = fmt.Fprintf(os.Stdout, "ready %q\n", still)
	_ = os.Stdout.Close()
	said, err := io.ReadAll(pipe)
	if err != nil {
		return err
	}
	if string(said) == guardGoodbye {
		keeper = 0
	} else {
		awaitDeath(keeper)
	}
	return undoLeft(Existing(os.Args[1]), keeper, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}

// undoLeft undoes what the keeper has left, and retries. If the keeper was killed, another
// process may have the lock of its record for a moment, so such records are retried for
// heldPatience. keeper is the process ID of a killed keeper, else 0.
func undoLeft(store Store, keeper int, log *slog.Logger) error {
	attempts, heldUntil := 1, time.Now().Add(heldPatience)
	for {
		_, held, err := store.undoAllAbandoned(context.Background(), false, log)
		mayBeLeft := func(name string) bool { return store.mayBeLeft(name, keeper) }
		switch {
		case err != nil && attempts < guardAttempts:
			attempts++
			time.Sleep(guardPause)
		case err == nil && keeper != 0 && slices.ContainsFunc(held, mayBeLeft) && time.Now().Before(heldUntil):
			time.Sleep(heldPause)
		default:
			return err
		}
	}
}

// mayBeLeft says whether a record that a process has locked may be one that the dead keeper
// has left, and not that of another keeper. A keeper locks first and then writes the record.
func (s Store) mayBeLeft(name string, keeper int) bool {
	record, err := s.Read(name)
	if err != nil || record.stays(false) {
		return false // it was undone, or is reported once it can be locked
	}
	pid, kept, err := s.KeptBy(name)
	return err != nil || !kept || pid == keeper || record.Leaving || s.isLockedSince(name)
}

// isLockedSince says whether a record was locked after it was last written. Both can have the
// same time; it is then true.
func (s Store) isLockedSince(name string) bool {
	lock, err := os.Lstat(s.lockPath(name))
	if err != nil {
		return true // it was released meanwhile
	}
	record, err := os.Lstat(s.recordPath(name))
	return err == nil && !lock.ModTime().Before(record.ModTime())
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

// Guardian is the guardian process of this keeper. If it dies, another one takes its place.
type Guardian struct {
	stateDir string
	log      *slog.Logger
	// ended gets how the last process ended, after Close.
	ended chan error

	mu      sync.Mutex
	process guardProcess
	closing bool
}

// guardProcess is one guardian process, and our end of its pipe.
type guardProcess struct {
	command *exec.Cmd
	pipe    *os.File
}

// StartGuardian starts a guardian for the placements of this process in a state directory.
func StartGuardian(stateDir string, log *slog.Logger) (*Guardian, error) {
	process, err := startGuard(stateDir, log)
	if err != nil {
		return nil, err
	}
	g := &Guardian{stateDir: stateDir, log: log, ended: make(chan error, 1), process: process}
	go g.watch(process)
	return g, nil
}

// Guarded does work while a guardian of this process's placements lives, and then ends the
// guardian. The error joins that of work and that of the guardian, which undoes last what the
// work has left.
func Guarded(stateDir string, log *slog.Logger, work func() error) error {
	guardian, err := StartGuardian(stateDir, log)
	if err != nil {
		return err
	}
	return errors.Join(work(), guardian.Close())
}

// watch starts another process when one has died, until the guardian is closed.
func (g *Guardian) watch(process guardProcess) {
	for {
		end := process.command.Wait()
		for tries := 0; ; tries++ {
			g.mu.Lock()
			if g.closing {
				g.mu.Unlock()
				g.ended <- end
				return
			}
			next, err := startGuard(g.stateDir, g.log)
			if err == nil {
				_ = process.pipe.Close()
				process, g.process = next, next
				g.mu.Unlock()
				g.log.Warn("the guardian died; another one took its place", "end", fmt.Sprint(end), "pid", next.command.Process.Pid)
				break
			}
			g.mu.Unlock()
			if tries == 0 {
				g.log.Error("the guardian died, and no other one can be started: placements stay if this process is killed now", "why", err)
			}
			time.Sleep(guardPause)
		}
	}
}

func startGuard(stateDir string, log *slog.Logger) (p guardProcess, err error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return p, err
	}
	ready, said, err := os.Pipe()
	if err != nil {
		return p, errors.Join(err, theirs.Close(), ours.Close())
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
		return p, fmt.Errorf("cannot start the guardian: %w", errors.Join(err, ours.Close()))
	}
	if string(text) != "ready []\n" {
		log.Warn("the guardian cannot leave these cgroups, and ends with them; placements then stay until the next start, or daybook restore", "cgroups", string(text))
	}
	return guardProcess{command, ours}, nil
}

// PID is the guardian's process.
func (g *Guardian) PID() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.process.command.Process.Pid
}

// Close ends the guardian after the keeper has undone its placements.
func (g *Guardian) Close() error {
	g.mu.Lock()
	g.closing = true
	_, err := g.process.pipe.WriteString(guardGoodbye)
	err = errors.Join(err, g.process.pipe.Close())
	g.mu.Unlock()
	select {
	case end := <-g.ended:
		if end != nil {
			end = fmt.Errorf("the guardian failed: %w", end)
		}
		return errors.Join(err, end)
	case <-time.After(guardPatience):
		return errors.Join(err, errors.New("the guardian does not end"))
	}
}
