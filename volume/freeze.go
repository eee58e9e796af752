package volume

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

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/volume/operation"
)

// DefaultMaxFreeze is how long writers of an attached volume wait at most while
// it is copied, unless the options set another limit.
const DefaultMaxFreeze = 2 * time.Second

// The bounds of MaxFreeze.
const (
	minMaxFreeze = time.Millisecond
	maxMaxFreeze = 24 * time.Hour
)

// CheckMaxFreeze checks a MaxFreeze: 0, for
// DefaultMaxFreeze, or 1 ms to 24 h. The error wraps ErrInvalid.
func CheckMaxFreeze(d time.Duration) error {
	if d != 0 && (d < minMaxFreeze || d > maxMaxFreeze) {
		return fmt.Errorf("%w longest freeze %v: want %v to %v", ErrInvalid, d, minMaxFreeze, maxMaxFreeze)
	}
	return nil
}

func longestFreeze(d time.Duration) time.Duration {
	if d == 0 {
		return defaultMaxFreeze
	}
	return d
}

// checkCanGuard refuses a freeze if this program cannot start a guardian.
func checkCanGuard() error {
	if guardReady.Load() {
		return nil
	}
	return fmt.Errorf("%w: this program cannot guard a frozen file system: it must call volume.GuardIfAsked first in main, or detach the volume before", ErrUnsupported)
}

// whileFrozen calls do while an attached volume's file system is frozen: all that was
// written is in the image, and nothing changes it. It returns how long writers had to
// wait at most. It fails with ErrNotFrozen if the file system was thawed before the end.
func (v *held) whileFrozen(ctx context.Context, longest time.Duration, do func(context.Context) error) (seconds float64, err error) {
	g, err := v.startGuardian(ctx, longest)
	if err != nil {
		return 0, fmt.Errorf("cannot guard the freeze: %w", err)
	}
	defer g.end()
	// Recorded first, in case both processes are killed.
	if err := v.run().Do(ctx, enter("freezing", func() { v.record.Frozen = true })); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := v.pool.step(ctx, "frozen", g.freeze); err != nil {
		switch {
		case ctx.Err() != nil: // the guardian thaws and corrects the record
		case errors.Is(err, ErrBusy), errors.Is(err, errCannotFreeze):
			v.record.Frozen = false
			err = errors.Join(err, v.write())
		default:
			err = errors.Join(err, g.thawInstead(), v.thaw(context.WithoutCancel(ctx)))
		}
		return 0, err
	}
	// The second limit is for a stopped guardian (SIGSTOP).
	during, stop := context.WithTimeoutCause(ctx, longest+guardAnswers, g.silent())
	defer stop()
	during, cancel := context.WithCancelCause(during)
	outcome := make(chan error, 1)
	go func() {
		// An answer before the request means that the freeze has ended early.
		err := g.outcome()
		cancel(err)
		outcome <- err
	}()
	doErr := do(during)
	thawErr := v.pool.step(ctx, "thawed", func(context.Context) error {
		g.say(sayThaw)
		select {
		case err := <-outcome:
			return err
		case <-time.After(guardAnswers):
			return g.silent()
		}
	})
	cancel(nil)
	switch {
	case thawErr != nil && (doErr == nil || errors.Is(doErr, thawErr)):
		err = thawErr
	default:
		err = errors.Join(doErr, thawErr)
	}
	if thawErr != nil {
		// Whatever the state of the guardian: thaw, so that writers continue.
		return 0, errors.Join(err, g.thawInstead(), v.thaw(context.WithoutCancel(ctx)))
	}
	seconds = time.Since(began).Seconds()
	v.record.Frozen = false
	return seconds, errors.Join(err, v.write())
}

// Variables, because tests are more patient: a busy host may stop their processes.
var (
	defaultMaxFreeze = DefaultMaxFreeze
	// How long a guardian may take to start or end, and for an answer that needs no waiting.
	guardPatience = 30 * time.Second
	guardAnswers  = 3 * time.Second
)

// guardian is the caller's side: the process that guards a freeze.
type guardian struct {
	command *exec.Cmd
	// conversation is a socket of packets.
	conversation *os.File
	// directory is the root of the file system.
	directory *os.File
	longest   time.Duration
	// ended is closed when the process has ended and was waited for.
	ended chan struct{}
}

// startGuardian starts the process and waits until it is ready to freeze.
func (v *held) startGuardian(ctx context.Context, longest time.Duration) (_ *guardian, err error) {
	if err := checkCanGuard(); err != nil {
		return nil, err
	}
	directory, err := v.openMounted()
	if err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, errors.Join(err, directory.Close())
	}
	theirs := os.NewFile(uintptr(pair[1]), "caller")
	g := &guardian{conversation: os.NewFile(uintptr(pair[0]), "guardian"), directory: directory, longest: longest, ended: make(chan struct{})}
	g.command = exec.Command("/proc/self/exe")
	g.command.Args = []string{guardName, v.pool.dir, v.record.Name, strconv.FormatInt(int64(longest), 10)}
	g.command.Env = []string{guardVariable + "=1"}
	g.command.Dir = "/"
	g.command.Stderr = os.Stderr
	g.command.ExtraFiles = []*os.File{theirs, directory, v.lock.File}
	// No signal of the terminal reaches it, nor the end of the session.
	g.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = g.command.Start()
	_ = theirs.Close()
	if err != nil {
		return nil, errors.Join(err, g.conversation.Close(), directory.Close())
	}
	go func() {
		_ = g.command.Wait() // an error shows in the conversation
		close(g.ended)
	}()
	word, err := g.hear(ctx, guardPatience)
	still, ready := strings.CutPrefix(word, sayReady)
	if err == nil && !ready {
		err = fmt.Errorf("it answers %q: does the program call volume.GuardIfAsked first in main?", word)
	}
	if err != nil {
		g.end()
		return nil, err
	}
	if still != "" {
		v.pool.log.Warn("the freeze's guardian cannot leave these cgroups: it ends with them, and the volume then stays frozen until \"daybook volume repair\" or \"keep\"",
			"volume", v.record.Name, "cgroups", still)
	}
	return g, nil
}

// say sends a message to the guardian; hear notices a dead one.
func (g *guardian) say(word string) { _, _ = g.conversation.WriteString(word) }

// hear waits for the guardian's next message.
func (g *guardian) hear(ctx context.Context, patience time.Duration) (string, error) {
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

// errCannotFreeze means that the freeze failed and writers continue.
var errCannotFreeze = errors.New("cannot freeze the file system")

// freeze asks the guardian to freeze the file system. The kernel waits for writes in
// progress, and that cannot be interrupted. If ctx ends meanwhile, the guardian thaws.
func (g *guardian) freeze(ctx context.Context) error {
	g.say(sayFreeze)
	word, err := g.hear(ctx, 0)
	if err != nil || word == sayFrozen {
		return err
	}
	number, failed := strings.CutPrefix(word, sayFailed)
	code, err := strconv.Atoi(number)
	if !failed || err != nil {
		return fmt.Errorf("%w: its guardian answers %q", errCannotFreeze, word)
	}
	if errno := unix.Errno(code); errno != unix.EBUSY {
		return fmt.Errorf("%w: %w", errCannotFreeze, errno)
	}
	// The process that froze it thaws it.
	return fmt.Errorf("its file system is %w: another process has frozen it (fsfreeze -u %s)", ErrBusy, g.directory.Name())
}

// outcome waits for the end of the freeze.
func (g *guardian) outcome() error {
	word, err := g.hear(context.Background(), 0)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrNotFrozen, err)
	case word == sayThawed:
		return nil
	case word == sayExpired:
		return fmt.Errorf("%w: copying took longer than the %v that its writers may wait (--max-freeze); detach the volume first, or allow more time, such as --max-freeze %v",
			ErrNotFrozen, g.longest, 5*g.longest)
	case word == sayNotOurs:
		return fmt.Errorf("%w: another process has thawed it meanwhile", ErrNotFrozen)
	}
	return fmt.Errorf("%w: its guardian answers %q", ErrNotFrozen, word)
}

// silent is the error about a guardian that does not answer.
func (g *guardian) silent() error {
	return fmt.Errorf("%w: its guardian (process %d) does not answer", ErrNotFrozen, g.command.Process.Pid)
}

// thawInstead thaws the file system itself, because the guardian may be dead or stopped,
// and kills the guardian.
func (g *guardian) thawInstead() error {
	if err := thawDirectory(g.directory); err != nil {
		return err
	}
	_ = g.command.Process.Kill() // it may have ended
	return nil
}

// end closes the conversation and waits until the guardian has ended, because it holds
// the volume's lock, too. A guardian that is still freezing thaws afterwards.
func (g *guardian) end() {
	_ = g.conversation.Close()
	_ = g.directory.Close()
	select {
	case <-g.ended:
	case <-time.After(guardPatience):
	}
}

// openMounted opens the root directory of an attached volume's file system. It refuses if
// something else is mounted over it.
func (v *held) openMounted() (*os.File, error) {
	devices, err := v.openedDevices()
	if err != nil {
		return nil, err
	}
	target := v.record.Attachment.Target
	directory, err := os.OpenFile(target, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(directory.Fd()), &st); err != nil {
		return nil, errors.Join(err, directory.Close())
	}
	dev := blockdev.DevOf(st.Dev)
	if len(devices) != 1 || devices[0].Dev != dev {
		return nil, errors.Join(fmt.Errorf("it is %w: something else is mounted over it on %s", ErrBusy, target), directory.Close())
	}
	return directory, nil
}

// thaw thaws a file system that a dead process left frozen. If it is not frozen or not
// mounted, that is no error.
func (v *held) thaw(ctx context.Context) error {
	return v.run().Do(ctx,
		operation.Step{Name: "thawed", Do: func(context.Context) error {
			if v.record.Attachment == nil {
				return nil
			}
			mounted, err := v.isMounted()
			if err != nil || !mounted {
				return err
			}
			return v.thawMounted()
		}},
		enter("thaw recorded", func() { v.record.Frozen = false }),
	)
}

// freezeAbandoned says whether a volume is recorded as frozen while no process works
// on it. It holds the lock for a moment, so that the record cannot change.
func (p *Pool) freezeAbandoned(name string) bool {
	v, err := p.tryHold(name)
	if err != nil {
		return false // in progress, or deleted meanwhile
	}
	defer v.release()
	return v.record.Frozen
}

func (v *held) thawMounted() error {
	directory, err := v.openMounted()
	if err != nil {
		return err
	}
	return errors.Join(thawDirectory(directory), directory.Close())
}

// thawDirectory thaws the file system of a directory. If it is not frozen, that is no
// error.
func thawDirectory(directory *os.File) error {
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
