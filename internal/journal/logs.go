package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
)

// logs gives the programs the places of the logs of file systems on their disks, so that
// they recognise a write there without a look at what is written.
type logs struct {
	known map[uint32]knownLog
	// last is how much was written to the log of each place.
	last map[uint32]uint64
}

// knownLog is what the programs have of the log at a place, or that it is not known.
type knownLog struct {
	dev, ended uint32
	given      bool
	// activity changes with each commit: a file system is looked at again only then.
	activity uint64
}

// Offsets in the place of a file system.
const (
	placeAtFrom   = unsafe.Offsetof(attributionFilesystemPlace{}.Log) + unsafe.Offsetof(attributionFilesystemPlace{}.Log.From)
	placeAtLength = unsafe.Offsetof(attributionFilesystemPlace{}.Log) + unsafe.Offsetof(attributionFilesystemPlace{}.Log.Sectors)
	placeAtBlkg   = unsafe.Offsetof(attributionFilesystemPlace{}.Log) + unsafe.Offsetof(attributionFilesystemPlace{}.Log.Blkg)
)

func (p *Probe) setLog(at uint32, field uintptr, value uint64) error {
	if err := p.filesystemPlaces.set(at, field, value); err != nil {
		return fmt.Errorf("cannot give the BPF programs the place of a log: %w", err)
	}
	return nil
}

// observeLogs looks for the logs of file systems that are new, or have committed since the one
// before on the device has ended.
func (p *Probe) observeLogs() error {
	if !p.findLogs {
		return nil
	}
	return p.visitFilesystemPlaces(func(at uint32, place attributionFilesystemPlace) error {
		before := p.logs.known[at]
		now := knownLog{dev: place.Dev, ended: place.Log.Ended, activity: place.Filesystem.Committer.StartedNs}
		switch {
		case before.dev != now.dev: // a new one
		case before.ended != now.ended:
			// Its name can still be in sysfs. The next one commits.
			p.logs.known[at] = now
			return nil
		case before.given || before.activity == now.activity:
			return nil
		}
		given, err := p.giveLog(at, place)
		now.given = given
		p.logs.known[at] = now
		return err
	})
}

// giveLog gives the programs the place of a file system's log. given is false if that is
// not known, or the file system ends meanwhile.
func (p *Probe) giveLog(at uint32, place attributionFilesystemPlace) (given bool, err error) {
	from, sectors := logOf(place.Dev)
	if err := p.setLog(at, placeAtLength, 0); err != nil || sectors == 0 {
		return false, err
	}
	err = errors.Join(p.setLog(at, placeAtBlkg, 0), p.setLog(at, placeAtFrom, from), p.setLog(at, placeAtLength, sectors))
	if err != nil {
		return false, err
	}
	now, err := p.filesystemPlaces.get(at)
	if err != nil {
		return false, fmt.Errorf("cannot read what is known of a file system: %w", err)
	}
	if now.Log.Ended != place.Log.Ended {
		return false, p.setLog(at, placeAtLength, 0)
	}
	return true, nil
}

const sectorBytes = 512

// logOf finds the log of a mounted ext4 on its disk. sectors is 0 if it is not known.
func logOf(dev uint32) (from, sectors uint64) {
	name, err := blockdev.DeviceName(blockdev.DevOfKernel(dev))
	if err != nil || mapsRequests(name) {
		return 0, 0
	}
	mounted := filepath.Join(blockdev.Host.Sys, "fs/ext4", name)
	before, err := os.Stat(mounted)
	if err != nil {
		return 0, 0
	}
	log, err := ext4.Log(blockdev.NodeOf(name))
	if err != nil {
		return 0, 0
	}
	// Else another file system was mounted from the device meanwhile.
	if after, err := os.Stat(mounted); err != nil || !os.SameFile(before, after) {
		return 0, 0
	}
	start, err := startOf(name)
	if err != nil {
		return 0, 0
	}
	return start + log.FirstByte/sectorBytes, log.Bytes / sectorBytes
}

// mapsRequests reports whether a device passes requests on to others, as multipath does.
// Up to 5.15 the bios of the requests there name the device, too, and have the sectors of its
// own: a write to its log would count twice.
func mapsRequests(name string) bool {
	if !strings.HasPrefix(name, "dm-") {
		return false
	}
	_, err := os.Stat(filepath.Join(blockdev.Host.Sys, "block", name, "mq"))
	return err == nil
}

// startOf is the first sector of a partition on its disk; 0 for a disk.
func startOf(name string) (uint64, error) {
	directory := filepath.Join(blockdev.Host.Sys, "class/block", name)
	if _, err := os.Stat(filepath.Join(directory, "partition")); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	text, err := os.ReadFile(filepath.Join(directory, "start"))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
}

// collectLogged adds what was written to logs, and charged to the root cgroup.
func (p *Probe) collectLogged() error {
	err := p.visitFilesystemPlaces(func(at uint32, place attributionFilesystemPlace) error {
		bytes := place.Log.Bytes - p.logs.last[at]
		if bytes == 0 {
			return nil
		}
		p.logs.last[at] = place.Log.Bytes
		disk := place.Filesystem.Committer.JournalDisk
		for _, kind := range []Kind{KindJournal, KindChargedWrite} {
			p.pending.Writes = append(p.pending.Writes, Write{Disk: disk, Kind: kind, Charged: RootCgroupID, Bytes: bytes})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot read what was written to logs: %w", err)
	}
	return nil
}
