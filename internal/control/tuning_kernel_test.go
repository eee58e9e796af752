package control

import (
	"fmt"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
)

// Tunables that control chose are restored on the real kernel, also after a death.
func TestRealTunablesThatControlChoseArePutBack(t *testing.T) {
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprint("dies ", dies), func(t *testing.T) { chosenTunablesArePutBack(t, newTestbed(t), dies) })
	}
}

func chosenTunablesArePutBack(t *testing.T, b *testbed, dies bool) {
	before := b.settings(t)
	if !strings.Contains(before, "strict_guarantees 0") || !strings.Contains(before, "low_latency 1") {
		t.Fatalf("a new BFQ has other tunables:\n%s", before)
	}
	options := b.options(t.TempDir())
	options.Config.Tunables, options.Config.AutoTunables = nil, true
	c, err := start(options, options.Disks[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := c.begin(); err != nil {
		t.Fatal(err)
	}
	// All wait for the disk all the time; the first one has too little.
	device := account.Device{Device: b.disk.Name}
	for n, cgroup := range b.cgroups {
		device.Containers = append(device.Containers, account.Container{Cgroup: cgroup, ChargedReadBytes: uint64(1+3*n) * 10e6, BusySeconds: 5})
	}
	values := func() string {
		var all []string
		for _, name := range TunableNames() {
			value, err := b.host.Tunables.Get(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprint(name, " ", value))
		}
		return strings.Join(all, ", ")
	}
	if got, want := values(), "low_latency 0, nr_requests 256, slice_idle 8, strict_guarantees 0, timeout_sync "; !strings.HasPrefix(got, want) {
		t.Errorf("at the start: %s; want %s", got, want)
	}
	c.interval(account.Sample{IntervalSeconds: 5, Devices: []account.Device{device}})
	if got, want := values(), "low_latency 0, nr_requests 256, slice_idle 33, strict_guarantees 1, timeout_sync 60"; got != want {
		t.Errorf("after an interval in which a share was missed: %s; want %s", got, want)
	}
	if dies {
		c.lock.Release()
		if _, ok, err := b.restore(options.Config.StateDir); err != nil || !ok {
			t.Fatalf("restored %v, %v", ok, err)
		}
	} else if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	if after := b.settings(t); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
}
