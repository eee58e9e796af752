package victimtest

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// HearSignals makes processes that this one starts from now on hear the signals that end a
// command, even if this process ignores them: so it is under nohup, and in the background of
// a script. A child would inherit that, and a test that sends it a signal would wait for ever.
// TestMain calls it before all tests.
func HearSignals() {
	for _, s := range []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM} {
		if signal.Ignored(s) {
			// A signal with a handler has the default action in a new program. Nobody reads
			// the channel, so this process ignores the signal as before.
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}
