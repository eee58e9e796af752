package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// An NVMe disk is pulled out while a file system is mounted and written to, and put in
// again. What observes all disks goes on without it and finds it again; what was asked
// for this disk alone ends with an error that names it; control of the other goes on.
func TestGuestADiskIsPulledOutAndPutInAgain(t *testing.T) {
	vmtest.Long(t)
	vmtest.InGuest(t, vmtest.Config{
		Disks: []string{"64M,nvme", "64M,nvme"}, Modules: "ext4,bfq", Give: []string{"mke2fs"}, Fresh: true, OneKernel: true,
		AllowKernelProblems: true, // ext4 reports the loss of its disk
	}, func(t *testing.T) {
		dir := t.TempDir()
		mount := func(node, name string) string {
			at := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(at, 0o755), ext4.Make(t.Context(), node, ext4.MakeOptions{}), ext4.Mount(node, at, ext4.MountOptions{})); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) }) // its disk may be gone
			return at
		}
		disk := func(name string) blockdev.Disk {
			d, err := blockdev.Lookup(vmtest.Device(t, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := d.SetScheduler(blockdev.BFQ); err != nil {
				t.Fatal(err)
			}
			return d
		}
		stays, goes := disk("disk0"), disk("disk1")
		write(t, mount(stays.Node(), "stays"))
		write(t, mount(goes.Node(), "goes"))

		record := filepath.Join(dir, "all")
		all := startDaybook(t, "top", "--json", "--interval", "1s", "--record", record)
		one := startDaybook(t, "top", "--json", "--interval", "1s", "--device", goes.Name)
		control := startDaybook(t, "control", "--device", stays.Name, "--device", goes.Name, "--interval", "1s", "--state-dir", filepath.Join(dir, "state"), "--verbose")
		last := func() string {
			text, err := os.ReadFile(record)
			if err != nil {
				return ""
			}
			lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
			return lines[len(lines)-1]
		}
		shows := func(d blockdev.Disk) bool { return strings.Contains(last(), `"device":"`+d.Name+`"`) }
		awaittest.Until(t, slowly, "top shows both disks", func() bool { return shows(stays) && shows(goes) })
		awaittest.Until(t, slowly, "control has a state of both", func() bool {
			found, err := filepath.Glob(filepath.Join(dir, "state", "control-*.json"))
			return err == nil && len(found) == 2
		})

		pci, err := filepath.EvalSymlinks("/sys/block/" + goes.Name + "/device/device")
		if err == nil {
			err = os.WriteFile(filepath.Join(pci, "remove"), []byte("1"), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		awaittest.Until(t, slowly, "top goes on without the disk", func() bool { return shows(stays) && !shows(goes) })
		if err := one.cmd.Wait(); one.cmd.ProcessState.ExitCode() != exitFailure || !strings.Contains(one.said(t), goes.Name) || !strings.Contains(one.said(t), "gone") {
			t.Errorf("top of the disk alone: %v: %s", err, one.said(t))
		}
		awaittest.Until(t, slowly, "control gives up the disk", func() bool { return strings.Contains(control.said(t), "the disk is gone: its control ends") })
		state := filepath.Join(dir, "state", "control-"+goes.Name+".json")
		awaittest.Until(t, slowly, "control has no state of the disk", func() bool {
			_, err := os.Stat(state)
			return errors.Is(err, fs.ErrNotExist)
		})
		out, err := execute(t, "doctor", "--json")
		if !errors.Is(err, errIncomplete) || !strings.Contains(out, stays.Name) || strings.Contains(out, `"name": "`+goes.Name) {
			t.Errorf("doctor: %v: %s", err, out)
		}
		if out, err := execute(t, "doctor", "--device", goes.Name); exitCode(err) != exitUsage {
			t.Errorf("doctor of the disk that is gone: %v: %s", err, out)
		}

		if err := unix.Unmount(filepath.Join(dir, "goes"), unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile("/sys/bus/pci/rescan", []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
		again := appeared(t, stays)
		write(t, mount(again.Node(), "again"))
		awaittest.Until(t, slowly, "top finds the disk that was put in", func() bool { return shows(stays) && shows(again) })
		for _, p := range []*daybookProcess{all, control} {
			if p.hasEnded() {
				t.Errorf("it ended: %s", p.said(t))
			}
			p.end(t)
		}
		if said := control.said(t); strings.Contains(said, "could not be restored") {
			t.Errorf("control could not restore all settings: %s", said)
		}
		left, err := filepath.Glob(filepath.Join(dir, "state", "control-"+stays.Name+".json"))
		if err != nil || len(left) > 0 {
			t.Errorf("control left %q, %v: %s", left, err, control.said(t))
		}
	})
}

// slowly is the patience in an emulated guest, where a start of daybook takes long.
const slowly = 3 * time.Minute

// appeared waits for an NVMe disk beside the other one.
func appeared(t *testing.T, other blockdev.Disk) (found blockdev.Disk) {
	t.Helper()
	awaittest.Until(t, slowly, "an NVMe disk appears", func() bool {
		disks, err := blockdev.Disks()
		if err != nil {
			t.Fatal(err)
		}
		for _, disk := range disks {
			_, err := os.Stat(disk.Node())
			if strings.HasPrefix(disk.Name, "nvme") && disk != other && disk.Present() == nil && err == nil {
				found = disk
				return true
			}
		}
		return false
	})
	return found
}

// write makes directories until the end of the test, or until that fails.
func write(t *testing.T, at string) {
	t.Helper()
	command := exec.Command("sh", "-c", "cd $0 && i=0; while mkdir $i; do sync -f $i; sleep 0.5; rmdir $i; i=$((i+1)); done", at)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		_ = command.Wait() // it was killed, or its disk was gone
	})
}
