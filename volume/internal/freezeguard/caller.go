package freezeguard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/volume/internal/cause"
)

// How long a guardian may take to start or end, and for an answer that needs no waiting.
// Variables, because tests are more patient: a busy host may stop their processes.
var (
	Patience = 30 * time.Second
	Answers  = 3 * time.Second
)

// Freeze is what a guardian freezes.
type Freeze struct {
	// Pool and Volume are passed to the function of [IfAsked].
	Pool, Volume string
	// Directory is the root of the file system. Start takes it over, and closes it if it fails.
	Directory *os.File
	// Lock is the volume's.
	Lock *os.File
	// Longest is when the guardian thaws in any case, from the request to freeze.
	Longest time.Duration
}

// Guardian is the caller's side: the process that guards a freeze.
type Guardian struct {
	// Still has the cgroups that the process could not leave, and ends with; "" is none.
	Still string

	command *exec.Cmd
	// conversation is a socket of packets.
	conversation *os.File
	// directory is the root of the file system.
	directory *os.File
	longest   time.Duration
	// ending gets the outcome of the freeze.
	ending chan error
	// ended is closed when the process has ended and was waited for.
	ended chan struct{}
}

// CheckReady refuses a freeze if this program cannot start a guardian. The error wraps
// cause.ErrUnsupported.
func CheckReady() error {
	if Ready.Load() {
		return nil
	}
	return fmt.Errorf("%w: this program cannot guard a frozen file system: it must call volume.GuardIfAsked first in main, or detach the volume before", cause.ErrUnsupported)
}

// Start starts the process and waits until it is ready to freeze. The caller ends it.
func Start(ctx context.Context, f Freeze) (_ *Guardian, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, errors.Join(err, f.Directory.Close())
	}
	theirs := os.NewFile(uintptr(pair[1]), "caller")
	g := &Guardian{
		conversation: os.NewFile(uintptr(pair[0]), "guardian"), directory: f.Directory, longest: f.Longest,
		ending: make(chan error, 1), ended: make(chan struct{}),
	}
	g.command = exec.Command("/proc/self/exe")
	g.command.Args = []string{Name, f.Pool, f.Volume, strconv.FormatInt(int64(f.Longest), 10)}
	g.command.Env = []string{variable + "=1"}
	g.command.Dir = "/"
	g.command.Stderr = os.Stderr
	g.command.ExtraFiles = []*os.File{theirs, f.Directory, f.Lock}
	// No signal of the terminal reaches it, nor the end of the session.
	g.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = g.command.Start()
	_ = theirs.Close()
	if err != nil {
		return nil, errors.Join(err, g.conversation.Close(), f.Directory.Close())
	}
	go func() {
		_ = g.command.Wait() // an error shows in the conversation
		close(g.ended)
	}()
	word, err := g.hear(ctx, Patience)
	still, ready := strings.CutPrefix(word, sayReady)
	if err == nil && !ready {
		err = fmt.Errorf("it answers %q: does the program call volume.GuardIfAsked first in main?", word)
	}
	if err != nil {
		g.End()
		return nil, err
	}
	g.Still = still
	return g, nil
}

// say sends a message to the guardian; hear notices a dead one.
func (g *Guardian) say(word string) { _, _ = g.conversation.WriteString(word) }

// hear waits for the guardian's next message.
func (g *Guardian) hear(ctx context.Context, patience time.Duration) (string, error) {
	if patience > 0 {
		_ = g.conversation.SetReadDeadline(time.Now().Add(patience)) // a socket has deadlines
	}
	stop := context.AfterFunc(ctx, func() { _ = g.conversation.SetReadDeadline(time.Unix(1, 0)) })
	buffer := make([]byte, maxSayBytes)
	n, err := g.conversation.Read(buffer)
	if !stop() {
		return "", context.Cause(ctx)
	}
	_ = g.conversation.SetReadDeadline(time.Time{})
	if err != nil {
		return "", fmt.Errorf("its guardian (process %d) has ended or does not answer: %w", g.command.Process.Pid, err)
	}
	return string(buffer[:n]), nil
}

// ErrCannotFreeze means that the freeze failed and writers continue.
var ErrCannotFreeze = errors.New("cannot freeze the file system")

// Freeze asks the guardian to freeze the file system. The kernel waits for writes in
// progress, and that cannot be interrupted. If ctx ends meanwhile, the guardian thaws. The
// error wraps ErrCannotFreeze, or cause.ErrBusy if another process has frozen it.
func (g *Guardian) Freeze(ctx context.Context) error {
	g.say(sayFreeze)
	word, err := g.hear(ctx, 0)
	if err != nil || word == sayFrozen {
		return err
	}
	number, failed := strings.CutPrefix(word, sayFailed)
	code, err := strconv.Atoi(number)
	if !failed || err != nil {
		return fmt.Errorf("%w: its guardian answers %q", ErrCannotFreeze, word)
	}
	if errno := unix.Errno(code); errno != unix.EBUSY {
		return fmt.Errorf("%w: %w", ErrCannotFreeze, errno)
	}
	// The process that froze it thaws it.
	return fmt.Errorf("its file system is %w: another process has frozen it (fsfreeze -u %s)", cause.ErrBusy, g.directory.Name())
}

// During returns a context for what is done while the file system is frozen. It ends when the
// freeze has ended early, with the reason as its cause. Freeze was called before.
func (g *Guardian) During(ctx context.Context) (context.Context, context.CancelFunc) {
	// The second limit is for a stopped guardian (SIGSTOP).
	ctx, stop := context.WithTimeoutCause(ctx, g.longest+Answers, g.silent())
	during, cancel := context.WithCancelCause(ctx)
	go func() {
		// An answer before the request means that the freeze has ended early.
		err := g.outcome()
		cancel(err)
		g.ending <- err
	}()
	return during, func() { cancel(nil); stop() }
}

// Thaw asks the guardian to thaw, after During. The error wraps cause.ErrNotFrozen if the
// freeze had ended before, or the guardian does not answer.
func (g *Guardian) Thaw(context.Context) error {
	g.say(sayThaw)
	select {
	case err := <-g.ending:
		return err
	case <-time.After(Answers):
		return g.silent()
	}
}

// outcome waits for the end of the freeze.
func (g *Guardian) outcome() error {
	word, err := g.hear(context.Background(), 0)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", cause.ErrNotFrozen, err)
	case word == sayThawed:
		return nil
	case word == sayExpired:
		return fmt.Errorf("%w: copying took longer than the %v that its writers may wait (--max-freeze); detach the volume first, or allow more time, such as --max-freeze %v",
			cause.ErrNotFrozen, g.longest, 5*g.longest)
	case word == sayNotOurs:
		return fmt.Errorf("%w: another process has thawed it meanwhile", cause.ErrNotFrozen)
	}
	return fmt.Errorf("%w: its guardian answers %q", cause.ErrNotFrozen, word)
}

// silent is the error about a guardian that does not answer.
func (g *Guardian) silent() error {
	return fmt.Errorf("%w: its guardian (process %d) does not answer", cause.ErrNotFrozen, g.command.Process.Pid)
}

// ThawInstead thaws the file system itself, because the guardian may be dead or stopped,
// and kills the guardian.
func (g *Guardian) ThawInstead() error {
	if err := Thaw(g.directory); err != nil {
		return err
	}
	_ = g.command.Process.Kill() // it may have ended
	return nil
}

// End closes the conversation and waits until the guardian has ended, because it holds
// the volume's lock, too. A guardian that is still freezing thaws afterwards.
func (g *Guardian) End() {
	_ = g.conversation.Close()
	_ = g.directory.Close()
	select {
	case <-g.ended:
	case <-time.After(Patience):
	}
}

// Thaw thaws the file system of a directory. If it is not frozen, that is no
// error.
func Thaw(directory *os.File) error {
	if err := unix.IoctlSetInt(int(directory.Fd()), fiThaw, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("cannot thaw the file system: %w", err)
	}
	return nil
}

// FIFREEZE and FITHAW, include/uapi/linux/fs.h: _IOWR('X', 119, int) and
// _IOWR('X', 120, int).
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)
