package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/daybook-project/daybook/vm/internal/wire"
)

// Why a guest is gone.
var (
	ErrPanicked = errors.New("the guest's kernel panicked")
	ErrKilled   = errors.New("the guest was killed")
	ErrEnded    = errors.New("the guest powered off")
)

// boot is one run of QEMU.
type boot struct {
	qemu    *emulator
	channel *os.File
	console consoleLog
	killed  atomic.Bool
	// journalSeen counts the lines that JournalErrors has reported; Machine.mu.
	journalSeen int
	gone        chan struct{} // closed when QEMU has ended and all its output is read
	ready       chan wire.Greeting

	sendMu sync.Mutex

	mu        sync.Mutex
	nextMark  uint32
	nextID    uint32
	processes map[uint32]*Process
}

// startBoot starts QEMU for a platform. files are inherited after channel and console.
func startBoot(platform platform, args []string, files []*os.File, also io.Writer) (*boot, error) {
	channel, channelTheirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer channelTheirs.Close()
	console, consoleTheirs, err := socketPair()
	if err != nil {
		channel.Close()
		return nil, err
	}
	defer consoleTheirs.Close()
	qemu, err := spawn(platform, args, append([]*os.File{channelTheirs, consoleTheirs}, files...))
	if err != nil {
		channel.Close()
		console.Close()
		return nil, err
	}
	b := &boot{
		qemu: qemu, channel: channel, console: consoleLog{also: also},
		gone: make(chan struct{}), ready: make(chan wire.Greeting, 1), processes: make(map[uint32]*Process),
	}
	var readers sync.WaitGroup
	readers.Go(func() { _, _ = io.Copy(&b.console, console); console.Close() })
	readers.Go(b.receive)
	go func() {
		<-qemu.Ended()
		readers.Wait() // their sockets end with QEMU
		channel.Close()
		b.endProcesses()
		close(b.gone)
	}()
	return b, nil
}

// waitReady waits for the greeting of the agent.
func (b *boot) waitReady(ctx context.Context) error {
	select {
	case greeting := <-b.ready:
		if greeting.Error != "" {
			return fmt.Errorf("the guest booted but could not be set up: %s", greeting.Error)
		}
		return nil
	case <-b.gone:
		return b.end()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// receive passes the messages of the guest to their receivers.
func (b *boot) receive() {
	for {
		frame, err := wire.Read(b.channel)
		if err != nil {
			return // the end of QEMU
		}
		if frame.Kind == wire.Hello {
			var greeting wire.Greeting
			if json.Unmarshal(frame.Payload, &greeting) == nil {
				select {
				case b.ready <- greeting:
				default:
				}
			}
			continue
		}
		b.mu.Lock()
		p := b.processes[frame.Process]
		if frame.Kind == wire.Exit {
			delete(b.processes, frame.Process)
		}
		b.mu.Unlock()
		if p != nil {
			p.receive(frame)
		}
	}
}

func (b *boot) send(kind wire.Kind, process uint32, value any) error {
	b.sendMu.Lock()
	defer b.sendMu.Unlock()
	return wire.WriteJSON(b.channel, kind, process, value)
}

// consolePatience bounds the wait for the console; a guest may have silenced
// it.
const consolePatience = 2 * time.Second

// awaitConsole waits until all kernel messages so far are read. Console and
// commands use different channels, so the end of a command may arrive before the
// warning that it caused.
func (b *boot) awaitConsole() {
	b.mu.Lock()
	b.nextMark++
	mark := wire.MarkPrefix + strconv.FormatUint(uint64(b.nextMark), 10) + "."
	b.mu.Unlock()
	b.sendMu.Lock()
	err := wire.Write(b.channel, wire.Frame{Kind: wire.Mark, Payload: []byte(mark)})
	b.sendMu.Unlock()
	if err != nil {
		return // it has ended; its output has been read when gone is closed
	}
	const pause = 2 * time.Millisecond
	for end := time.Now().Add(consolePatience); !b.console.has(mark) && time.Now().Before(end); {
		select {
		case <-b.gone:
			return
		case <-time.After(pause):
		}
	}
}

func (b *boot) sendShutdown() error { return b.send(wire.Shutdown, 0, nil) }

// kill ends QEMU at once and waits until everything has ended.
func (b *boot) kill() {
	select {
	case <-b.gone:
		return
	default:
	}
	b.killed.Store(true)
	b.qemu.Kill()
	<-b.gone
}

// killNow ends QEMU at once, and does not wait.
func (b *boot) killNow() {
	b.killed.Store(true)
	_ = b.qemu.Signal(syscall.SIGKILL)
}

// end returns the reason why the guest is gone.
func (b *boot) end() error {
	<-b.qemu.Ended()
	text := b.console.String()
	switch {
	case strings.Contains(text, panicMark):
		for _, line := range KernelProblems(text) {
			if _, what, found := strings.Cut(line, panicMark); found {
				return fmt.Errorf("%w%s", ErrPanicked, what)
			}
		}
		return ErrPanicked
	case b.killed.Load():
		return ErrKilled
	case b.qemu.Said() != "":
		return fmt.Errorf("QEMU ended: %s", b.qemu.Said())
	}
	var exit *exec.ExitError
	if _, err := b.qemu.Wait(context.Background()); errors.As(err, &exit) {
		// SIGKILL from the kernel's OOM killer, SIGBUS for a file of persistent memory
		// on a full file system.
		return fmt.Errorf("QEMU ended (%s): this host may be out of memory, or of space on its disk", exit)
	}
	return ErrEnded
}

// endProcesses ends all waits for processes of the guest.
func (b *boot) endProcesses() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, p := range b.processes {
		p.finish(b.end())
		delete(b.processes, id)
	}
	b.processes = nil
}

// lastWords returns the end of the console output, as a suffix of an error.
func (b *boot) lastWords() string {
	const lines = 20
	if text := strings.TrimSpace(b.console.String()); text != "" {
		return "\nthe console's last lines:\n" + lastLines(text, lines)
	}
	return ""
}
