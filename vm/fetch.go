package vm

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/daybook-project/daybook/vm/internal/wire"
)

// Fetch copies a file or a directory of the guest to the host. A file becomes
// hostPath, or hostPath/NAME if hostPath is a directory; a directory's content
// comes into hostPath, which is made. Devices, sockets and pipes are left out.
// Nothing that the guest sends can be written outside hostPath.
func (m *Machine) Fetch(ctx context.Context, guestPath, hostPath string) error {
	reader, writer := io.Pipe()
	p, err := m.current().request(Command{Args: []string{"fetch " + guestPath}, Stdout: writer}, wire.Request{Archive: guestPath})
	if err != nil {
		return err
	}
	go func() { writer.CloseWithError(errOrEOF(p.Wait(ctx))) }()
	err = unpack(tar.NewReader(reader), filepath.Base(guestPath), hostPath)
	reader.Close() // so that the rest of the output blocks nothing
	waited := p.Wait(ctx)
	var exit *ExitError
	if errors.As(waited, &exit) {
		return fmt.Errorf("cannot fetch %s from the guest: %s", guestPath, exit.Reason)
	}
	if waited != nil {
		err = waited
	}
	if err != nil {
		return fmt.Errorf("cannot fetch %s from the guest to %s: %w", guestPath, hostPath, err)
	}
	return nil
}

func errOrEOF(err error) error {
	if err == nil {
		return io.EOF
	}
	return err
}

// unpack writes the guest's archive: one entry "." that is a file, or a tree.
func unpack(archive *tar.Reader, name, hostPath string) error {
	first, err := archive.Next()
	if err != nil {
		return err
	}
	if first.Typeflag == tar.TypeReg {
		if info, err := os.Stat(hostPath); err == nil && info.IsDir() {
			hostPath = filepath.Join(hostPath, name)
		}
		file, err := os.OpenFile(hostPath, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, first.FileInfo().Mode().Perm())
		if err != nil {
			return err
		}
		if _, err := io.Copy(file, archive); err != nil {
			file.Close()
			return err
		}
		return file.Close()
	}
	if err := os.MkdirAll(hostPath, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(hostPath)
	if err != nil {
		return err
	}
	defer root.Close()
	for {
		entry, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := unpackEntry(root, archive, entry); err != nil {
			return err
		}
	}
}

func unpackEntry(root *os.Root, archive *tar.Reader, entry *tar.Header) error {
	perm := entry.FileInfo().Mode().Perm()
	switch entry.Typeflag {
	case tar.TypeDir:
		if err := root.Mkdir(entry.Name, perm|0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	case tar.TypeReg:
		file, err := root.OpenFile(entry.Name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm|0o200)
		if err != nil {
			return err
		}
		if _, err := io.Copy(file, archive); err != nil {
			file.Close()
			return err
		}
		return file.Close()
	case tar.TypeSymlink:
		if err := root.Remove(entry.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return root.Symlink(entry.Linkname, entry.Name)
	}
	return nil
}
