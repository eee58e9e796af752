package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume"
)

// standOptions are what a stand is made of.
type standOptions struct {
	disk        string // one of VolumeDisks
	mode        DataMode
	arrangement Arrangement
	slices      slicing
}

// stand is two containers on one disk in one arrangement.
type stand struct {
	footing
	on standOptions
	// a has the load that is looked at, b is its neighbour.
	a, b *tenant
}

const (
	standBytes = 4 << 30
	// Of each container.
	standVolumeBytes  = 1280 << 20
	standJournalBytes = 64 << 20
	standPartBytes    = 1536 << 20
	standPrefix       = "daybook-volumes-"
)

// hddModel is the simulated disk, volumesDisk its or the plain one's
// description.
func hddModel() disksim.Parameters {
	return disksim.Parameters{
		BandwidthBytesPerSecond: 60e6,
		FullStrokeSeekSeconds:   0.008,
		TrackToTrackSeekSeconds: 0.0005,
		FlushSeconds:            0.0005,
		HostSlackSeconds:        0.002,
		Rotational:              true,
	}
}

func volumesDisk(disk string) string {
	if disk == plainDisk {
		return "a loop device on a file of the host's disk"
	}
	p := hddModel()
	return fmt.Sprintf("simulated: %.0f MB/s, seek %.1f to %.0f ms, flush %.1f ms",
		p.BandwidthBytesPerSecond/1e6, p.TrackToTrackSeekSeconds*1e3, p.FullStrokeSeekSeconds*1e3, p.FlushSeconds*1e3)
}

// buildStand sets a stand up, with a disk that takes no time until it is told
// to. On error nothing is left.
func (l Lab) buildStand(ctx context.Context, on standOptions) (s *stand, err error) {
	s, err = l.newStand(ctx, on)
	if err != nil {
		return nil, err
	}
	switch on.arrangement {
	case SharedExt4:
		err = s.share(ctx)
	case OwnVolumes, PlacedVolumes, PlacedOnXFS, ControlledOnXFS:
		err = s.attachVolumes(ctx, volume.Full, on.arrangement != OwnVolumes)
	case OnDevices, ControlledOnDevices:
		err = s.attachDevices(ctx)
	case OwnPartitions, LoopedPartitions:
		err = s.partition(ctx)
	default:
		err = fmt.Errorf("no arrangement %q", on.arrangement)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// newStand makes the disk and the cgroups.
func (l Lab) newStand(ctx context.Context, on standOptions) (s *stand, err error) {
	s = &stand{footing: footing{lab: l}, on: on}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
			s = nil
		}
	}()
	if s.home, err = makeHome(); err != nil {
		return s, err
	}
	// Servers run as another user and find their data below it.
	if err := os.Chmod(s.home, 0o711); err != nil {
		return s, err
	}
	options := stageOptions{SizeBytes: standBytes, Parameters: hddModel(), Tunables: on.slices.tunables}
	if on.disk == plainDisk {
		if options.Given, err = s.plainDisk(); err != nil {
			return s, err
		}
	}
	if s.disk, err = setUpDisk(ctx, l.Tree, "experiment-"+strconv.Itoa(os.Getpid()), options); err != nil {
		return s, err
	}
	if err = s.holdQueue(on.slices.queue()); err != nil {
		return s, err
	}
	if on.slices.crowded {
		if err = s.crowd(); err != nil {
			return s, err
		}
	}
	if s.group, err = newGroup(l.Tree); err != nil {
		return s, err
	}
	s.a, err = s.newTenant("A", weightA)
	if err == nil {
		s.b, err = s.newTenant("B", weightB)
	}
	return s, err
}

// plainDisk is a loop device over a file.
func (s *stand) plainDisk() (*GivenDisk, error) {
	image := filepath.Join(s.home, "disk")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		return nil, err
	}
	if err := os.Truncate(image, standBytes); err != nil {
		return nil, err
	}
	loop, err := blockdev.Attach(image, blockdev.AttachOptions{DirectIO: true})
	if err != nil {
		return nil, err
	}
	s.loop = &loop
	return &GivenDisk{Node: loop.Path(), Divider: BFQ}, nil
}

func (s *stand) tenants() []*tenant { return []*tenant{s.a, s.b} }

// share is one ext4 for both.
func (s *stand) share(ctx context.Context) error {
	directory, err := s.mountNew(ctx, s.disk.Device.Node(), "shared", 2*standJournalBytes, s.on.mode.mountOption())
	if err != nil {
		return err
	}
	for _, t := range s.tenants() {
		t.directory, t.fileSystem = filepath.Join(directory, t.name), s.disk.Device.Dev
		if err := os.Mkdir(t.directory, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// partition gives each a partition and places its jbd2 thread by hand.
func (s *stand) partition(ctx context.Context) error {
	parts, err := s.partitions(len(s.tenants()), standPartBytes)
	if err != nil {
		return err
	}
	for n, t := range s.tenants() {
		t.fileSystem = parts[n].Dev
		if s.on.arrangement == LoopedPartitions {
			loop, err := blockdev.Attach(parts[n].Node, blockdev.AttachOptions{DirectIO: true})
			if err != nil {
				return err
			}
			s.undo = append(s.undo, loop.Detach)
			t.loop, t.fileSystem, parts[n].Node = loop.Disk, loop.Dev, loop.Path()
		}
		if t.directory, err = s.mountNew(ctx, parts[n].Node, t.name, standJournalBytes, s.on.mode.mountOption()); err != nil {
			return err
		}
		if err := placeJournalThread(s.lab.Tree, t.fileSystem, t.parent+"/journal"); err != nil {
			return err
		}
	}
	return nil
}

// placeJournalThread moves the jbd2 thread of a file system into a new cgroup, by
// hand, as paper 2 does it.
func placeJournalThread(tree *cgroup.Tree, fileSystem blockdev.Dev, at string) error {
	journal, err := ext4.JournalOf(fileSystem)
	if err != nil {
		return err
	}
	pid, err := ext4.JournalThread(journal.Name)
	if err != nil {
		return err
	}
	if err := tree.Make(at); err != nil {
		return err
	}
	return tree.Move(pid, at)
}

// setInstant switches the delays of a simulated disk.
func (s *stand) setInstant(instant bool) error { return s.disk.SetInstant(instant) }

// settle writes out what all its file systems hold.
func (s *stand) settle() error {
	for _, t := range s.tenants() {
		if err := settle(t.directory); err != nil {
			return err
		}
	}
	return nil
}

// makeHome makes a directory that sweepStands takes away if this process cannot.
func makeHome() (string, error) {
	return os.MkdirTemp("", standPrefix+strconv.Itoa(os.Getpid())+"-")
}

// sweepStands takes away what killed runs left: what is mounted in their homes,
// loop devices over files there, what was set on their disks, and the homes.
// Disks and cgroups see to themselves.
func sweepStands() error {
	homes, err := filepath.Glob(filepath.Join(os.TempDir(), standPrefix+"*"))
	if err != nil {
		return err
	}
	for _, home := range homes {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(home), standPrefix), "-")
		number, err := strconv.Atoi(pid)
		if err != nil || !errors.Is(unix.Kill(number, 0), unix.ESRCH) {
			continue
		}
		if err := sweepStand(home); err != nil {
			return fmt.Errorf("cannot take away what a killed experiment left in %s: %w", home, err)
		}
	}
	return nil
}

func sweepStand(home string) error {
	if err := releaseQueues(home); err != nil {
		return err
	}
	mounts, err := blockdev.Mounts()
	if err != nil {
		return err
	}
	// The loop devices of volumes are known by their mounts: once the pool is
	// unmounted, their files' paths say nothing.
	under := make(map[string]bool)
	for _, mount := range slices.Backward(mounts) { // the last mounted first
		if strings.HasPrefix(mount.Point, home+"/") {
			under[mount.Source] = true
			// Lazily: its disk may be dead.
			if err := unix.Unmount(mount.Point, unix.MNT_DETACH); err != nil {
				return fmt.Errorf("cannot unmount %s: %w", mount.Point, err)
			}
		}
	}
	loops, err := blockdev.Loops()
	if err != nil {
		return err
	}
	for _, loop := range loops {
		if strings.HasPrefix(loop.File, home+"/") || under[loop.Path()] {
			if err := loop.DetachLazily(); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(home)
}
