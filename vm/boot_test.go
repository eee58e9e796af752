package vm

import (
	"errors"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/program"
)

// QEMU that something has killed is no guest that powered off.
func TestWhyAGuestIsGone(t *testing.T) {
	for script, want := range map[string]string{
		"exit 0":           ErrEnded.Error(),
		"kill -BUS $$":     "QEMU ended (signal: bus error): this host may be out of memory",
		"kill -KILL $$":    "QEMU ended (signal: killed): this host may be out of memory",
		"echo why; exit 1": "QEMU ended: why",
	} {
		p, err := program.Start(program.Command{Path: "sh", Args: []string{"-c", script}})
		if err != nil {
			t.Fatal(err)
		}
		b := &boot{qemu: &emulator{p}}
		err = b.end()
		if !strings.Contains(err.Error(), want) || errors.Is(err, ErrEnded) != (script == "exit 0") {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
		b.killed.Store(true)
		if err := b.end(); err != ErrKilled {
			t.Errorf("%s, killed here: %v", script, err)
		}
	}
}
