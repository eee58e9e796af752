package vm

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestKernelProblems(t *testing.T) {
	log := `[    0.1] mtrr: your CPUs had inconsistent fixed MTRR settings
[    2.1] ------------[ cut here ]------------
[    2.1] WARNING: CPU: 1 PID: 77 at fs/ext4/inode.c:3589 ext4_x+0x1/0x2 [ext4]
[    3.1] BUG: kernel NULL pointer dereference, address: 0000000000000000
[    3.1] Oops: 0000 [#1] PREEMPT SMP NOPTI
[    4.1] INFO: task jbd2/vda-8:99 blocked for more than 120 seconds.
[    5.1] EXT4-fs (vda): warning: mounting fs with errors, running e2fsck is recommended
[    6.1] Kernel panic - not syncing: sysrq triggered crash
[    7.1] WARNING: fs/ext4/inode.c:3589 at ext4_x+0x1/0x2 [ext4], CPU#1: mount/77
[    7.2] WARNING: at ext4_x+0x1/0x2 [ext4], CPU#0: jbd2/vda-8/99
[    8.1] WARNING: BIOS bug: CPU MTRRs don't cover all of memory, losing 1MB of RAM.
`
	lines := strings.Split(log, "\n")
	if got, want := KernelProblems(log), []string{lines[2], lines[3], lines[4], lines[5], lines[7], lines[8], lines[9]}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if got := KernelProblems("[ 1.0] DEBUG: all is well\nno BUG here\n"); got != nil {
		t.Errorf("%q", got)
	}
}

func TestFlagsThatNoProcessorHasAreTheEmulators(t *testing.T) {
	const log = `[  266.5] RSP: 002b:00003ffd1e87e818 EFLAGS: 00200206 ORIG_RAX: 0000000000000038
[  266.5] RSP: 0018:ffffc900004b3c68 EFLAGS: %s
`
	for flags, want := range map[string]string{"00210246": "", "1eaa0246": "[  266.5] RSP: 0018:ffffc900004b3c68 EFLAGS: 1eaa0246"} {
		if got := EmulatorFault(fmt.Sprintf(log, flags)); got != want {
			t.Errorf("%s: %q, want %q", flags, got, want)
		}
	}
}

func TestConsoleKeepsBeginningAndEnd(t *testing.T) {
	var c consoleLog
	written := 0
	for written < consoleHeadBytes+3*consoleTailBytes {
		n, err := c.Write([]byte(strings.Repeat("middle\r\n", 1000)))
		if err != nil {
			t.Fatal(err)
		}
		if written == 0 {
			_, _ = c.Write([]byte("first\r\n"))
		}
		written += n
	}
	_, _ = c.Write([]byte("last\n"))
	text := c.String()
	if !strings.Contains(text[:10000], "first\n") || !strings.HasSuffix(text, "last\n") || !strings.Contains(text, "left out") {
		t.Error("beginning, end or the mark between is missing")
	}
	if len(text) > consoleHeadBytes+2*consoleTailBytes+100 {
		t.Errorf("%d bytes are kept", len(text))
	}
}
