package top

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/needs"
)

// list is a source of given samples; with block it then waits for the end of
// the context, like a live one.
type list struct {
	samples []account.Sample
	block   bool
	err     error
}

func (l *list) Next(ctx context.Context) (account.Sample, error) {
	if err := ctx.Err(); err != nil {
		return account.Sample{}, err
	}
	if len(l.samples) == 0 {
		if l.block {
			<-ctx.Done()
			return account.Sample{}, ctx.Err()
		}
		if l.err != nil {
			return account.Sample{}, l.err
		}
		return account.Sample{}, io.EOF
	}
	s := l.samples[0]
	l.samples = l.samples[1:]
	return s, nil
}

func (l *list) Close() error { return nil }

// run shows a source with output to a file and returns what was written.
func run(t *testing.T, source account.Source, o Options) (out, warnings string, err error) {
	t.Helper()
	dir := t.TempDir()
	for _, f := range []struct {
		name string
		file **os.File
	}{{"out", &o.Out}, {"err", &o.Err}} {
		if *f.file, err = os.Create(filepath.Join(dir, f.name)); err != nil {
			t.Fatal(err)
		}
		defer (*f.file).Close()
	}
	err = Run(context.Background(), source, o)
	text, _ := os.ReadFile(o.Out.Name())
	warning, _ := os.ReadFile(o.Err.Name())
	return string(text), string(warning), err
}

func TestJSONIsOneSampleALine(t *testing.T) {
	samples := []account.Sample{testSample(), testSample()}
	out, _, err := run(t, &list{samples: samples}, Options{JSON: true})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(got) != 2 {
		t.Fatalf("%d lines", len(got))
	}
	for _, l := range got {
		var s account.Sample
		if err := json.Unmarshal([]byte(l), &s); err != nil || s.Devices[0].Containers[1].JournalBytes != 30<<20 {
			t.Errorf("%v from %s", err, l)
		}
	}
}

func TestOnceStopsAfterTheFirst(t *testing.T) {
	source := &list{samples: []account.Sample{testSample(), testSample()}}
	var observed int
	out, _, err := run(t, source, Options{Once: true, JSON: true, Observe: func(account.Sample) { observed++ }})
	if err != nil || strings.Count(out, "\n") != 1 || len(source.samples) != 1 || observed != 1 {
		t.Errorf("%v, %d lines, %d samples left, %d observed", err, strings.Count(out, "\n"), len(source.samples), observed)
	}
}

func TestOutputThatIsNoTerminalGetsTables(t *testing.T) {
	out, warnings, err := run(t, &list{samples: []account.Sample{testSample(), testSample()}},
		Options{AtEnd: func() string { return "the last line was cut" }})
	if err != nil || strings.Count(out, "CONTAINER") != 4 {
		t.Errorf("%v:\n%s", err, out)
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("escape sequences in a file: %q", out)
	}
	if !strings.Contains(warnings, "the last line was cut") {
		t.Errorf("warnings: %q", warnings)
	}
}

func TestErrorsOfTheSourceEndTheRun(t *testing.T) {
	broken := errors.New("broken")
	if _, _, err := run(t, &list{err: broken}, Options{}); !errors.Is(err, broken) {
		t.Errorf("source: %v", err)
	}
	if _, _, err := run(t, &list{}, Options{Once: true}); err == nil {
		t.Error("no sample and no error")
	}
}

// terminal is a pseudo-terminal of 80 by 24 whose screen output is collected.
type terminal struct {
	master, slave *os.File
	mutex         sync.Mutex
	output        bytes.Buffer
}

func openTerminal(t *testing.T) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	needs.That(t, err == nil, fmt.Sprintf("a pseudo-terminal (%v)", err))
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	term := &terminal{master: master, slave: slave}
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := master.Read(buffer)
			term.mutex.Lock()
			term.output.Write(buffer[:n])
			term.mutex.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return term
}

// await waits up to two minutes until the terminal got a text since the last call.
func (term *terminal) await(t *testing.T, want string) string {
	t.Helper()
	for range 12000 {
		term.mutex.Lock()
		text := term.output.String()
		if strings.Contains(text, want) {
			term.output.Reset()
			term.mutex.Unlock()
			return text
		}
		term.mutex.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("the terminal never showed %q: %q", want, term.output.String())
	return ""
}

func TestTerminalGetsTheFullScreenAndItsKeys(t *testing.T) {
	for _, noColor := range []string{"", "yes"} {
		t.Setenv("NO_COLOR", noColor)
		t.Setenv("TERM", "xterm-256color")
		term := openTerminal(t)
		done := make(chan error, 1)
		go func() {
			done <- Run(context.Background(), &list{samples: []account.Sample{testSample()}, block: true}, Options{
				In: term.slave, Out: term.slave, Err: os.Stderr, Sort: "share"})
		}()
		text := term.await(t, "beta")
		if !strings.Contains(text, "\x1b[?1049h") {
			t.Errorf("not on the alternate screen: %q", text)
		}
		if coloured := regexp.MustCompile("\x1b\\[[0-9;]*[39][0-7]m").MatchString(text); coloured != (noColor == "") {
			t.Errorf("NO_COLOR=%s and colours: %v: %q", noColor, coloured, text)
		}
		if _, err := term.master.WriteString("d"); err != nil {
			t.Fatal(err)
		}
		term.await(t, "other")
		if _, err := term.master.WriteString("q"); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Errorf("q: %v", err)
		}
		term.await(t, "\x1b[?1049l")
	}
}

func TestCancelledContextRestoresTheTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	term := openTerminal(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, &list{samples: []account.Sample{testSample()}, block: true}, Options{
			In: term.slave, Out: term.slave, Err: os.Stderr})
	}()
	term.await(t, "beta")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	term.await(t, "\x1b[?1049l")
}

func TestPacedWaitsWhilePaused(t *testing.T) {
	p := NewPaced(&list{samples: []account.Sample{testSample(), testSample()}}, 1e6)
	p.Pause(true)
	p.Pause(true) // a second call has no effect
	got := make(chan error)
	go func() {
		_, err := p.Next(context.Background())
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("a sample came in the pause: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	p.Pause(false)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if _, err := p.Next(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Next(context.Background()); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestPacedEndsWithItsContext(t *testing.T) {
	p := NewPaced(&list{samples: []account.Sample{testSample(), testSample()}}, 0.01)
	ctx, cancel := context.WithCancel(context.Background())
	if _, err := p.Next(ctx); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := p.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
