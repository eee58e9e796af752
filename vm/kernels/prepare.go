package kernels

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/daybook-project/daybook/internal/program"
	"github.com/daybook-project/daybook/vm/internal/cache"
)

// prepare prepares the unpacked files in next for use in the directory last.
func prepare(ctx context.Context, t cache.Tools, next, last string, pin Pin, part Part) error {
	switch part {
	case Image:
		modules, err := moveModules(next, pin.Release)
		if err != nil {
			return err
		}
		packed := filepath.Join(next, "boot/vmlinuz-"+pin.Release)
		if _, err := os.Stat(packed); err != nil {
			packed = filepath.Join(modules, "vmlinuz") // in Debian's packages since 7.x
		}
		unpack := unpackKernel
		if pin.Arch() == ARM64 {
			unpack = takeImage
		}
		if err := unpack(ctx, t, packed, filepath.Join(next, "vmlinux")); err != nil {
			return err
		}
		if err := unpackModules(ctx, t, modules); err != nil {
			return err
		}
		_, err = t.Output(ctx, "", "depmod", "-b", next, pin.Release)
		return err
	case Headers:
		return relocateHeaders(next, last)
	}
	return nil
}

// moveModules returns the directory of the modules. Packages for a merged /usr
// have it in usr/lib, which is renamed to lib for depmod.
func moveModules(root, release string) (string, error) {
	dir := filepath.Join(root, "lib/modules", release)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.Rename(filepath.Join(root, "usr/lib"), filepath.Join(root, "lib")); err != nil {
		return "", err
	}
	_, err := os.Stat(dir)
	return dir, err
}

// imageMagic is what an Image of arm64 has at imageMagicAt;
// Documentation/arm64/booting.rst.
const imageMagic, imageMagicAt = "ARM\x64", 56

// takeImage moves an Image of arm64, which QEMU boots as it is.
func takeImage(_ context.Context, _ cache.Tools, from, to string) error {
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer file.Close()
	magic := make([]byte, len(imageMagic))
	if _, err := file.ReadAt(magic, imageMagicAt); err != nil || string(magic) != imageMagic {
		return fmt.Errorf("%s is not an uncompressed Image of arm64", from)
	}
	return os.Rename(from, to)
}

// Offsets in the boot sector of a bzImage; Documentation/arch/x86/boot.rst.
const (
	setupSectorsAt  = 0x1f1
	headerMagicAt   = 0x202 // "HdrS"
	payloadOffsetAt = 0x248
	payloadLengthAt = 0x24c
	headerEnd       = 0x250
)

// payload returns the compressed kernel in a bzImage, without the last four
// bytes, which hold its uncompressed size.
func payload(image []byte) ([]byte, error) {
	if len(image) < headerEnd || string(image[headerMagicAt:headerMagicAt+4]) != "HdrS" {
		return nil, errors.New("not a bzImage")
	}
	sectors := uint64(image[setupSectorsAt])
	if sectors == 0 {
		sectors = 4
	}
	start := (sectors+1)*512 + uint64(binary.LittleEndian.Uint32(image[payloadOffsetAt:]))
	length := uint64(binary.LittleEndian.Uint32(image[payloadLengthAt:]))
	if length < 8 || start+length > uint64(len(image)) {
		return nil, errors.New("a bzImage whose compressed kernel is not inside it")
	}
	return image[start : start+length-4], nil
}

// unpackKernel writes the ELF kernel of a bzImage.
func unpackKernel(ctx context.Context, t cache.Tools, from, to string) error {
	image, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	packed, err := payload(image)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	unpacker := ""
	switch {
	case bytes.HasPrefix(packed, []byte("\xfd7zXZ\x00")):
		unpacker = "xz"
	case bytes.HasPrefix(packed, []byte("\x28\xb5\x2f\xfd")):
		unpacker = "zstd"
	default:
		return fmt.Errorf("%s has an unknown compression format (it starts with % x)", from, packed[:4])
	}
	kernel, err := os.Create(to)
	if err != nil {
		return err
	}
	defer kernel.Close()
	unpack := t.Command("", unpacker, "-dc")
	unpack.Input, unpack.Output = bytes.NewReader(packed), kernel
	if _, err := program.Run(ctx, unpack); err != nil {
		return fmt.Errorf("cannot unpack %s: %w", from, err)
	}
	return kernel.Close()
}

// unpackModules uncompresses modules that are compressed individually.
func unpackModules(ctx context.Context, t cache.Tools, dir string) error {
	var packed []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".ko.xz") {
			packed = append(packed, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	const atOnce = 500 // modules in one argument list
	for len(packed) > 0 {
		n := min(atOnce, len(packed))
		if _, err := t.Output(ctx, "", "xz", append([]string{"-d", "--"}, packed[:n]...)...); err != nil {
			return err
		}
		packed = packed[n:]
	}
	return nil
}

// relocateHeaders replaces /usr/src in the Makefiles of headers with their
// directory in the cache.
func relocateHeaders(next, last string) error {
	makefiles, err := cache.Find(next, "usr/src/linux-headers-*/Makefile")
	if err != nil {
		return err
	}
	for _, path := range makefiles {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		moved := bytes.ReplaceAll(text, []byte("/usr/src/linux-headers-"), []byte(filepath.Join(last, "usr/src")+"/linux-headers-"))
		if err := os.WriteFile(path, moved, 0o644); err != nil {
			return err
		}
	}
	return nil
}
