package interrupt

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/victimtest"
)

// roleVariable makes the test binary a program that receives signals. It prints
// "ready", "reload" at each reload, and "clean" at the end.
const roleVariable = "DAYBOOK_INTERRUPT_TEST"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		victimtest.HearSignals()
		os.Exit(m.Run())
	case "ignorant":
		signal.Ignore(unix.SIGHUP)
	case "early":
		hangUp() // before Context, as soon as the program runs
	case "own pipe", "log":
		goOn(os.Getenv(roleVariable))
		return
	case "talk":
		talk()
		return
	}
	ctx, stop := Context(context.Background())
	var reloads <-chan os.Signal
	switch os.Getenv(roleVariable) {
	case "before its reloads":
		hangUp()
		reloads, _ = Reload()
	case "early", "daemon":
		reloads, _ = Reload()
	}
	fmt.Println("ready")
	for ctx.Err() == nil {
		select {
		case <-reloads:
			fmt.Println("reload")
		case <-ctx.Done():
		}
	}
	stop()
	fmt.Println("clean")
}

// hangUp sends this process a SIGHUP.
func hangUp() {
	if err := unix.Kill(unix.Getpid(), unix.SIGHUP); err != nil {
		panic(err)
	}
}

// talk writes to standard output until the context ends, and then the cause to descriptor 3.
func talk() {
	ctx, stop := Context(context.Background())
	defer stop()
	for ctx.Err() == nil {
		fmt.Println("talk")
	}
	fmt.Fprint(os.NewFile(3, "report"), context.Cause(ctx))
}

// writes is how often a broken pipe is written to. The signal of each write is received a
// moment after it.
const writes = 10000

// goOn writes to a pipe that nobody reads, and then "alive" to descriptor 3: to a pipe of
// its own, or to standard error, which is the journal of systemd.
func goOn(role string) {
	to := os.Stderr
	if role == "log" {
		var st unix.Stat_t
		if err := unix.Fstat(2, &st); err != nil {
			panic(err)
		}
		os.Setenv("JOURNAL_STREAM", fmt.Sprintf("%d:%d", st.Dev, st.Ino))
	} else {
		r, w, err := os.Pipe()
		if err != nil {
			panic(err)
		}
		r.Close()
		to = w
	}
	ctx, stop := Context(context.Background())
	defer stop()
	for range writes {
		if _, err := to.WriteString("talk"); !errors.Is(err, unix.EPIPE) || ctx.Err() != nil {
			panic(fmt.Sprint(err, ctx.Err()))
		}
	}
	fmt.Fprint(os.NewFile(3, "report"), "alive")
}

func TestAnOutputThatNobodyReadsEndsTheProgramAfterCleaningUp(t *testing.T) {
	for _, c := range []struct {
		role, reported string
	}{
		{"talk", ErrOutputClosed.Error()},
		// Other pipes, such as connections of clients, do not end it.
		{"own pipe", "alive"},
		{"log", "alive"},
	} {
		command := exec.Command("/proc/self/exe")
		command.Env = append(os.Environ(), roleVariable+"="+c.role)
		var pipes [3][2]*os.File
		for i := range pipes {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			pipes[i] = [2]*os.File{r, w}
		}
		command.Stdout, command.Stderr, command.ExtraFiles = pipes[0][1], pipes[1][1], []*os.File{pipes[2][1]}
		switch c.role {
		case "talk":
			pipes[0][0].Close()
		case "log":
			pipes[1][0].Close()
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		hung := time.AfterFunc(awaittest.Patience, func() { _ = command.Process.Kill() })
		waited := command.Wait()
		hung.Stop()
		pipes[2][1].Close()
		report, err := io.ReadAll(pipes[2][0])
		if waited != nil || err != nil || string(report) != c.reported {
			t.Errorf("%s: it reported %q, %v, %v; want %q", c.role, report, err, waited, c.reported)
		}
	}
}

func TestASignalEndsTheProgramAfterCleaningUp(t *testing.T) {
	for _, c := range []struct {
		role    string
		signals []unix.Signal
		said    string
	}{
		{"command", []unix.Signal{unix.SIGINT}, "clean\n"},
		{"command", []unix.Signal{unix.SIGTERM}, "clean\n"},
		{"command", []unix.Signal{unix.SIGQUIT}, "clean\n"},
		{"command", []unix.Signal{unix.SIGHUP}, "clean\n"},
		// A daemon that reloads at SIGHUP ends at the other signals.
		{"daemon", []unix.Signal{unix.SIGHUP, unix.SIGTERM}, "reload\nclean\n"},
		// Nor does one end it that comes before it can reload: it reloads later.
		{"early", []unix.Signal{0, unix.SIGTERM}, "reload\nclean\n"},
		{"before its reloads", []unix.Signal{0, unix.SIGTERM}, "reload\nclean\n"},
		// Started by nohup.
		{"ignorant", []unix.Signal{unix.SIGHUP, unix.SIGTERM}, "clean\n"},
	} {
		command := exec.Command("/proc/self/exe")
		if c.signals[0] == 0 {
			command.Args = append(command.Args, reloader)
		}
		command.Env = append(os.Environ(), roleVariable+"="+c.role)
		out, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		// A program that ends at no signal must not stop this test.
		hung := time.AfterFunc(awaittest.Patience, func() { _ = command.Process.Kill() })
		lines := bufio.NewReader(out)
		if line, err := lines.ReadString('\n'); line != "ready\n" {
			t.Fatalf("%q, %v", line, err)
		}
		said := ""
		for i, s := range c.signals {
			if err := command.Process.Signal(s); err != nil {
				t.Error(err)
			}
			// Send the next signal after the effect of this one.
			if (c.role == "daemon" || s == 0) && i == 0 {
				line, err := lines.ReadString('\n')
				if err != nil {
					t.Error(err)
				}
				said += line
			}
		}
		rest, err := io.ReadAll(lines)
		said += string(rest)
		hung.Stop()
		if waited := command.Wait(); waited != nil || err != nil || said != c.said {
			t.Errorf("%s, %v: it said %q, %v, %v; want %q", c.role, c.signals, said, err, waited, c.said)
		}
	}
}
