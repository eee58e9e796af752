package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/daybook-project/daybook/vm/internal/wire"
	"golang.org/x/sys/unix"
)

// server runs processes for the host. As init it must also reap orphans, so it
// waits for all children.
type server struct {
	port   io.ReadWriter
	sendMu sync.Mutex

	mu    sync.Mutex // held while starting, so that no exit is missed
	byPID map[int]chan unix.WaitStatus
	byID  map[uint32]int // the process IDs of the host's processes

	powerOff func() // shuts the guest down
}

func newServer(port io.ReadWriter) *server {
	s := &server{port: port, byPID: make(map[int]chan unix.WaitStatus), byID: make(map[uint32]int)}
	s.powerOff = s.shutdown
	return s
}

func (s *server) send(kind wire.Kind, process uint32, value any) error {
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	return wire.WriteJSON(s.port, kind, process, value)
}

func (s *server) sendOutput(kind wire.Kind, process uint32, b []byte) error {
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	return wire.Write(s.port, wire.Frame{Kind: kind, Process: process, Payload: b})
}

// serve handles the host's requests until a shutdown request.
func (s *server) serve() error {
	go s.reap()
	for {
		frame, err := wire.Read(s.port)
		if err != nil {
			return err
		}
		switch frame.Kind {
		case wire.Start:
			var request wire.Request
			if err := json.Unmarshal(frame.Payload, &request); err != nil {
				return err
			}
			if request.Archive != "" {
				go s.archive(frame.Process, request.Archive)
			} else {
				s.start(frame.Process, request)
			}
		case wire.Signal:
			var number int
			if err := json.Unmarshal(frame.Payload, &number); err != nil {
				return err
			}
			s.signal(frame.Process, unix.Signal(number))
		case wire.Mark:
			// At the level of a warning, so that the console prints it after
			// all earlier warnings.
			_ = os.WriteFile("/dev/kmsg", append([]byte("<4>"), frame.Payload...), 0)
		case wire.Shutdown:
			s.powerOff()
		default:
			return fmt.Errorf("the host sent a message of kind %d", frame.Kind)
		}
	}
}

// reap waits for every child, and sends its status to the waiter.
func (s *server) reap() {
	died := make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD)
	for ; ; <-died {
		for {
			var status unix.WaitStatus
			pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || pid <= 0 {
				break
			}
			s.mu.Lock()
			if exited, ours := s.byPID[pid]; ours {
				delete(s.byPID, pid)
				exited <- status // it has room for one
			}
			s.mu.Unlock()
		}
	}
}

// signal sends a signal to the process group of a process of the host. It does
// nothing if the process has ended.
func (s *server) signal(id uint32, number unix.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pid, alive := s.byID[id]; alive {
		_ = unix.Kill(-pid, number)
	}
}

// shutdownGrace is the time between SIGTERM and SIGKILL.
const shutdownGrace = time.Second

// shutdown ends all processes, unmounts disks and powers off.
func (s *server) shutdown() {
	s.mu.Lock()
	running := len(s.byPID)
	s.mu.Unlock()
	if running > 0 {
		_ = unix.Kill(-1, unix.SIGTERM)
		for end := time.Now().Add(shutdownGrace); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			s.mu.Lock()
			running := len(s.byPID)
			s.mu.Unlock()
			if running == 0 {
				break
			}
		}
	}
	_ = unix.Kill(-1, unix.SIGKILL)
	unmountDisks()
	powerOff()
}
