package statusline

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/needs"
)

func TestTheLineIsReplacedAndRemovedOnATerminalOnly(t *testing.T) {
	for _, c := range []struct {
		line func(*bytes.Buffer) *Line
		want string
	}{
		{func(out *bytes.Buffer) *Line { return OnTerminal(out) }, "\r\x1b[Kone\r\x1b[Ktwo\r\x1b[K"},
		{func(out *bytes.Buffer) *Line { return On(out) }, ""},
	} {
		var out bytes.Buffer
		l := c.line(&out)
		l.Show("one")
		l.Show("two")
		l.End()
		l.End()
		if out.String() != c.want {
			t.Errorf("got %q, want %q", out.String(), c.want)
		}
	}
}

// terminal is a terminal of a width, and what reads its output.
func terminal(t *testing.T, width uint16) (output, screen *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	needs.That(t, err == nil, "/dev/ptmx")
	t.Cleanup(func() { _ = screen.Close() })
	fd := int(screen.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		output, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	needs.That(t, err == nil, fmt.Sprint("/dev/pts: ", err))
	t.Cleanup(func() { _ = output.Close() })
	if err := unix.IoctlSetWinsize(int(output.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: width}); err != nil {
		t.Fatal(err)
	}
	return output, screen
}

// A line that goes on in the next one could not be cleared.
func TestATextIsAtMostOneLineOfTheTerminal(t *testing.T) {
	for _, c := range []struct {
		width      uint16
		text, want string
	}{
		{20, "short", "\r\x1b[Kshort"},
		{20, "a text of many more columns", "\r\x1b[Ka text of many mor…"},
		{0, "a width that is not known", "\r\x1b[Ka width that is not known"},
	} {
		output, screen := terminal(t, c.width)
		On(output).Show(c.text)
		seen := make([]byte, 200)
		n, err := screen.Read(seen)
		if err != nil || string(seen[:n]) != c.want {
			t.Errorf("%q in %d columns: %q, %v", c.text, c.width, seen[:n], err)
		}
	}
}
