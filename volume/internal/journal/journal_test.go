package journal

import (
	"slices"
	"testing"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/records"
)

func TestEachJournalSaysWhereItIs(t *testing.T) {
	for _, c := range []struct {
		record records.Volume
		device string
		bytes  uint64
	}{{records.Volume{}, "", 8 << 20}, {records.Volume{JournalDevice: "/dev/j"}, "/dev/j", 0}} {
		j := Of(c.record)
		var made ext4.MakeOptions
		var mounted ext4.MountOptions
		var offline ext4.Offline
		j.Make(&made, 8<<20)
		j.Mount(&mounted)
		j.Offline(&offline)
		if made.JournalDevice != c.device || mounted.JournalDevice != c.device || offline.JournalDevice != c.device || made.JournalBytes != c.bytes {
			t.Errorf("%q: made %+v, mounted %+v, offline %+v", c.device, made, mounted, offline)
		}
		if j.Inside() != (c.device == "") || j.Inside() == slices.Contains(j.Nodes(), "/dev/j") {
			t.Errorf("%q: inside %v, nodes %q", c.device, j.Inside(), j.Nodes())
		}
	}
}
