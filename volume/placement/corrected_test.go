package placement_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/blockdev/blockdevtest"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/cgrouptest"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/volume/operation"
	"github.com/daybook-project/daybook/volume/placement"
)

// The weights of corrected: of a placement, and of another program.
const (
	placedWeight = 500
	otherWeight  = 321
)

// corrected has two cgroups on a loop device under BFQ, a control that corrects their weights,
// and placements with a weight in the first cgroup.
type corrected struct {
	t       *testing.T
	tree    *cgroup.Tree
	disk    blockdev.Disk
	weights *cgroup.Weights
	parent  string
	cgroup  string
	dirs    control.Originals

	placed  placement.Placed
	samples chan account.Sample
	stepped chan struct{}
	ended   chan error
}

// bfqDisk is a loop device under BFQ until the end of the test.
func bfqDisk(t *testing.T) blockdev.Disk {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 16<<20); err != nil {
		t.Fatal(err)
	}
	loop, err := blockdev.Attach(image, blockdev.AttachOptions{})
	needs.That(t, err == nil, fmt.Sprint("loop devices: ", err))
	t.Cleanup(func() {
		if err := loop.Detach(context.Background()); err != nil {
			t.Error(err)
		}
	})
	disk, err := blockdev.Lookup(loop.Name)
	if err != nil {
		t.Fatal(err)
	}
	needs.That(t, blockdevtest.SetScheduler(t, disk, blockdev.BFQ) == nil, "the I/O scheduler bfq")
	return disk
}

func newCorrected(t *testing.T, disk blockdev.Disk, tree *cgroup.Tree, parent string) *corrected {
	t.Helper()
	weights, err := tree.Weights(disk.Dev, blockdev.BFQ)
	if err != nil {
		t.Fatal(err)
	}
	c := &corrected{t: t, tree: tree, disk: disk, weights: weights, parent: parent, cgroup: parent + "/x",
		dirs: control.Originals{RunDir: t.TempDir(), StateDir: t.TempDir()}}
	for _, at := range []string{c.cgroup, parent + "/y"} {
		cgrouptest.Make(t, tree, at)
	}
	return c
}

func (c *corrected) Next(ctx context.Context) (account.Sample, error) {
	select {
	case sample, ok := <-c.samples:
		if !ok {
			return sample, io.EOF
		}
		return sample, nil
	case <-ctx.Done():
		return account.Sample{}, ctx.Err()
	}
}

func (*corrected) Close() error { return nil }

// start starts a control that gives both cgroups other weights.
func (c *corrected) start() {
	disk, err := control.OpenDisk(c.tree, c.disk, control.ActuatorWeights)
	if err != nil {
		c.t.Fatal(err)
	}
	config := control.DefaultConfig()
	// Not in StateDir, so that it is found by RunDir.
	config.StateDir, config.Actuator, config.AutoTunables = filepath.Join(c.dirs.RunDir, "state"), control.ActuatorWeights, false
	config.Containers = []control.Rule{{Match: c.parent + "/x", Weight: 237}, {Match: c.parent + "/y", Weight: 400}}
	c.samples, c.stepped, c.ended = make(chan account.Sample), make(chan struct{}), make(chan error, 1)
	options := control.Options{Disks: []control.Disk{disk}, RunDir: c.dirs.RunDir, Config: config,
		OpenSource: func([]string, time.Duration) (account.Source, error) { return c, nil },
		OnInterval: func(control.Decision) { c.stepped <- struct{}{} }, Log: slog.New(slog.DiscardHandler)}
	go func() { c.ended <- control.Run(context.Background(), options) }()
	c.step()
}

// step makes control correct the weights: the journal of the first cgroup does much.
func (c *corrected) step() {
	sample := account.Sample{IntervalSeconds: 5, Devices: []account.Device{{Device: c.disk.Name, Containers: []account.Container{
		{Cgroup: c.cgroup, ChargedReadBytes: 4e7, JournalBytes: 6e7, BusySeconds: 5},
		{Cgroup: c.parent + "/y", ChargedReadBytes: 5e7, BusySeconds: 5},
	}}}}
	select {
	case c.samples <- sample:
		<-c.stepped
	case err := <-c.ended:
		c.t.Fatal("control ended: ", err)
	}
}

func (c *corrected) stop() {
	close(c.samples)
	if err := <-c.ended; err != nil {
		c.t.Error(err)
	}
}

func (c *corrected) thread() placement.Thread {
	return placement.Thread{Name: "v", State: &c.placed, Weight: placedWeight, ReadOnly: true, Neighbours: alone{},
		Disk: func() (blockdev.Disk, error) { return c.disk, nil }, Uncorrected: c.dirs.Weight, Log: slog.New(slog.DiscardHandler)}
}

func (c *corrected) place() {
	thread := c.thread()
	if c.placed.Placement == "" {
		c.placed = placement.Placed{Placement: placement.Parent, Cgroup: c.cgroup}
		if err := thread.Plan(); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := thread.Place(c.t.Context(), (&operation.Engine{}).On(func() error { return nil })); err != nil {
		c.t.Fatal(err)
	}
}

func (c *corrected) release() {
	if err := c.thread().Release(c.t.Context(), (&operation.Engine{}).On(func() error { return nil })); err != nil {
		c.t.Fatal(err)
	}
	c.placed = placement.Placed{}
}

// another program chooses a weight.
func (c *corrected) other() {
	if err := c.weights.Set(c.cgroup, otherWeight); err != nil {
		c.t.Fatal(err)
	}
}

// now is the weight in force.
func (c *corrected) now() cgroup.Setting {
	now, err := c.weights.Get(c.cgroup)
	if err != nil {
		c.t.Fatal(err)
	}
	return now
}

// plain is the weight apart from corrections.
func (c *corrected) plain() uint64 {
	now := c.now()
	at, err := c.tree.Lookup(c.cgroup)
	if err != nil {
		c.t.Fatal(err)
	}
	plain, _, err := c.dirs.Weight(c.disk, c.weights.File(), at.ID, now, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	return plain.Effective()
}

// A placement with a weight and a control of the same cgroup leave it as it was, in whatever
// order they start and end. What another program has chosen meanwhile stays.
func TestAPlacementAndAControlOfTheSameCgroupLeaveItsWeightAsItWas(t *testing.T) {
	tree := cgrouptest.Tree(t)
	disk := bfqDisk(t)
	parent := cgrouptest.New(t, tree, "corrected")
	if tree.Version() == cgroup.V2 {
		needs.That(t, tree.EnableIO("/") == nil && tree.EnableIO(parent) == nil, "the io controller")
	}
	for order, want := range map[string]uint64{
		"start place step release step stop":                     100,
		"start place step step release step stop":                100,
		"start place step step stop release":                     100,
		"start place release stop":                               100,
		"start place release step stop":                          100,
		"start place step stop release":                          100,
		"start place stop release":                               100,
		"start place step step place step release step stop":     100,
		"start place step place step release step stop":          100,
		"start place step release place step stop release":       100,
		"place start step stop release":                          100,
		"place start step release step stop":                     100,
		"place start release stop":                               100,
		"place start step place release stop":                    100,
		"place release":                                          100,
		"place other release":                                    otherWeight,
		"start place step other step release step stop":          otherWeight,
		"start place step other release stop":                    otherWeight,
		"start place step other step stop release":               otherWeight,
		"start other place step release step stop":               otherWeight,
		"start other step place step release step stop":          otherWeight,
		"place start step other step release step stop":          otherWeight,
		"place start step other step stop release":               otherWeight,
		"place other start step release place step stop release": otherWeight,
	} {
		t.Run(strings.ReplaceAll(order, " ", "-"), func(t *testing.T) {
			c := newCorrected(t, disk, tree, parent)
			do := map[string]func(){"start": c.start, "step": c.step, "stop": c.stop, "place": c.place, "release": c.release, "other": c.other}
			for _, what := range strings.Fields(order) {
				placed, before := c.placed.Placement != "", c.now()
				do[what]()
				if plain := c.plain(); what == "place" && plain != placedWeight || what == "other" && plain != otherWeight {
					t.Errorf("after %s the weight apart from corrections is %d", what, plain)
				}
				if now := c.now(); what == "place" && placed && now != before {
					t.Errorf("to place again changed the corrected weight from %+v to %+v", before, now)
				}
			}
			if now := c.now(); now.Effective() != want || want == 100 && now.Device != 0 {
				t.Errorf("the weight is %+v at the end; want %d", now, want)
			}
		})
	}
}

// sharing are the neighbours of a thread that shares its cgroup with another one.
type sharing struct {
	alone
	other placement.Neighbour
}

func (s sharing) Others(string) ([]placement.Neighbour, error) {
	return []placement.Neighbour{s.other}, nil
}

// The end of one of two placements in a cgroup gives it the weight of the other one, unless
// another program has set the weight.
func TestAPlacementThatSharesACgroupLeavesTheWeightOfAnotherProgram(t *testing.T) {
	tree := cgrouptest.Tree(t)
	disk := bfqDisk(t)
	parent := cgrouptest.New(t, tree, "sharing")
	if tree.Version() == cgroup.V2 {
		needs.That(t, tree.EnableIO("/") == nil && tree.EnableIO(parent) == nil, "the io controller")
	}
	const sharerWeight = 600
	for _, set := range []bool{false, true} {
		at := fmt.Sprint(parent, "/", set)
		cgrouptest.Make(t, tree, at)
		if tree.Version() == cgroup.V2 {
			needs.That(t, tree.EnableIO(at) == nil, "the io controller")
		}
		c := newCorrected(t, disk, tree, at)
		c.place()
		want := uint64(sharerWeight)
		if set {
			c.other()
			want = otherWeight
		}
		thread := c.thread()
		sharer := placement.Placed{Placement: placement.Parent, Cgroup: c.cgroup, WeightBefore: c.placed.WeightBefore}
		thread.Neighbours = sharing{other: placement.Neighbour{State: &sharer, Weight: sharerWeight, Disk: thread.Disk}}
		if err := thread.Release(t.Context(), (&operation.Engine{}).On(func() error { return nil })); err != nil {
			t.Fatal(err)
		}
		if now := c.now(); now.Effective() != want {
			t.Errorf("another program has set the weight: %t; then it is %+v; want %d", set, now, want)
		}
	}
}

// Control does not notice such a weight, and goes on correcting the one of before.
func TestAWeightThatEqualsACorrectionIsReported(t *testing.T) {
	tree := cgrouptest.Tree(t)
	disk, parent := bfqDisk(t), cgrouptest.New(t, tree, "equal")
	if tree.Version() == cgroup.V2 {
		needs.That(t, tree.EnableIO("/") == nil && tree.EnableIO(parent) == nil, "the io controller")
	}
	c := newCorrected(t, disk, tree, parent)
	if err := c.weights.Set(c.cgroup, placedWeight); err != nil { // by control
		t.Fatal(err)
	}
	for plain, reports := range map[uint64]int{otherWeight: 1, placedWeight: 0} {
		var log bytes.Buffer
		c.placed = placement.Placed{Placement: placement.Parent, Cgroup: c.cgroup}
		thread := c.thread()
		thread.Log = slog.New(slog.NewTextHandler(&log, nil))
		thread.Uncorrected = func(_ blockdev.Disk, _ string, _ uint64, now cgroup.Setting, unit uint64) (cgroup.Setting, uint64, error) {
			return cgroup.Setting{Default: now.Default, Device: plain}, unit, nil
		}
		if err := thread.Plan(); err != nil {
			t.Fatal(err)
		}
		run := (&operation.Engine{}).On(func() error { return nil })
		if err := thread.Place(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "the weight is not in force"); n != reports {
			t.Errorf("corrected from %d: reported %d times; want %d\n%s", plain, n, reports, log.String())
		}
		if err := thread.Release(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
}

// What was recorded as the original weight is the best guess then.
func TestTheOriginalWeightIsRestoredIfCorrectionsCannotBeRead(t *testing.T) {
	tree := cgrouptest.Tree(t)
	disk, parent := bfqDisk(t), cgrouptest.New(t, tree, "unknown")
	if tree.Version() == cgroup.V2 {
		needs.That(t, tree.EnableIO("/") == nil && tree.EnableIO(parent) == nil, "the io controller")
	}
	c := newCorrected(t, disk, tree, parent)
	c.place()
	c.other() // it could be a correction
	thread := c.thread()
	thread.Uncorrected = func(_ blockdev.Disk, _ string, _ uint64, now cgroup.Setting, unit uint64) (cgroup.Setting, uint64, error) {
		return now, unit, errors.New("damaged")
	}
	if err := thread.Release(t.Context(), (&operation.Engine{}).On(func() error { return nil })); err != nil {
		t.Fatal(err)
	}
	if now := c.now(); now != (cgroup.Setting{Default: 100}) {
		t.Errorf("the weight is %+v", now)
	}
}
