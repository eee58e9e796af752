package initrd

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// The kernel reads numbers of eight hexadecimal digits;
// Documentation/driver-api/early-userspace/buffer-format.rst.
const maxFileBytes = 1<<32 - 1

// Modes of cpio entries, as in stat(2).
const (
	modeType      = 0o170000
	modeDirectory = 0o040000
	modeRegular   = 0o100000
	modeSymlink   = 0o120000
)

// cpioWriter writes entries. A directory must be written before its files.
type cpioWriter struct {
	out    *bufio.Writer
	inode  uint32
	offset int64
}

func newCPIO(w io.Writer) *cpioWriter { return &cpioWriter{out: bufio.NewWriterSize(w, 1<<16)} }

// header writes an entry without its content. name has no leading slash.
func (c *cpioWriter) header(name string, mode uint32, size int64) error {
	if size > maxFileBytes {
		return fmt.Errorf("%s is too large for the guest's root: %d bytes, at most %d; put it on a disk", name, size, int64(maxFileBytes))
	}
	c.inode++
	links := 1
	if mode&modeType == modeDirectory {
		links = 2
	}
	// magic ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
	n, err := fmt.Fprintf(c.out, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		c.inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, len(name)+1, 0, name)
	c.offset += int64(n)
	if err != nil {
		return err
	}
	return c.pad()
}

// pad pads to a multiple of four bytes.
func (c *cpioWriter) pad() error {
	for ; c.offset%4 != 0; c.offset++ {
		if err := c.out.WriteByte(0); err != nil {
			return err
		}
	}
	return nil
}

func (c *cpioWriter) directory(name string, perm fs.FileMode) error {
	return c.header(name, modeDirectory|uint32(perm.Perm())|sticky(perm), 0)
}

func (c *cpioWriter) symlink(name, target string) error {
	return c.text(name, modeSymlink|0o777, []byte(target))
}

func (c *cpioWriter) file(name string, perm fs.FileMode, content []byte) error {
	return c.text(name, modeRegular|uint32(perm.Perm()), content)
}

func (c *cpioWriter) text(name string, mode uint32, content []byte) error {
	if err := c.header(name, mode, int64(len(content))); err != nil {
		return err
	}
	n, err := c.out.Write(content)
	c.offset += int64(n)
	if err != nil {
		return err
	}
	return c.pad()
}

// copyFile copies a file of the host, with its permissions.
func (c *cpioWriter) copyFile(name, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	if err := c.header(name, modeRegular|uint32(info.Mode().Perm()), info.Size()); err != nil {
		return err
	}
	n, err := io.CopyN(c.out, file, info.Size())
	c.offset += n
	if err != nil {
		return fmt.Errorf("cannot copy %s to the guest: %w", path, err)
	}
	return c.pad()
}

// close writes the trailer.
func (c *cpioWriter) close() error {
	if err := c.header("TRAILER!!!", 0, 0); err != nil {
		return err
	}
	return c.out.Flush()
}

func sticky(mode fs.FileMode) uint32 {
	if mode&fs.ModeSticky != 0 {
		return 0o1000
	}
	return 0
}
