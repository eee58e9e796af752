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

	"github.com/daybook-project/daybook/internal/atomicfile"
)

// change runs a tool that may write to the file system. The tools write the
// superblock's changed words one after another, the checksum last (libext2fs
// 1.47, lib/ext2fs/closefs.c, write_primary_superblock). One that is killed in
// between leaves an invalid superblock, and only a file system of several block
// groups has a second copy. So a copy is saved before, and stays until the tool
// has ended normally.
func (o Offline) change(ctx context.Context, name string, arguments ...string) (text string, err error) {
	if o.Kept == "" {
		return o.run(ctx, name, arguments...)
	}
	if _, err := o.PutBack(); err != nil {
		return "", err
	}
	if err := o.keep(); err != nil {
		return "", fmt.Errorf("cannot save the superblock of %s: %w", o.Device, err)
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

// PutBack reports whether a tool was interrupted. In this case the file system
// must be checked before it is used. PutBack restores a partially written
// superblock. It may be repeated; a check with repair ends it.
func (o Offline) PutBack() (wasInterrupted bool, err error) {
	kept, err := os.ReadFile(o.Kept)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if _, err := ParseSuperblock(kept); err != nil {
		return false, fmt.Errorf("the superblock that was saved in %s: %w", o.Kept, err)
	}
	now, err := readSuperblockBytes(o.Device)
	if err != nil || !isTorn(now) || !bytes.Equal(uuidOf(now), uuidOf(kept)) {
		return true, err
	}
	file, err := os.OpenFile(o.Device, os.O_WRONLY, 0)
	if err != nil {
		return true, err
	}
	// Write it in one call, which no signal interrupts.
	_, err = file.WriteAt(kept[:superblockBytes], superblockOffset)
	return true, errors.Join(err, file.Sync(), file.Close())
}

// keep saves the superblock; one that is already damaged is not saved.
func (o Offline) keep() error {
	now, err := readSuperblockBytes(o.Device)
	if err != nil {
		return err
	}
	if _, err := ParseSuperblock(now); err != nil {
		return o.forget()
	}
	return atomicfile.Replace(o.Kept, now)
}

func (o Offline) forget() error {
	err := os.Remove(o.Kept)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, atomicfile.SyncDirectory(filepath.Dir(o.Kept)))
}

func isTorn(superblock []byte) bool {
	_, err := ParseSuperblock(superblock)
	return errors.Is(err, errChecksum)
}

func uuidOf(superblock []byte) []byte { return superblock[atUUID : atUUID+16] }
