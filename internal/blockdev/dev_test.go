package blockdev

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDeviceNumbersOfFilesAndOfTheKernel(t *testing.T) {
	for _, dev := range []Dev{{7, 0}, {253, 1}, {259, 1<<20 - 1}, {4095, 300}} {
		if got := DevOf(unix.Mkdev(dev.Major, dev.Minor)); got != dev {
			t.Errorf("%s in st_dev is read as %s", dev, got)
		}
		if got := DevOfKernel(dev.Kernel()); got != dev {
			t.Errorf("%s in a tracepoint is read as %s", dev, got)
		}
	}
	if got := (Dev{253, 1}).Kernel(); got != 265289729 { // 253 * 2^20 + 1
		t.Errorf("253:1 is %d in the kernel", got)
	}
}

func TestDevicesAndPartitionsAreNamedByTheirNumbers(t *testing.T) {
	tree := fakeTree(t)
	for dev, want := range map[Dev]string{{253, 0}: "vda", {253, 1}: "vda1"} {
		if name, err := tree.DeviceName(dev); err != nil || name != want {
			t.Errorf("%s is %q, %v; want %s", dev, name, err, want)
		}
	}
	if name, err := tree.DeviceName(Dev{9, 9}); !errors.Is(err, ErrGone) {
		t.Errorf("a number of no device: %q, %v; want ErrGone", name, err)
	}
	for node, want := range map[string]string{"/dev/cciss/c0d0": "cciss!c0d0", "/dev/sda": "sda", "sda": "sda", "/srv/db": "/srv/db"} {
		if name := NameOfNode(node); name != want {
			t.Errorf("%s is of %s, want %s", node, name, want)
		}
	}
	if node := NodeOf("cciss!c0d0"); node != "/dev/cciss/c0d0" {
		t.Errorf("the node of cciss!c0d0 is %s", node)
	}
}
