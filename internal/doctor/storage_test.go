package doctor

import (
	"slices"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/needs"
)

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
