package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/stdout"
	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/kernels"
)

const runLong = `Run boots a guest, runs COMMAND in it as root, and ends with its exit status.
Standard output and standard error are the command's. The kernel's warnings go
to the console; --console writes them to a file.

The guest has busybox, the modules and files given, /dev/daybook/disk0, disk1,
... and pmem0, pmem1, ... in the order of the options, cgroup v2 with all
controllers (or v1), tracefs, bpffs and debugfs. A program that is given is copied
with its shared libraries, and replaces busybox's program of the same name.

With --systemd there is Debian with systemd as init, udev and D-Bus instead of
busybox, and cgroup v2. The command runs once the system is up. The first such
guest needs root, to build the root file system: daybook-vm rootfs.

Sizes are in bytes, or have a unit K, M, G or T. A disk without PATH is empty and
is deleted afterwards. PATH:SIZE keeps it in that file for the next run, also after
--kill-after.

Exit codes: the command's own, 126 if it cannot be run and 127 if it is not in
the guest, 128+N if signal N killed it; and

  121  the guest powered off or rebooted before all was done: under the command, or
       before the files of --fetch were here
  122  --kill-after killed the guest
  123  the guest's kernel panicked
  124  --timeout expired
  125  no guest, or a request to it failed: see the error
  130  Ctrl-C, SIGTERM, SIGHUP or SIGQUIT`

const runExample = `  # Does it work on the older kernel?
  daybook-vm run --kernel 6.1 -- uname -r

  # A file system of this host's tools, on a disk of 60 MiB/s
  daybook-vm run --disk 1G,bps=60M --modules ext4 --give mke2fs -- \
    sh -c 'mke2fs -q -t ext4 /dev/vda && mount /dev/vda /mnt && df /mnt'

  # A crash after two seconds, then what is left
  daybook-vm run --disk d.img:256M --modules ext4 --kill-after 2s --give w.sh:/w.sh -- sh /w.sh
  daybook-vm run --disk d.img:256M --modules ext4 --give e2fsck -- e2fsck -fn /dev/vda

  # Persistent memory, and a result brought back
  daybook-vm run --pmem 256M --give ./bench:/bench --fetch /tmp/out.json:out.json -- /bench /dev/daybook/pmem0

  # systemd as init, and an NVMe disk
  daybook-vm run --systemd --disk 1G,nvme -- systemctl status --no-pager

  # The attribution of a container's journal on another kernel
  daybook-vm run --kernel 6.12 --disk 512M --modules ext4,bfq --give bin/daybook:/usr/bin/daybook -- daybook version`

// runFlags are the options of run as the user wrote them.
type runFlags struct {
	kernel, init                string
	memory, append, console     string
	disks, pmem, gives, fetches []string
	modules                     []string
	cpus, cgroup                int
	systemd, engines            bool
	countInstructions           bool
	timeout, killAfter          time.Duration
}

// request is the checked form of runFlags.
type request struct {
	config             vm.Config
	fetches            [][2]string // in the guest, on the host
	console            string
	timeout, killAfter time.Duration
	command            []string
}

func newRunCommand() *cobra.Command {
	var flags runFlags
	cmd := &cobra.Command{
		Use:     "run [OPTIONS] -- COMMAND [ARGUMENT...]",
		Short:   "Boot a guest and run a command in it",
		Long:    runLong,
		Example: runExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			if flags.countInstructions && !cmd.Flags().Changed("cpus") {
				flags.cpus = 1
			}
			request, err := flags.parse(args)
			if err != nil {
				return statusError{exitHarness, err.Error() + "; see daybook-vm run --help"}
			}
			return request.do(cmd.Context())
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return statusError{exitHarness, err.Error() + "; see daybook-vm run --help"}
	})
	names := kernels.Names()
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVar(&flags.kernel, "kernel", names[len(names)-1], "kernel to boot: "+strings.Join(kernels.Bootable(), " or "))
	f.StringVar(&flags.init, "init", "", "daybook-vm for the kernel's architecture, the guest's init (default this program, or beside it daybook-vm-ARCHITECTURE)")
	f.StringArrayVar(&flags.disks, "disk", nil, "add a disk, [PATH:]SIZE[,bps=SIZE][,iops=N][,volatile][,flush=TIME][,nvme]; repeat for more")
	f.StringArrayVar(&flags.pmem, "pmem", nil, "add persistent memory, [PATH:]SIZE[,virtio]; repeat for more")
	f.StringSliceVar(&flags.modules, "modules", nil, "modules to load, by name or file; dependencies are loaded, too")
	f.StringArrayVar(&flags.gives, "give", nil, "copy a file, directory or program to the guest, HOSTPATH[:GUESTPATH]; repeat for more")
	f.StringArrayVar(&flags.fetches, "fetch", nil, "copy a file or directory from the guest after the command, GUESTPATH:HOSTPATH; repeat for more")
	f.StringVar(&flags.memory, "memory", "1G", "memory of the guest")
	f.IntVar(&flags.cpus, "cpus", vm.DefaultCPUs, "number of processors of the guest")
	f.IntVar(&flags.cgroup, "cgroup", 2, "cgroup version to mount, 1 or 2")
	f.BoolVar(&flags.systemd, "systemd", false, "boot Debian with systemd instead of busybox; the command runs once the system is up")
	f.BoolVar(&flags.engines, "engines", false, "with --systemd: use the image that has Docker, Podman and containerd")
	f.BoolVar(&flags.countInstructions, "count-instructions", false, "the guest's clocks count executed instructions, 1 ns each; one emulated processor")
	f.StringVar(&flags.append, "append", "", "append to the kernel command line")
	f.StringVar(&flags.console, "console", "", "file for the kernel console")
	f.DurationVar(&flags.timeout, "timeout", 10*time.Minute, "limit for the boot and the command together")
	f.DurationVar(&flags.killAfter, "kill-after", 0, "kill the guest, like a power cut, this long after the command started, if that still runs")
	return cmd
}

func (f runFlags) parse(args []string) (request, error) {
	r := request{
		config:  vm.Config{Kernel: f.kernel, Init: f.init, Systemd: f.systemd, Engines: f.engines, CPUs: f.cpus, Cgroup: f.cgroup, Append: f.append, Modules: f.modules, CountInstructions: f.countInstructions},
		console: f.console, timeout: f.timeout, killAfter: f.killAfter, command: args,
	}
	var errs []error
	if len(args) == 0 {
		errs = append(errs, errors.New("no command to run: daybook-vm run [OPTIONS] -- COMMAND"))
	}
	if f.timeout <= 0 || f.killAfter < 0 {
		errs = append(errs, errors.New("--timeout and --kill-after want a time above zero, such as 90s"))
	}
	if f.cpus == 0 || f.cgroup == 0 {
		errs = append(errs, errors.New("--cpus and --cgroup want a number above zero"))
	}
	var err error
	if r.config.MemoryBytes, err = vm.ParseSize(f.memory); err != nil {
		errs = append(errs, fmt.Errorf("--memory: %w", err))
	}
	r.config.Disks = parseEach(f.disks, "--disk", vm.ParseDisk, &errs)
	r.config.Pmem = parseEach(f.pmem, "--pmem", vm.ParsePmem, &errs)
	r.config.Give = parseEach(f.gives, "--give", vm.ParseGive, &errs)
	r.fetches = parseEach(f.fetches, "--fetch", parseFetch, &errs)
	if r.config.Init == "" {
		r.config.Init = foreignInit(f.kernel)
	}
	if len(errs) == 0 {
		if err := r.config.Check(); err != nil {
			errs = append(errs, err)
		}
	}
	return r, errors.Join(errs...)
}

// foreignInit returns the program beside this one that is built for a kernel of another
// architecture, "" if there is none or none is needed.
func foreignInit(kernel string) string {
	pin, err := kernels.Find(kernel)
	if err != nil || pin.Arch() == runtime.GOARCH {
		return ""
	}
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	beside := self + "-" + pin.Arch()
	if _, err := os.Stat(beside); err != nil {
		return ""
	}
	return beside
}

func parseEach[T any](texts []string, option string, parse func(string) (T, error), errs *[]error) []T {
	var values []T
	for _, text := range texts {
		value, err := parse(text)
		if err != nil {
			*errs = append(*errs, fmt.Errorf("%s: %w", option, err))
		}
		values = append(values, value)
	}
	return values
}

func parseFetch(s string) ([2]string, error) {
	guest, host, found := strings.Cut(s, ":")
	if !found || host == "" || !strings.HasPrefix(guest, "/") {
		return [2]string{}, fmt.Errorf("%q: want GUESTPATH:HOSTPATH, with an absolute path in the guest", s)
	}
	return [2]string{guest, host}, nil
}

var errTimeout = errors.New("the time-out expired")

// do boots the guest, runs the command, fetches files, and returns the
// command's status.
func (r request) do(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, r.timeout, errTimeout)
	defer cancel()
	config := r.config
	config.Log = say
	if r.console != "" {
		// An open of a pipe that nobody reads would wait.
		file, err := os.OpenFile(r.console, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK, 0o666)
		if err != nil {
			return statusError{exitHarness, err.Error()}
		}
		defer file.Close()
		config.Console = file
	}
	m, err := vm.Boot(ctx, config)
	if err != nil {
		return r.status(err)
	}
	defer end(m)
	out := stdout.On(os.Stdout)
	p, err := m.Start(vm.Command{Args: r.command, Stdout: out, Stderr: os.Stderr})
	if err != nil {
		return r.status(err)
	}
	err = r.status(r.wait(ctx, m, p))
	for _, line := range m.KernelProblems() {
		say("the guest's kernel: %s", line)
	}
	if m.Err() != nil || ctx.Err() != nil {
		return cmp.Or(err, r.leftUndone(cmp.Or(context.Cause(ctx), m.Err())), r.lost(out))
	}
	finishErr := errors.Join(r.finish(ctx, m), r.lost(out))
	if err != nil && finishErr != nil {
		say("%s", message(finishErr)) // the command's status is more important
		return err
	}
	return errors.Join(err, finishErr)
}

// leftUndone returns the status if the guest was gone before what comes after a command that succeeded.
// A guest that powered off by itself has shut down its disks.
func (r request) leftUndone(gone error) error {
	if errors.Is(gone, vm.ErrEnded) && len(r.fetches) == 0 {
		return nil
	}
	return r.status(gone)
}

// wait waits for the command, and kills the guest after killAfter.
func (r request) wait(ctx context.Context, m *vm.Machine, p *vm.Process) error {
	if r.killAfter > 0 {
		timer := time.AfterFunc(r.killAfter, m.Kill)
		defer timer.Stop()
	}
	return p.Wait(ctx)
}

// endPatience bounds the wait for the end of a guest that was killed.
const endPatience = 10 * time.Second

// end kills the guest. It does not wait longer for output that it still writes, because nobody may
// read that.
func end(m *vm.Machine) {
	ended := make(chan struct{})
	go func() { m.Close(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(endPatience):
	}
}

// lost returns the error of a command whose output could not be written here.
func (r request) lost(out *stdout.Output) error {
	if err := out.Or(nil); err != nil {
		return statusError{exitHarness, "cannot write all of the command's output: " + err.Error()}
	}
	return nil
}

// finish fetches files, and shuts down a guest whose disks are kept.
func (r request) finish(ctx context.Context, m *vm.Machine) error {
	for _, fetch := range r.fetches {
		if err := m.Fetch(ctx, fetch[0], fetch[1]); err != nil {
			return r.status(err)
		}
	}
	kept := false
	for _, d := range r.config.Disks {
		kept = kept || d.Path != ""
	}
	for _, p := range r.config.Pmem {
		kept = kept || p.Path != ""
	}
	if kept {
		return r.status(m.Shutdown(ctx))
	}
	return nil
}

// status converts the outcome into the exit code.
func (r request) status(err error) error {
	var exit *vm.ExitError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &exit):
		return statusError{exit.Status(), exit.Reason}
	case errors.Is(err, errTimeout):
		return statusError{exitTimeout, fmt.Sprintf("the time-out of %s expired; the guest is killed", r.timeout)}
	case errors.Is(err, vm.ErrPanicked):
		return statusError{exitPanicked, err.Error()}
	case errors.Is(err, vm.ErrKilled) && r.killAfter > 0:
		return statusError{exitKilled, fmt.Sprintf("the guest was killed after %s (--kill-after)", r.killAfter)}
	case errors.Is(err, vm.ErrEnded):
		return statusError{exitEnded, "the guest powered off or rebooted before all was done"}
	default:
		return statusError{exitHarness, err.Error()}
	}
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "daybook-vm: "+format+"\n", args...) }
