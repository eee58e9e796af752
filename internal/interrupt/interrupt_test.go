package interrupt

import (
	"bufio"
	"context"
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
	}
	ctx, stop := Context(context.Background())
	var reloads <-chan os.Signal
	if os.Getenv(roleVariable) == "daemon" {
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
		// Started by nohup.
		{"ignorant", []unix.Signal{unix.SIGHUP, unix.SIGTERM}, "clean\n"},
	} {
		command := exec.Command("/proc/self/exe")
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
			if c.role == "daemon" && i == 0 {
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
