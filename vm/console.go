package vm

import (
	"bytes"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/daybook-project/daybook/vm/internal/wire"
)

// Limits of the kept console output: its start, where boots fail, and its end,
// where guests fail.
const (
	consoleHeadBytes = 1 << 20
	consoleTailBytes = 3 << 20
)

// consoleLog keeps the console output of the kernel.
type consoleLog struct {
	mu   sync.Mutex
	head []byte
	tail []byte
	cut  bool
	also io.Writer
}

func (c *consoleLog) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(b), consoleHeadBytes-len(c.head))
	c.head = append(c.head, b[:n]...)
	c.tail = append(c.tail, b[n:]...)
	if len(c.tail) > 2*consoleTailBytes {
		c.tail = append([]byte(nil), c.tail[len(c.tail)-consoleTailBytes:]...)
		c.cut = true
	}
	if c.also != nil {
		_, _ = c.also.Write(b)
	}
	return len(b), nil
}

// String returns the output, with a line in place of an omitted part.
func (c *consoleLog) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	gap := ""
	if c.cut {
		gap = "\n[... left out ...]\n"
	}
	var text strings.Builder
	for line := range strings.Lines(strings.ReplaceAll(string(c.head)+gap+string(c.tail), "\r", "")) {
		if !strings.Contains(line, wire.MarkPrefix) {
			text.WriteString(line)
		}
	}
	return text.String()
}

// has reports whether the end of the output contains a text.
func (c *consoleLog) has(text string) bool {
	const near = 64 << 10
	c.mu.Lock()
	defer c.mu.Unlock()
	end := append(append([]byte(nil), c.head[max(0, len(c.head)-near):]...), c.tail[max(0, len(c.tail)-near):]...)
	return bytes.Contains(end, []byte(text))
}

// panicMark is in the first line of every panic of Linux.
const panicMark = "Kernel panic - not syncing"

// warned is the first line of the report of a WARN, of older kernels and of newer ones:
//
//	WARNING: CPU: 1 PID: 77 at fs/ext4/inode.c:3589 ext4_x+0x1/0x2 [ext4]
//	WARNING: fs/ext4/inode.c:3589 at ext4_x+0x1/0x2 [ext4], CPU#1: mount/77
var warned = regexp.MustCompile(`(^| )WARNING: (CPU:|(\S+:\d+ )?at .*, CPU#)`)

// problemMarks are in the first lines of Linux's other reports of its own faults.
var problemMarks = []string{
	panicMark,
	"WARNING: possible ", "WARNING: suspicious ", "WARNING: inconsistent ", "WARNING: bad unlock",
	"WARNING: held lock ", "WARNING: lock held ", "INFO: trying to register ",
	"BUG: ", "kernel BUG at ", "Oops: ", "Oops:", "general protection fault", "Internal error:",
	"UBSAN: ", "KASAN: ", "KCSAN: ", "KFENCE: ",
	"INFO: task ", "INFO: rcu_", "rcu: INFO:", "soft lockup", "hard LOCKUP",
	"refcount_t: ", "list_add corruption", "list_del corruption",
	"Out of memory: Killed process",
}

// KernelProblems returns the lines of a kernel log that start the report of a
// fault: panics, oopses, warnings, lockups, hung tasks, out-of-memory kills.
func KernelProblems(log string) []string {
	var problems []string
	for line := range strings.Lines(log) {
		line = strings.TrimRight(line, "\r\n")
		if warned.MatchString(line) || slices.ContainsFunc(problemMarks, func(mark string) bool {
			at := strings.Index(line, mark)
			return at == 0 || at > 0 && line[at-1] == ' '
		}) {
			problems = append(problems, line)
		}
	}
	return problems
}

// flags are those of an x86 processor in the report of a fault.
var flags = regexp.MustCompile(`EFLAGS: ([0-9a-f]+)\b`)

// EmulatorFault returns the first line of a kernel log with flags that no processor has, or
// "". Bit 22 and the bits above it are always 0: the kernel cannot set them, but QEMU did.
func EmulatorFault(log string) string {
	const known = 22
	for line := range strings.Lines(log) {
		for _, found := range flags.FindAllStringSubmatch(line, -1) {
			if value, err := strconv.ParseUint(found[1], 16, 64); err == nil && value>>known != 0 {
				return strings.TrimSpace(line)
			}
		}
	}
	return ""
}

// lastLines returns the last n lines that are not empty, for errors.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
