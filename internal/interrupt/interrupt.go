// Package interrupt lets a command clean up before a signal ends it: Ctrl-C,
// SIGTERM, SIGQUIT, or SIGHUP, which is sent when a terminal or an SSH session
// closes.
package interrupt

import (
	"context"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Context ends at the first signal that asks the program to end. Signals that
// were ignored when the program was started stay ignored, such as SIGHUP under
// nohup. stop restores the former signal handling.
func Context(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	endings := make(chan os.Signal, 1)
	notify(endings, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT)
	notify(hangups, unix.SIGHUP)
	go func() {
		select {
		case <-endings:
		case <-hangups:
		case <-ctx.Done():
		}
		cancel()
	}()
	return ctx, func() {
		cancel()
		signal.Stop(endings)
		signal.Stop(hangups)
	}
}

// hangups receives the SIGHUPs that end the program.
var hangups = make(chan os.Signal, 1)

// Reload returns the SIGHUPs of a daemon that reads its configuration again at
// each: from now on they do not end it.
func Reload() (reloads <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
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
