package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/daybook-project/daybook/vm/internal/wire"
	"golang.org/x/sys/unix"
)

// The exit codes of a shell for a command that could not be started.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

// outputGrace limits the wait for the output of a process's children after it ended: they
// may keep its pipes open forever. What the process wrote itself is waited for.
const outputGrace = time.Second

// start runs one process. In all cases the host gets one Exit.
func (s *server) start(id uint32, request wire.Request) {
	exited, outputs, err := s.spawn(id, request)
	if err != nil {
		result := wire.Result{Code: codeNotExecutable, Error: err.Error()}
		if errors.Is(err, fs.ErrNotExist) {
			result.Code = codeNotFound
		}
		_ = s.send(wire.Exit, id, result)
		return
	}
	var copies sync.WaitGroup
	ended := make(chan struct{})
	for _, o := range outputs {
		copies.Go(func() {
			o.copy(func(b []byte) {
				select {
				case <-ended:
				default:
					_ = s.sendOutput(o.kind, id, b)
				}
			})
		})
	}
	go func() {
		status := <-exited
		s.mu.Lock()
		delete(s.byID, id)
		s.mu.Unlock()
		grace := time.After(outputGrace)
		for _, o := range outputs {
			<-o.written()
		}
		drained := make(chan struct{})
		go func() { copies.Wait(); close(drained) }()
		select {
		case <-drained:
		case <-grace:
		}
		close(ended)
		result := wire.Result{Code: status.ExitStatus()}
		if status.Signaled() {
			result = wire.Result{Signal: int(status.Signal())}
		}
		_ = s.send(wire.Exit, id, result)
	}()
}

// spawn starts the process in a session of its own, with pipes for its output.
func (s *server) spawn(id uint32, request wire.Request) (<-chan unix.WaitStatus, []*output, error) {
	env := mergeEnvironment(childEnvironment(), request.Env)
	dir := request.Dir
	if dir == "" {
		dir = "/root"
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, nil, errors.New("no working directory: " + err.Error())
	}
	program, err := findProgram(request.Args[0], dir, variable(env, "PATH"))
	if err != nil {
		return nil, nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, nil, err
	}
	defer null.Close()
	stdoutRead, stdoutWrite, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer stdoutWrite.Close()
	stderrRead, stderrWrite, err := os.Pipe()
	if err != nil {
		stdoutRead.Close()
		return nil, nil, err
	}
	defer stderrWrite.Close()

	s.mu.Lock()
	defer s.mu.Unlock()
	process, err := os.StartProcess(program, request.Args, &os.ProcAttr{
		Dir: dir, Env: env,
		Files: []*os.File{null, stdoutWrite, stderrWrite},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		stdoutRead.Close()
		stderrRead.Close()
		return nil, nil, err
	}
	exited := make(chan unix.WaitStatus, 1)
	s.byPID[process.Pid] = exited
	s.byID[id] = process.Pid
	_ = process.Release() // reap waits for it
	return exited, []*output{{kind: wire.Stdout, pipe: stdoutRead}, {kind: wire.Stderr, pipe: stderrRead}}, nil
}

// findProgram searches for a program like a shell.
func findProgram(name, dir, path string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		_, err := os.Stat(name)
		return name, err
	}
	for d := range strings.SplitSeq(path, ":") {
		candidate := filepath.Join(d, name)
		if info, err := os.Stat(candidate); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return candidate, nil
		}
	}
	return "", &fs.PathError{Op: "find in the guest", Path: name, Err: fs.ErrNotExist}
}

// mergeEnvironment overrides the guest's own variables with the host's.
func mergeEnvironment(own, given []string) []string {
	merged := append([]string(nil), given...)
	for _, pair := range own {
		name, _, _ := strings.Cut(pair, "=")
		if variable(given, name) == "" {
			merged = append(merged, pair)
		}
	}
	return merged
}

func variable(env []string, name string) string {
	for _, pair := range env {
		if value, found := strings.CutPrefix(pair, name+"="); found {
			return value
		}
	}
	return ""
}
