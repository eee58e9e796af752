package agent

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/daybook-project/daybook/vm/internal/wire"
)

// archive sends a file or directory as a tar, whose names start with ".".
func (s *server) archive(id uint32, path string) {
	result := wire.Result{}
	out := bufio.NewWriterSize(outputWriter{s, id}, wire.OutputPayload)
	if err := writeTar(out, path); err != nil {
		result = wire.Result{Code: 1, Error: err.Error()}
		if errors.Is(err, fs.ErrNotExist) {
			result.Code = codeNotFound
		}
	} else if err := out.Flush(); err != nil {
		result = wire.Result{Code: 1, Error: err.Error()}
	}
	_ = s.send(wire.Exit, id, result)
}

type outputWriter struct {
	server *server
	id     uint32
}

func (w outputWriter) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(len(rest), wire.OutputPayload)
		if err := w.server.sendOutput(wire.Stdout, w.id, rest[:n]); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(b), nil
}

func writeTar(out io.Writer, root string) error {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(out)
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() && !info.IsDir() && info.Mode()&fs.ModeSymlink == 0 {
			if path == root {
				return fmt.Errorf("%s is neither a file nor a directory", root)
			}
			return nil // devices, sockets and pipes are useless on the host
		}
		link := ""
		if info.Mode()&fs.ModeSymlink != 0 {
			if link, err = os.Readlink(path); err != nil {
				return err
			}
		}
		return writeTarEntry(archive, path, name, link, info)
	})
	if err != nil {
		return err
	}
	return archive.Close()
}

// pageBytes is the size of the largest page of any kernel.
const pageBytes = 64 << 10

func writeTarEntry(archive *tar.Writer, path, name, link string, info fs.FileInfo) error {
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	header.Name = name
	if !info.Mode().IsRegular() {
		return archive.WriteHeader(header)
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if info.Size() > pageBytes {
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err = io.CopyN(archive, file, info.Size())
		return err
	}
	// The size of a file in /proc or /sys is known only after a read: it is 0, or a page.
	text, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	header.Size = int64(len(text))
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = archive.Write(text)
	return err
}
