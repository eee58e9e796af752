// Package stdout is the standard output of a command. It keeps the first error of a write:
// what prints help and short reports ignores errors, and a script must not take an
// incomplete output for success.
package stdout

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Output is a standard output. It is not safe for concurrent use.
type Output struct {
	file *os.File
	err  error
}

// On returns the output that writes to a file.
func On(file *os.File) *Output { return &Output{file: file} }

// Write writes to the file.
func (o *Output) Write(text []byte) (int, error) {
	n, err := o.file.Write(text)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// Fd is the descriptor of the file, for those that ask whether it is a terminal.
func (o *Output) Fd() uintptr { return o.file.Fd() }

// Or returns the error of a command, or, if it has none, that of the first write that
// failed.
func (o *Output) Or(err error) error {
	if err != nil {
		return err
	}
	return o.err
}

// Closed says whether a write failed because nobody reads the output, such as after
// "| head".
func (o *Output) Closed() bool { return errors.Is(o.err, unix.EPIPE) }

// Failed reports whether an error is that of a write to the standard output itself, by a
// command that does not write to an [Output].
func Failed(err error) bool {
	var failed *fs.PathError
	return errors.As(err, &failed) && failed.Op == "write" && failed.Path == os.Stdout.Name()
}
