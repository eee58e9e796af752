package survey

import (
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/advise"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/disktime"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/kernel"
)

func TestAKernelThatNotesNoStartOfRequestsIsReported(t *testing.T) {
	key := disktime.Key{Cgroup: 1, Class: disktime.Data}
	for _, test := range []struct {
		sums disktime.Sums
		want bool
	}{
		{disktime.Sums{}, false},
		{disktime.Sums{Requests: 3, QueuedNanoseconds: 1, ServedNanoseconds: 9}, false},
		{disktime.Sums{Requests: 3, ServedNanoseconds: 9}, true},
	} {
		if got := missingTimes("sda", map[disktime.Key]disktime.Sums{key: test.sums}); strings.Contains(got, "sda") != test.want {
			t.Errorf("%+v: %q", test.sums, got)
		}
	}
}

func TestFileSystemsOfTheSameDiskAreFound(t *testing.T) {
	sda, sdb := blockdev.Dev{Major: 8}, blockdev.Dev{Major: 8, Minor: 16}
	disks := map[string]blockdev.Dev{"sda1": sda, "sda2": sda, "sdb1": sdb}
	for device, want := range map[string]string{"sda1": "sda2", "sda2": "sda1", "sdb1": "", "md0": ""} {
		if got := strings.Join(sameDisk(disks, device), " "); got != want {
			t.Errorf("beside %s: %q, want %q", device, got, want)
		}
	}
	loop := ext4test.New(t, ext4test.Options{}).Disk
	got := disksOf([]account.Waiter{{Device: loop.Name}, {Device: loop.Name}, {Device: "no-such-disk"}})
	if len(got) != 1 || got[loop.Name] != loop.Dev {
		t.Errorf("disks %v; want that of %s", got, loop.Name)
	}
}

// Then the journal's writes would count as data of others.
func TestNothingIsPredictedIfTheWritesOfTheJournalAreNotKnown(t *testing.T) {
	waits := advise.Input{Phases: map[string]float64{"log": 1}}
	// Metadata in place is marked on all kernels, by ext4 and by others.
	inPlace := waits
	inPlace.Metadata.Count = 1
	disk, mapped := FileSystem{}, FileSystem{Mapped: true}
	mirrored := FileSystem{Mapped: true, DropsFlags: "raid1 md0"}
	old, updated, marks := kernel.Stable{Major: 5, Minor: 15}, kernel.Stable{Major: 6, Minor: 1, Update: 176}, kernel.Stable{Major: 6, Minor: 8}
	for name, c := range map[string]struct {
		in         advise.Input
		on         FileSystem
		recognised bool
		kernel     kernel.Stable
		refused    bool
	}{
		"hidden":               {waits, disk, false, old, true},
		"recognised":           {waits, disk, true, old, false},
		"marked in place":      {inPlace, disk, false, old, true},
		"marks with an update": {inPlace, disk, false, updated, false},
		"an earlier update":    {inPlace, disk, false, kernel.Stable{Major: 6, Minor: 6, Update: 12}, true},
		"update not known":     {inPlace, disk, false, kernel.Stable{Major: 6, Minor: 1}, true},
		"marked":               {inPlace, disk, false, marks, false},
		"marked later":         {inPlace, disk, false, kernel.Stable{Major: 10}, false},
		"journal elsewhere":    {waits, disk, false, marks, false},
		"unknown":              {inPlace, disk, false, kernel.Stable{}, true},
		"never a log":          {advise.Input{Phases: map[string]float64{"own_data": 1}}, mirrored, false, old, false},
		"nothing known":        {advise.Input{}, disk, false, old, false},
		"mapped":               {waits, mapped, true, old, true}, // the disk gets copies, which nobody recognises
		"mapped, with marks":   {waits, mapped, true, marks, false},
		"marks are dropped":    {waits, mirrored, true, marks, true},
	} {
		if why := whyUnpredicted(c.in, c.on, c.recognised, c.kernel); (why != "") != c.refused {
			t.Errorf("%s: %q", name, why)
		}
	}
}
