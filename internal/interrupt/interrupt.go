// Package interrupt lets a command clean up before a signal ends it: Ctrl-C,
// SIGTERM, SIGQUIT, SIGHUP, which is sent when a terminal or an SSH session
// closes, or SIGPIPE, when the program that reads the output has ended.
package interrupt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// reloader is the command that reads its configuration again at each SIGHUP. Until it
// runs, a SIGHUP must not end it.
const reloader = "control"

// early receives the SIGHUPs of the reloader from the start of the program on, before main;
// nil in other commands.
var early = catchEarly(os.Args)

func catchEarly(args []string) chan os.Signal {
	if len(args) < 2 || args[1] != reloader {
		return nil
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGHUP)
	return c
}

// ErrOutputClosed is the cause of the end of a [Context] at a write to a standard output,
// or standard error, that nobody reads.
var ErrOutputClosed = errors.New("nobody reads the output")

// Context ends at the first signal that asks the program to end, or when nobody reads its
// output. Signals that were ignored when the program was started stay ignored, such as
// SIGHUP under nohup. A service whose log is the journal of systemd goes on when the
// journal ends. stop restores the former signal handling.
func Context(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	endings, pipes := make(chan os.Signal, 1), make(chan os.Signal, 1)
	notify(endings, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT)
	if early == nil {
		notify(hangups, unix.SIGHUP)
	}
	// Without this, the runtime ends the program at the write.
	signal.Notify(pipes, unix.SIGPIPE)
	logs := logsToJournal(os.Getenv("JOURNAL_STREAM"))
	go func() {
		for {
			select {
			case <-pipes:
				if logs || !unread() {
					continue
				}
				cancel(ErrOutputClosed)
			case <-endings:
			case <-hangups:
			case <-ctx.Done():
			}
			cancel(nil)
			return
		}
	}()
	return ctx, func() {
		cancel(nil)
		signal.Stop(endings)
		signal.Stop(hangups)
		signal.Stop(pipes)
	}
}

// unread says whether nobody reads standard output or standard error. With Notify the
// kernel's SIGPIPE is also received for sockets and pipes of this program's own.
func unread() bool {
	outputs := []unix.PollFd{{Fd: 1}, {Fd: 2}}
	if _, err := unix.Poll(outputs, 0); err != nil {
		return false
	}
	return (outputs[0].Revents|outputs[1].Revents)&(unix.POLLERR|unix.POLLHUP) != 0
}

// logsToJournal says whether standard error is the stream, device and inode, that systemd
// opened to its journal (systemd.exec(5), JOURNAL_STREAM).
func logsToJournal(stream string) bool {
	var st unix.Stat_t
	return unix.Fstat(2, &st) == nil && stream == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// hangups receives the SIGHUPs that end the program.
var hangups = make(chan os.Signal, 1)

// Reload returns the SIGHUPs of a daemon that reads its configuration again at
// each: from now on they do not end it, and in the command control none did before. The
// first may be from before the call.
func Reload() (reloads <-chan os.Signal, stop func()) {
	c := early
	if c == nil {
		c = make(chan os.Signal, 1)
	}
	signal.Notify(c, unix.SIGHUP)
	signal.Stop(hangups)
	return c, func() { signal.Stop(c) }
}

func notify(c chan<- os.Signal, signals ...os.Signal) {
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
}
