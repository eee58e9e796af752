package guestshares

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/control/law"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/fixture/fixturetest"
	"github.com/daybook-project/daybook/internal/experiment/scenario"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// guestConfig has the disk of the benchmark in guests.
var guestConfig = vmtest.Config{Disks: []string{"4G,bps=16M"}, Modules: "ext4,bfq", Give: []string{"mke2fs"}, OneKernel: true}

func onEachDivider(t *testing.T, body func(t *testing.T, lab fixture.Lab, divider string)) {
	t.Helper()
	vmtest.InGuest(t, guestConfig, func(t *testing.T) {
		for _, divider := range []string{fixture.BFQ, fixture.IOCost} {
			t.Run(divider, func(t *testing.T) { body(t, fixturetest.New(t), divider) })
		}
	})
}

func TestGuestFixtureUsesAGivenDiskAndRestoresIt(t *testing.T) {
	onEachDivider(t, func(t *testing.T, lab fixture.Lab, divider string) {
		scenario := scenariosOf(divider, Quick)[0]
		disk, err := blockdev.Lookup(scenario.Disk.Node)
		if err != nil {
			t.Fatal(err)
		}
		before, err := disk.Scheduler()
		if err != nil {
			t.Fatal(err)
		}
		s, err := fixture.MakeFileSystem(t.Context(), lab.Tree, scenario.FileSystem())
		if err != nil {
			t.Fatal(err)
		}
		closed := false
		defer func() {
			if !closed {
				t.Log(s.Close())
			}
		}()
		path, err := s.Group.Add("a", s.Disk.Device, 300)
		if err != nil {
			t.Fatal(err)
		}
		file, other := "io.bfq.weight", "io.weight"
		if divider == fixture.IOCost {
			file, other = other, file
		}
		for name, want := range map[string]bool{file: true, other: false} {
			text, err := os.ReadFile(s.Group.Directory(path) + "/" + name)
			if err != nil || strings.Contains(string(text), disk.Dev.String()+" 300") != want {
				t.Errorf("%s holds %q, %v; want the weight there: %v", name, text, err, want)
			}
		}
		cost, err := lab.Tree.Cost(disk.Dev)
		if err != nil || cost.Enabled != (divider == fixture.IOCost) {
			t.Errorf("io.cost: %+v, %v", cost, err)
		}
		if _, err := scenario.Disk.Open(lab.Tree, nil); err == nil || !strings.Contains(err.Error(), "mounted on") {
			t.Errorf("a mounted disk: %v; want it refused", err)
		}
		closed = true
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if after, err := disk.Scheduler(); err != nil || after.Current != before.Current {
			t.Errorf("the scheduler is %v, %v; was %s", after, err, before.Current)
		}
		if cost, err := lab.Tree.Cost(disk.Dev); err != nil || cost.Enabled {
			t.Errorf("afterwards io.cost: %+v, %v", cost, err)
		}
	})
}

// A short form of the benchmark, whose bounds are for phases of 60 s.
func TestGuestSharesMatchTheWeights(t *testing.T) {
	vmtest.Long(t)
	onEachDivider(t, func(t *testing.T, lab fixture.Lab, divider string) {
		s := scenariosOf(divider, Options{Seconds: 40, Interval: 5 * time.Second})[0]
		off := make(map[string]float64)
		for _, law := range laws {
			phase, err := s.Run(t.Context(), lab, law)
			if err != nil {
				t.Fatal(err)
			}
			for _, sample := range phase.Samples {
				t.Logf("%s: %s", law, s.Describe(sample))
			}
			c := s.Summarize([]scenario.Phase{phase}).Phases[0].Containers[1]
			off[law] = c.Share - c.TargetShare
			if c.JournalBytes == 0 || c.MetadataBytes == 0 || c.ChargedBytes == 0 {
				t.Errorf("%s: B has %+v; want charged bytes, journal and metadata", law, c)
			}
		}
		t.Logf("B is off its target by %+.1f points uncontrolled, %+.1f controlled", 100*off[scenario.Uncontrolled], 100*off[law.FeedbackLaw])
		if off[scenario.Uncontrolled] < maxError {
			t.Errorf("uncontrolled, B is off by %+.1f points only: the test shows little", 100*off[scenario.Uncontrolled])
		}
		if within := math.Abs(off[law.FeedbackLaw]); within > 0.05 || within > off[scenario.Uncontrolled]/2 {
			t.Errorf("controlled, B is off by %+.1f points", 100*off[law.FeedbackLaw])
		}
	})
}
