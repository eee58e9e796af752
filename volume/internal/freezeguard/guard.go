// Package freezeguard freezes file systems in a process of its own, the guardian. A frozen
// file system blocks its writers until a process thaws it, also after the death of the
// process that froze it. The guardian outlives its caller: it is in a session of its own and
// in the root cgroups, and ignores the signals that end a login or a service. It thaws when
// the caller asks for it, when the caller has died, and when the freeze exceeds its limit. It
// shares the caller's lock of the volume, so that no other process works on the volume before
// it is thawed.
//
// guard.go has the guardian, caller.go the other side of the conversation.
package freezeguard

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/cgroup"
)

// variable in the environment makes a program that calls [IfAsked] a guardian, with the
// pool, the volume and the longest freeze in nanoseconds as arguments.
const variable = "DAYBOOK_VOLUME_GUARD"

// Name is the guardian's name in a list of processes.
const Name = "daybook-freeze-guard"

// The open files that the caller passes to its guardian.
const (
	conversationFD = 3 // a socket to the caller
	directoryFD    = 4 // the root directory of the file system
	lockFD         = 5 // the volume's lock, which only has to stay open
)

// The messages between caller and guardian. Each is one packet; after those that end
// with a space, details follow.
const (
	sayReady    = "ready "      // what follows are the cgroups it could not leave
	sayFreeze   = "freeze"      // from the caller
	sayFrozen   = "frozen"      // the answer
	sayFailed   = "failed "     // it is not; the error number follows
	sayThaw     = "thaw"        // from the caller
	sayThawed   = "thawed"      // it was frozen until now
	sayExpired  = "expired"     // it was thawed when the time was over
	sayNotOurs  = "not frozen"  // another process had thawed it
	sayNoThaw   = "not thawed " // the error number follows
	maxSayBytes = 4096
)

// Ready is set if this program can be a guardian.
var Ready atomic.Bool

// IfAsked turns the calling program into a guardian and never returns, if it was started for
// that. thawed is called when the file system is thawed and the caller has closed the
// conversation or is dead, with the pool and the volume of [Freeze].
func IfAsked(thawed func(pool, volume string) error) {
	if os.Getenv(variable) == "" {
		Ready.Store(true)
		return
	}
	if err := guardAsAsked(thawed); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", Name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func guardAsAsked(thawed func(pool, volume string) error) error {
	if len(os.Args) != 4 {
		return errors.New("want the pool, the volume and the longest freeze as arguments")
	}
	longest, err := strconv.ParseInt(os.Args[3], 10, 64)
	if err != nil {
		return err
	}
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE)
	if err := guard(time.Duration(longest)); err != nil {
		return err
	}
	return thawed(os.Args[1], os.Args[2])
}

// guard freezes when the caller asks for it. It returns when the file system is thawed and
// the caller has closed the conversation or is dead.
func guard(longest time.Duration) error {
	say(sayReady + strings.Join(cgroup.LeaveAll(), ", "))
	if word, _ := hear(-1); word != sayFreeze {
		return nil
	}
	began := time.Now()
	if err := unix.IoctlSetInt(directoryFD, fiFreeze, 0); err != nil {
		say(sayFailed + errorNumber(err))
		awaitEnd()
		return nil
	}
	say(sayFrozen)
	word, inTime := hear(max(0, longest-time.Since(began)))
	err := unix.IoctlSetInt(directoryFD, fiThaw, 0)
	notOurs := errors.Is(err, unix.EINVAL)
	switch {
	case err != nil && !notOurs:
		say(sayNoThaw + errorNumber(err))
		return fmt.Errorf("cannot thaw: %w", err)
	case !inTime:
		say(sayExpired)
	case word == sayThaw && notOurs:
		say(sayNotOurs)
	case word == sayThaw:
		say(sayThawed)
	}
	awaitEnd()
	return nil
}

// awaitEnd waits until the caller closes the conversation, or is dead.
func awaitEnd() {
	for word := sayThaw; word != ""; {
		word, _ = hear(-1)
	}
}

// say sends a message to the caller; hear notices a dead one.
func say(text string) {
	_, _ = unix.SendmsgN(conversationFD, []byte(text), nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
}

// hear waits for the caller's next message, "" if the caller has died. inTime is false if
// none came for that long; below 0 there is no limit.
func hear(patience time.Duration) (word string, inTime bool) {
	deadline := time.Now().Add(patience)
	buffer := make([]byte, maxSayBytes)
	for {
		wait := -1
		if patience >= 0 {
			left := max(0, time.Until(deadline))
			wait = int((left + time.Millisecond - 1) / time.Millisecond)
		}
		fds := []unix.PollFd{{Fd: conversationFD, Events: unix.POLLIN}}
		ready, err := unix.Poll(fds, wait)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return "", true
		case ready == 0:
			return "", false
		}
		n, err := unix.Read(conversationFD, buffer)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		return string(buffer[:max(0, n)]), true
	}
}

func errorNumber(err error) string {
	var number unix.Errno
	_ = errors.As(err, &number) // 0 is no error number of the kernel
	return strconv.Itoa(int(number))
}
