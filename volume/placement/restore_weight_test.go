package placement

import (
	"testing"

	"github.com/daybook-project/daybook/internal/cgroup"
)

func TestARestoredWeightKeepsWhatAnotherProgramHasSet(t *testing.T) {
	const ours = 500
	for _, test := range []struct {
		before, now, want cgroup.Setting
		kept              bool
	}{
		{cgroup.Setting{Default: 100}, cgroup.Setting{Default: 100, Device: ours}, cgroup.Setting{Default: 100}, false},
		{cgroup.Setting{Default: 100, Device: 77}, cgroup.Setting{Default: 100, Device: ours}, cgroup.Setting{Default: 100, Device: 77}, false},
		// Removed with the scheduler.
		{cgroup.Setting{Default: 100, Device: 77}, cgroup.Setting{Default: 100}, cgroup.Setting{Default: 100, Device: 77}, false},
		// A kernel before 5.4, which has no weights of single disks.
		{cgroup.Setting{Default: 100}, cgroup.Setting{Default: ours}, cgroup.Setting{Default: 100}, false},
		{cgroup.Setting{Default: 100}, cgroup.Setting{Default: 321}, cgroup.Setting{Default: 321}, true},
		{cgroup.Setting{Default: 100}, cgroup.Setting{Default: 100, Device: 321}, cgroup.Setting{Default: 100, Device: 321}, true},
		// The other program set the weight on all disks.
		{cgroup.Setting{Default: 100}, cgroup.Setting{Default: 200, Device: ours}, cgroup.Setting{Default: 200}, true},
	} {
		before := WeightBefore{Default: test.before.Default, Device: test.before.Device}
		if next, kept := before.restored(test.now, ours); next != test.want || kept != test.kept {
			t.Errorf("before %+v, now %+v: %+v, kept %t; want %+v, %t", test.before, test.now, next, kept, test.want, test.kept)
		}
	}
}
