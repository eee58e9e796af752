package ext4

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/daybook-project/daybook/internal/wholefile"
)

// change runs a tool that may write to the file system. The tools write the
// superblock's changed words one after another, the checksum last (libext2fs
// 1.47, lib/ext2fs/closefs.c, write_primary_superblock): one that is killed
// between leaves a superblock that nobody takes, and only a file system of
// several block groups has another. So a copy is on disk before, and stays until
// the tool has ended by itself.
func (o Offline) change(ctx context.Context, name string, arguments ...string) (text string, err error) {
	if o.Kept == "" {
		return o.run(ctx, name, arguments...)
	}
	if _, err := o.PutBack(); err != nil {
		return "", err
	}
	if err := o.keep(); err != nil {
		return "", fmt.Errorf("cannot keep the superblock of %s: %w", o.Device, err)
	}
	text, err = o.run(ctx, name, arguments...)
	now, readErr := readSuperblockBytes(o.Device)
	if readErr == nil && !wasKilled(ctx, err) && !isTorn(now) {
		return text, errors.Join(err, o.forget())
	}
	_, backErr := o.PutBack()
	return text, errors.Join(err, readErr, backErr)
}

func wasKilled(ctx context.Context, err error) bool {
	var exit *exec.ExitError
	return err != nil && (ctx.Err() != nil || errors.As(err, &exit) && !exit.Exited())
}

// PutBack says whether a tool that was at work was interrupted: then the file
// system must be checked before it is used, and a superblock that it had written
// half is again as it was before. That may be done as often as one likes; a
// check with repair ends it.
func (o Offline) PutBack() (wasInterrupted bool, err error) {
	kept, err := os.ReadFile(o.Kept)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if _, err := ParseSuperblock(kept); err != nil {
		return false, fmt.Errorf("the superblock that was kept in %s: %w", o.Kept, err)
	}
	now, err := readSuperblockBytes(o.Device)
	if err != nil || !isTorn(now) || !bytes.Equal(uuidOf(now), uuidOf(kept)) {
		return true, err
	}
	file, err := os.OpenFile(o.Device, os.O_WRONLY, 0)
	if err != nil {
		return true, err
	}
	// In one call, which no signal divides.
	_, err = file.WriteAt(kept[:superblockBytes], superblockOffset)
	return true, errors.Join(err, file.Sync(), file.Close())
}

// keep writes the superblock beside; one that is damaged already is none to come
// back to.
func (o Offline) keep() error {
	now, err := readSuperblockBytes(o.Device)
	if err != nil {
		return err
	}
	if _, err := ParseSuperblock(now); err != nil {
		return o.forget()
	}
	return wholefile.Replace(o.Kept, now)
}

func (o Offline) forget() error {
	err := os.Remove(o.Kept)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, wholefile.SyncDirectory(filepath.Dir(o.Kept)))
}

func isTorn(superblock []byte) bool {
	_, err := ParseSuperblock(superblock)
	return errors.Is(err, errChecksum)
}

func uuidOf(superblock []byte) []byte { return superblock[atUUID : atUUID+16] }
