package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
)

func TestTheDiskOfAnExternalJournalIsLookedAt(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{ExternalJournal: true})
	facts, err := Collect(t.Context(), Options{Devices: []string{fs.Dir}})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range facts.Disks {
		names = append(names, d.Name)
	}
	for _, want := range []string{fs.Disk.Name, fs.Journal.Name} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not looked at: %q", want, names)
		}
	}
	if len(facts.Filesystems) != 1 || facts.Filesystems[0].JournalDisk != fs.Journal.Name {
		t.Errorf("%+v", facts.Filesystems)
	}
}

func TestAStateOfAnEarlierBootDoesNotControlADisk(t *testing.T) {
	needs.Root(t)
	dir := t.TempDir()
	for device, boot := range map[string]string{"sda": "now", "sdb": "earlier"} {
		state := control.State{Version: control.StateVersion, BootID: boot, Device: device, Dev: "8:0", WeightFile: "io.weight"}
		if err := state.Save(dir); err != nil {
			t.Fatal(err)
		}
	}
	// One that cannot be read may be of this boot.
	if err := os.WriteFile(control.StatePath(dir, "sdc"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := controlledIn(dir, "now"); err != nil || !slices.Equal(got, []string{"sda", "sdc"}) {
		t.Errorf("%q, %v; want sda and sdc", got, err)
	}
}

// A file system may have its log there; and the disk of a virtual DVD drive is read-only.
func TestADiskThatTheKernelHoldsOrThatIsReadOnlyIsNotUnused(t *testing.T) {
	needs.Root(t)
	file := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 1<<20)); err != nil {
		t.Fatal(err)
	}
	attach := func(o blockdev.AttachOptions) blockdev.Loop {
		loop, err := blockdev.Attach(file, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := loop.Detach(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return loop
	}
	if isUnused(attach(blockdev.AttachOptions{ReadOnly: true}).Disk) {
		t.Error("it cannot be written")
	}
	loop := attach(blockdev.AttachOptions{})
	if !isUnused(loop.Disk) {
		t.Error("nobody uses it")
	}
	held, err := os.OpenFile(loop.Node(), os.O_RDONLY|unix.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	if isUnused(loop.Disk) {
		t.Error("it is held")
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
}

// All disks of this host: loop devices have request queues, zram has none.
func TestOnlyADiskWithARequestQueueHasAChoiceOfSchedulers(t *testing.T) {
	needs.Root(t)
	disks, err := blockdev.Disks()
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{ctx: t.Context()}
	for _, disk := range disks {
		d, err := c.disk(disk)
		if err != nil {
			t.Errorf("%s: %v", disk.Name, err)
			continue
		}
		if queue := slices.Contains(d.Available, "mq-deadline"); isLoop(d) && !queue || disk.Name == "zram0" && len(d.Available) > 0 {
			t.Errorf("%+v", d)
		}
	}
}
