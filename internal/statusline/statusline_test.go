package statusline

import (
	"bytes"
	"testing"
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
