package vm_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// say writes a word to the beginning of a device; how is dd's.
func say(word, device, how string) string {
	return fmt.Sprintf("printf '%%-512s' %s | dd of=/dev/daybook/%s bs=512 count=1 %s status=none", word, device, how)
}

// What a guest has not flushed is lost with it, and each point of a recording
// has the disk of the last flush and the memory of the moment.
func TestVolatileDisk(t *testing.T) {
	m := vmtest.Boot(t, vm.Config{
		Kernel: vmtest.Kernels(t)[0],
		Disks:  []vm.Disk{{SizeBytes: 16 << 20, Volatile: true}, {SizeBytes: 16 << 20}},
		Pmem:   []vm.Pmem{{SizeBytes: 16 << 20}},
	})
	ctx := t.Context()
	run := func(commands ...string) string {
		t.Helper()
		out, err := m.Run(ctx, "sh", "-ec", strings.Join(commands, "\n"))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	words := func() string {
		t.Helper()
		return strings.Join(strings.Fields(run("for d in disk0 pmem0; do dd if=/dev/daybook/$d bs=512 count=1 status=none | tr -d '\\0'; done")), " ")
	}

	const most = 4
	recording, err := m.Record(most)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Record(most); err == nil {
		t.Error("two recordings at once")
	}
	if err := recording.Restore(0, nil); err == nil {
		t.Error("a point was restored of a recording that has not ended")
	}
	for _, word := range []string{"one", "two", "three"} {
		run(say(word, "pmem0", "oflag=direct"), say(word, "disk0", "oflag=direct conv=fsync"))
	}
	// Written, and not flushed.
	run(say("four", "pmem0", "oflag=direct"), say("four", "disk0", "oflag=direct"))
	if err := recording.Now(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-recording.Full():
	default:
		t.Errorf("it is not full after %d points", most)
	}
	run(say("five", "disk0", "oflag=direct conv=fsync"))
	points, err := recording.End()
	if err != nil || points != most {
		t.Fatalf("%d points, %v", points, err)
	}
	for point, want := range []string{"one", "one two", "two three", "three four"} {
		if recording.Pending(point) != 1 {
			t.Errorf("point %d has %d writes in the cache", point, recording.Pending(point))
		}
		if err := recording.Restore(point, nil); err != nil {
			t.Fatal(err)
		}
		if got := words(); got != want {
			t.Errorf("point %d: disk and memory say %q, not %q", point, got, want)
		}
		if err := recording.Restore(point, func(disk, write int) bool { return disk == 0 && write == 0 }); err != nil {
			t.Fatal(err)
		}
		last := want[strings.LastIndex(want, " ")+1:]
		if got := words(); got != last+" "+last {
			t.Errorf("point %d, with what was in the cache: %q, not %[3]q twice", point, got, last)
		}
	}

	run(say("flushed", "disk0", "oflag=direct conv=fsync"), say("lost", "disk0", "oflag=direct"), say("kept", "pmem0", "oflag=direct"))
	if got := words(); got != "lost kept" {
		t.Errorf("before the kill: %q", got)
	}
	m.Kill()
	if err := m.Reboot(ctx); err != nil {
		t.Fatal(err)
	}
	if got := words(); got != "flushed kept" {
		t.Errorf("after the kill: %q", got)
	}
}

func TestRecordNeedsAVolatileDisk(t *testing.T) {
	if _, err := new(vm.Machine).Record(1); err == nil || !strings.Contains(err.Error(), "no disk of this guest is volatile") {
		t.Errorf("%v", err)
	}
}
