package vm

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/vm/internal/cache"
	"github.com/daybook-project/daybook/vm/kernels"
)

// AccelVariable in the environment chooses the accelerator: kvm or tcg.
const AccelVariable = "DAYBOOK_VM_ACCEL"

// kvmPatience is the maximum time of a kernel under KVM until it panics without a root
// file system. It needs about one second. If KVM is refused, QEMU ends at once.
const kvmPatience = 15 * time.Second

// chooseAccelerator tests whether KVM boots this kernel here. On a nested or hardened host
// KVM may not work although /dev/kvm can be opened. The result is stored in dir until the
// next boot of the host.
//
// A kernel for another architecture is emulated.
func chooseAccelerator(ctx context.Context, dir string, tree kernels.Tree) (accelerator, error) {
	if tree.Arch() != runtime.GOARCH {
		return tcg, nil
	}
	switch set := os.Getenv(AccelVariable); set {
	case "":
	case string(kvm), string(tcg):
		return accelerator(set), nil
	default:
		return "", fmt.Errorf("%s is %q: want kvm or tcg", AccelVariable, set)
	}
	device, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return tcg, nil
	}
	device.Close()
	boot, err := kernel.BootID()
	if err != nil {
		return "", err
	}
	memory := filepath.Join(dir, "accelerator-"+boot)
	if text, err := os.ReadFile(memory); err == nil {
		if a := accelerator(text); a == kvm || a == tcg {
			return a, nil
		}
	}
	a := tcg
	if works, err := tryKVM(ctx, tree.Vmlinux); err != nil {
		return "", err
	} else if works {
		a = kvm
	}
	older, _ := cache.Find(dir, "accelerator-*")
	for _, path := range older {
		_ = os.Remove(path)
	}
	return a, os.WriteFile(memory, []byte(a), 0o644)
}

// Processors returns how many processors a guest of this kernel should have to measure how
// threads scale: all of the host where KVM works (accelerated), otherwise DefaultCPUs,
// because emulated processors take turns.
func Processors(ctx context.Context, kernel string) (cpus int, accelerated bool, err error) {
	store, err := kernels.DefaultStore()
	if err != nil {
		return 0, false, err
	}
	tree, err := store.Get(ctx, kernel, kernels.Image)
	if err != nil {
		return 0, false, err
	}
	a, err := chooseAccelerator(ctx, store.Dir, tree)
	if err != nil {
		return 0, false, err
	}
	return a.processors(runtime.NumCPU()), a == kvm, nil
}

// processors is the number of processors on a host that has so many.
func (a accelerator) processors(host int) int {
	if a == kvm {
		return min(host, maxCPUs)
	}
	return DefaultCPUs
}

// tryKVM boots the kernel alone. If KVM works, the kernel soon panics, because it has no
// root file system.
func tryKVM(ctx context.Context, vmlinux string) (bool, error) {
	console, theirs, err := socketPair()
	if err != nil {
		return false, err
	}
	defer console.Close()
	platform := platforms[kernels.AMD64]
	args := append(kvm.arguments(platform, true), "-machine", "q35", "-m", "512M", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-monitor", "none",
		"-kernel", vmlinux, "-append", "console=ttyS0 panic=-1", "-chardev", "socket,id=console,fd=3", "-serial", "chardev:console")
	qemu, err := spawn(platform, args, []*os.File{theirs})
	theirs.Close()
	if err != nil {
		return false, err
	}
	var log consoleLog
	ended := make(chan struct{})
	go func() { _, _ = io.Copy(&log, console); close(ended) }()
	select {
	case <-ended:
	case <-time.After(kvmPatience):
	case <-ctx.Done():
		qemu.Kill()
		return false, context.Cause(ctx)
	}
	qemu.Kill()
	return strings.Contains(log.String(), panicMark), nil
}
