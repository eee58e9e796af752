package disksim

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// serveVariable in the environment makes a program that calls [ServeIfAsked] do
// the work of a disk, with the disk's name and state directory as arguments.
const serveVariable = "DAYBOOK_DISK_SERVE"

// The values of serveVariable.
const (
	workServe     = "serve"
	workDismantle = "dismantle"
)

// The open files that the creator passes to its server.
const (
	conversationFD = 3 // a socket to the creator
	lockFD         = 4 // the disk's locked file, which only has to stay open
)

// dismantlePatience limits how long a server whose owner died waits for the
// users of its disk before they get errors.
const dismantlePatience = 5 * time.Second

// assignment is the first message of the creator to its server.
type assignment struct {
	Model   Model  `json:"model"`
	Backing string `json:"backing"`
}

// answer is the reply of the server when the disk's file exists, or cannot be
// made.
type answer struct {
	Error string `json:"error"`
}

// keepWord is the creator's message that the disk shall outlive it.
const keepWord = "keep"

// ServeIfAsked turns the calling program into the server of a disk and never
// returns, if [Create] started it for that; otherwise it does nothing. Programs
// that create disks call it first in main, and tests in TestMain.
func ServeIfAsked() {
	work := os.Getenv(serveVariable)
	if work == "" {
		return
	}
	logger := log.New(os.Stderr, "", log.LstdFlags|log.LUTC)
	err := errors.New("want the disk's name and state directory as arguments")
	if len(os.Args) == 3 && CheckName(os.Args[1]) == nil {
		name, h := os.Args[1], home(os.Args[2])
		switch work {
		case workServe:
			err = serve(h, name, logger)
		case workDismantle:
			err = dismantleForServer(h, name)
		}
	}
	if err != nil {
		logger.Print(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(h home, name string, logger *log.Logger) error {
	// A simulated disk must not wait for a processor: otherwise it would be
	// slower the busier the host is. Without privileges the call fails.
	_ = unix.Setpriority(unix.PRIO_PGRP, 0, -20)
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT)

	conversation := os.NewFile(conversationFD, "creator")
	lines := bufio.NewReader(conversation)
	text, err := lines.ReadBytes('\n')
	if err != nil {
		return errors.Join(fmt.Errorf("the creator died before it sent the disk to serve: %w", err), h.removeTraces(name))
	}
	var task assignment
	if err := json.Unmarshal(text, &task); err != nil {
		return err
	}
	disk, connection, err := open(h, name, task, logger)
	unmounted := make(chan struct{})
	if err == nil {
		go func() {
			connection.Serve()
			close(unmounted)
		}()
	}
	// A dead creator is noticed below.
	_ = tell(conversation, err)
	if err != nil {
		return errors.Join(err, unmountFUSE(h.mountPoint(name)), h.removeTraces(name))
	}

	orphaned := make(chan struct{})
	go func() {
		if !mayOutliveCreator(lines, conversation, disk.arm) {
			close(orphaned)
		}
	}()
	select {
	case <-unmounted:
		logger.Print("unmounted by another process")
	case <-orphaned:
	case <-terminate:
	}
	disk.arm.finish()
	return dismantleInChild(h, name)
}

// dismantleInChild dismantles the disk in another process. Unmounting waits for
// writes to this disk. A process that waits for its own FUSE file system and is
// killed then never ends, and its disk hangs forever.
func dismantleInChild(h home, name string) error {
	if err := closeOnExec("/dev/fuse"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), dismantlePatience+5*time.Second)
	defer cancel()
	child := exec.CommandContext(ctx, "/proc/self/exe")
	child.Args = []string{os.Args[0], name, string(h)}
	child.Env = append(os.Environ(), serveVariable+"="+workDismantle)
	child.Stderr = os.Stderr
	// The disk counts as alive until both have ended.
	child.ExtraFiles = []*os.File{os.NewFile(lockFD, "lock")}
	// A stuck child gets its errors when this process ends, which must
	// therefore not wait for it.
	child.WaitDelay = time.Second
	ended := make(chan error, 1)
	if err := child.Start(); err != nil {
		return err
	}
	go func() { ended <- child.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the disk is still in use: its users get errors now: %w", ctx.Err())
	}
}

func dismantleForServer(h home, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), dismantlePatience)
	defer cancel()
	if err := h.dismantle(ctx, name); err != nil {
		return err
	}
	return h.removeTraces(name)
}

// closeOnExec prevents children from inheriting the open files of that path: a
// child with /dev/fuse open would keep a dead server's file system alive.
func closeOnExec(path string) error {
	const fds = "/proc/self/fd"
	entries, err := os.ReadDir(fds)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join(fds, entry.Name()))
		if err != nil || target != path {
			continue
		}
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			return err
		}
		unix.CloseOnExec(fd)
	}
	return nil
}

// open mounts the disk's file below the mount point. Once the caller serves the
// connection, the file can be used; requests of an earlier user wait for that.
//
// This process must not use the file itself, as the connection's WaitMount does:
// a thread that waits for its own process cannot be killed. The process then
// never ends, and keeps its lock, its connection and its mount.
func open(h home, name string, task assignment, logger *log.Logger) (*file, *fuse.Server, error) {
	store, err := openStore(task.Backing, task.Model.SizeBytes)
	if err != nil {
		return nil, nil, err
	}
	disk := newFile(name, task.Model, store)
	connection, err := disk.mount(h.mountPoint(name), logger)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot mount the disk's FUSE file system: %w", err)
	}
	return disk, connection, nil
}

func tell(conversation io.Writer, err error) error {
	reply := answer{}
	if err != nil {
		reply.Error = err.Error()
	}
	text, err := json.Marshal(reply)
	if err != nil {
		return err
	}
	_, err = conversation.Write(append(text, '\n'))
	return err
}

// mayOutliveCreator obeys the creator until its last message. The kernel closes
// its end of the socket however it dies.
func mayOutliveCreator(lines *bufio.Reader, conversation io.Writer, a *arm) bool {
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return false
		}
		switch line {
		case keepWord + "\n":
			return true
		case instantWord + "\n", timedWord + "\n":
			a.setInstant(line == instantWord+"\n")
			_ = tell(conversation, nil)
		}
	}
}

// server is the creator's view of the process that serves a disk.
type server struct {
	conversation *os.File
	lines        *bufio.Reader
	pid          int
	start        uint64
	// exited is closed when the process has ended and was waited for.
	exited chan struct{}
	// once guards the end of conversation.
	once sync.Once
}

// leave closes the socket: an owner-bound server dismantles its disk.
func (s *server) leave() { s.once.Do(func() { _ = s.conversation.Close() }) }
