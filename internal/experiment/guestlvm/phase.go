package guestlvm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/fio"
	"github.com/daybook-project/daybook/internal/program"
	"github.com/daybook-project/daybook/volume"
)

// The loads. The measured writer and the syncing neighbour write their files again and
// again; the streaming one writes a new file each time.
const (
	smallBytes    = 4 << 10
	writerFile    = 4 << 20
	neighbours    = 4 // writers that sync
	neighbourFile = 1 << 20
	streamBytes   = 1 << 20
	streamFile    = 640 << 20
	streamSync    = 16 // writes between two syncs
	longest       = time.Hour
)

// The volumes: that of the measured writer, and that of its neighbour.
const (
	writerVolumeBytes = 128 << 20
	otherVolumeBytes  = 768 << 20
	thinPoolBytes     = 1536 << 20
	journalBytes      = 16 << 20
	group             = "vg0"
	thinPool          = "tp"
)

// RunInGuest runs a case, given as JSON, on this machine, which is a guest. It
// writes its samples as JSON to output, and messages to say.
func RunInGuest(ctx context.Context, text string, output, say io.Writer) error {
	return fixture.RunInGuest(ctx, text, output, say, func(ctx context.Context, lab fixture.Lab, c Case) ([]Sample, error) {
		if err := c.check(); err != nil {
			return nil, err
		}
		return runCase(ctx, lab, c)
	})
}

// lvmGuest has the volumes of both kinds.
type lvmGuest struct {
	fixture.Base
	asked Case
	pool  *volume.Pool
	// writer and other are the directories of the volumes.
	writer, other map[Kind]string
}

func runCase(ctx context.Context, l fixture.Lab, c Case) (samples []Sample, err error) {
	g := &lvmGuest{Base: fixture.Base{Lab: l}, asked: c, writer: map[Kind]string{}, other: map[Kind]string{}}
	defer func() { err = errors.Join(err, g.Close()) }()
	if err := g.build(ctx); err != nil {
		return nil, err
	}
	for round := range c.Rounds {
		for _, neighbour := range Neighbours() {
			for _, kind := range order(round) {
				s, err := g.measure(ctx, kind, neighbour)
				if err != nil {
					return nil, fmt.Errorf("%s beside %s: %w", kind, neighbour, err)
				}
				s.Round = round
				l.Say(fmt.Sprintf("round %d, %s, neighbour %s: %.0f syncs/s, p50 %.1f ms, p99 %.1f ms", round+1, kind, neighbour, s.syncsPerSecond(), 1e3*s.Writer.SyncP50Seconds, 1e3*s.Writer.SyncP99Seconds))
				samples = append(samples, s)
			}
		}
	}
	return samples, nil
}

// build makes the volume group, a pool and the volumes.
func (g *lvmGuest) build(ctx context.Context) (err error) {
	if g.Home, err = os.MkdirTemp("", "daybook-guest-lvm-"); err != nil {
		return err
	}
	// Without udev, lvm2 makes the device nodes itself.
	if err := os.Setenv("DM_DISABLE_UDEV", "1"); err != nil {
		return err
	}
	physical, err := g.slowFlushes(ctx, "/dev/daybook/disk0")
	if err != nil {
		return err
	}
	for _, command := range [][]string{
		{"pvcreate", "--yes", physical},
		{"vgcreate", group, physical},
		{"lvcreate", "--yes", "--type", "thin-pool", "--name", thinPool, "--size", fmt.Sprintf("%db", thinPoolBytes), "--poolmetadatasize", "8m", group},
	} {
		if err := run(ctx, command...); err != nil {
			return err
		}
	}
	directory, err := g.MountNew(ctx, "/dev/daybook/disk1", "pool", 0, "")
	if err != nil {
		return err
	}
	if g.pool, err = g.OpenPool(ctx, directory); err != nil {
		return err
	}
	for _, kind := range Kinds() {
		for name, v := range map[string]struct {
			bytes       uint64
			directories map[Kind]string
		}{"writer": {writerVolumeBytes, g.writer}, "other": {otherVolumeBytes, g.other}} {
			made := volume.CreateOptions{SizeBytes: v.bytes, VolumeGroup: group, JournalBytes: journalBytes, NoAtime: true}
			if kind == Thin {
				made.ThinPool = thinPool
			}
			t := &fixture.Container{Name: name + "-" + string(kind)}
			if _, err := g.AttachVolume(ctx, g.pool, t, made, volume.AttachOptions{Placement: volume.PlaceNone}); err != nil {
				return err
			}
			v.directories[kind] = t.Directory
		}
		if err := g.prefill(ctx, kind); err != nil {
			return err
		}
	}
	return nil
}

// slowFlushes makes a device over a disk on which a flush takes longer, as on disks
// with a volatile cache. QEMU's disk answers at once.
func (g *lvmGuest) slowFlushes(ctx context.Context, node string) (string, error) {
	if g.asked.FlushMilliseconds == 0 {
		return node, nil
	}
	disk, err := blockdev.Lookup(node)
	if err != nil {
		return "", err
	}
	bytes, err := disk.SizeBytes()
	if err != nil {
		return "", err
	}
	const name = "daybook-flushes"
	// It does not start at the disk's beginning, where LVM would find its label a
	// second time.
	const offset = 2048
	table := fmt.Sprintf("0 %d delay %s %d 0 %[2]s %[3]d 0 %[2]s %[3]d %[4]d", bytes/512-offset, disk.Node(), offset, g.asked.FlushMilliseconds)
	if err := run(ctx, "dmsetup", "create", name, "--table", table); err != nil {
		return "", err
	}
	return filepath.Join("/dev/mapper", name), nil
}

func run(ctx context.Context, command ...string) error {
	_, err := program.Run(ctx, program.Command{Path: command[0], Args: command[1:], IfMissing: "install lvm2"})
	return err
}

// prefill writes the files that are overwritten later.
func (g *lvmGuest) prefill(ctx context.Context, kind Kind) error {
	for _, job := range []fio.Job{g.writing(kind), g.syncing(kind)} {
		job.FsyncEvery, job.WarmUp, job.Time = 0, 0, time.Second
		if err := waitFor(ctx, job); err != nil {
			return err
		}
	}
	return nil
}

func waitFor(ctx context.Context, job fio.Job) error {
	load, err := fio.Start(job, "")
	if err != nil {
		return err
	}
	_, err = load.Wait(ctx)
	return err
}

// writing is the measured job.
func (g *lvmGuest) writing(kind Kind) fio.Job {
	return fio.Job{
		Directory: g.writer[kind], Writers: 1, BlockBytes: smallBytes, FsyncEvery: 1, FileBytes: writerFile,
		WarmUp: g.asked.WarmUp, Time: g.asked.Time,
	}
}

func (g *lvmGuest) syncing(kind Kind) fio.Job {
	return fio.Job{Directory: g.other[kind], Writers: neighbours, BlockBytes: smallBytes, FsyncEvery: 1, FileBytes: neighbourFile, Time: longest}
}

// streaming writes a new file in a new directory, which is removed afterwards.
func (g *lvmGuest) streaming(kind Kind) fio.Job {
	return fio.Job{Directory: g.newDirectory(kind), Writers: 1, BlockBytes: streamBytes, FsyncEvery: streamSync, FileBytes: streamFile, Time: longest}
}

func (g *lvmGuest) newDirectory(kind Kind) string { return filepath.Join(g.other[kind], "new") }

// measure runs the writer beside a neighbour on a volume of the same kind.
func (g *lvmGuest) measure(ctx context.Context, kind Kind, neighbour Neighbour) (s Sample, err error) {
	s = Sample{Kind: kind, Neighbour: neighbour}
	other, err := g.start(kind, neighbour)
	if err != nil {
		return s, err
	}
	if other != nil {
		defer func() {
			_, stopErr := other.Stop() // a second time, it does nothing
			err = errors.Join(err, stopErr, g.free(ctx, kind, neighbour))
		}()
		if err := fixture.Sleep(ctx, time.Second); err != nil {
			return s, err
		}
	}
	load, err := fio.Start(g.writing(kind), "")
	if err != nil {
		return s, err
	}
	if s.Writer, err = load.Wait(ctx); err != nil || other == nil {
		return s, err
	}
	s.Other, err = other.Stop()
	return s, err
}

func (g *lvmGuest) start(kind Kind, neighbour Neighbour) (*fio.Run, error) {
	var job fio.Job
	switch neighbour {
	case Syncing:
		job = g.syncing(kind)
	case Streams:
		job = g.streaming(kind)
	default:
		return nil, nil
	}
	if err := os.MkdirAll(job.Directory, 0o755); err != nil {
		return nil, err
	}
	return fio.Start(job, "")
}

// free removes the new file of a neighbour, and returns its blocks to the thin pool, so
// that the next neighbour allocates again.
func (g *lvmGuest) free(ctx context.Context, kind Kind, neighbour Neighbour) error {
	if neighbour != Streams {
		return nil
	}
	if err := os.RemoveAll(g.newDirectory(kind)); err != nil {
		return err
	}
	if err := fixture.WriteOut(g.other[kind]); err != nil || kind == Thick {
		return err
	}
	_, err := g.pool.Trim(ctx, "other-"+string(Thin))
	return err
}
