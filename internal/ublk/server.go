package ublk

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// environment passes the image's path to the server.
const environment = "DAYBOOK_UBLK_IMAGE"

// RunIfAsked makes this process the server of an image if its environment requests it,
// and then never returns. main and TestMain of programs that use Start call it first.
//
// The server prints the path of its disk, serves until its input closes, and removes the
// disk.
func RunIfAsked() {
	image, asked := os.LookupEnv(environment)
	if !asked {
		return
	}
	if err := run(image, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "ublk:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(path string, in io.Reader, out io.Writer) error {
	input := bufio.NewReader(in)
	if _, err := input.ReadString('\n'); err != nil { // before that, this process is put into its cgroup
		return nil // the owner ended before the start
	}
	image, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer func() { _ = image.Close() }()
	facts, err := image.Stat()
	if err != nil {
		return err
	}
	driver, err := openControl()
	if err != nil {
		return err
	}
	if err := driver.add(); err != nil {
		return err
	}
	if err := driver.set(uint64(facts.Size())); err != nil {
		return errors.Join(err, driver.command(deleteDevice, 0, 0))
	}
	device, err := openDevice(fmt.Sprintf("/dev/ublkc%d", driver.device))
	if err != nil {
		return errors.Join(err, driver.command(deleteDevice, 0, 0))
	}
	defer func() { _ = device.Close() }()
	q := &queue{device: device, image: image}
	fetched, started, ended := make(chan struct{}), make(chan error, 1), make(chan error, 1)
	go func() { ended <- q.serve(fetched) }()
	select {
	case <-fetched:
	case err := <-ended:
		return errors.Join(err, device.Close(), driver.command(deleteDevice, 0, 0))
	}
	// The driver answers once the queue has served the first reads of the disk.
	go func() { started <- driver.start() }()
	select {
	case err = <-started:
	case err := <-ended:
		return err // the end of this process ends the device
	}
	if err == nil {
		fmt.Fprintln(out, driver.node())
		_, _ = io.Copy(io.Discard, input) // until the owner closes or dies
	}
	err = errors.Join(err, driver.command(stopDevice, 0, 0), <-ended)
	// The driver deletes a device only once its file is closed.
	return errors.Join(err, device.Close(), driver.command(deleteDevice, 0, 0))
}

// openDevice waits for the node, which the kernel or udev makes.
func openDevice(path string) (file *os.File, err error) {
	for range 500 {
		if file, err = os.OpenFile(path, os.O_RDWR, 0); err == nil || !errors.Is(err, os.ErrNotExist) {
			return file, err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, err
}

// Server is a process that serves an image.
type Server struct {
	// Node is the path of the disk.
	Node    string
	command *exec.Cmd
	input   io.WriteCloser
	errors  strings.Builder
}

// Start starts a server for an image in a cgroup, given by its directory, and returns
// when the disk is there. The server ends with its parent; then the disk's requests fail.
func Start(image, cgroupDirectory string) (s *Server, err error) {
	s = &Server{command: exec.Command("/proc/self/exe")}
	s.command.Env = append(os.Environ(), environment+"="+image)
	s.command.Stderr = &s.errors
	s.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the parent
	if s.input, err = s.command.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := s.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	fail := func(err error) (*Server, error) {
		return nil, fmt.Errorf("cannot serve %s: %w", image, errors.Join(err, s.Stop()))
	}
	procs := filepath.Join(cgroupDirectory, "cgroup.procs")
	if err := os.WriteFile(procs, []byte(strconv.Itoa(s.command.Process.Pid)), 0); err != nil {
		return fail(err)
	}
	if _, err := s.input.Write([]byte("go\n")); err != nil {
		return fail(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return fail(err)
	}
	s.Node = strings.TrimSpace(line)
	return s, nil
}

// Stop removes the disk, which must not be in use, and waits for the end of the server.
func (s *Server) Stop() error {
	_ = s.input.Close()
	if err := s.command.Wait(); err != nil {
		return fmt.Errorf("the server of %s failed: %w: %s", s.Node, err, strings.TrimSpace(s.errors.String()))
	}
	return nil
}
