package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/filelock"
	"github.com/daybook-project/daybook/internal/serve"
)

// recordFlags select the file for samples, and how much of it is kept.
type recordFlags struct {
	path     string
	maxBytes byteSize
	files    int
	command  *cobra.Command // which flags were given; nil: none
}

func (f *recordFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.command = cmd
	f.maxBytes = account.DefaultRotateBytes
	flags.StringVar(&f.path, "record", "", "also append the samples to `FILE`, for daybook replay")
	flags.Var(&f.maxBytes, "record-max-bytes", "start a new file before the recording exceeds this size; older files are FILE.1, FILE.2, …; 0: never")
	flags.IntVar(&f.files, "record-files", account.DefaultRotateFiles, fmt.Sprintf("number of files of the recording to keep, 1 to %d", account.MaxRotateFiles))
}

// needed refuses flags that say how to record if nothing is recorded.
func (f *recordFlags) needed() error {
	for _, name := range []string{"record-max-bytes", "record-files"} {
		if f.path == "" && f.command != nil && f.command.Flags().Changed(name) {
			return usageError{fmt.Errorf("--%s is for a recording; give its file, too: --record FILE", name)}
		}
	}
	return nil
}

// rotation checks the flags.
func (f *recordFlags) rotation() (account.Rotation, error) {
	if f.maxBytes > 1<<62 {
		return account.Rotation{}, usageError{fmt.Errorf("--record-max-bytes is %d; want at most 4096 PiB", uint64(f.maxBytes))}
	}
	r := account.Rotation{MaxBytes: int64(f.maxBytes), Files: f.files}
	if err := r.Check(); err != nil {
		return r, usageError{fmt.Errorf("--record-max-bytes, --record-files: %w", err)}
	}
	return r, nil
}

// recording appends samples to a file. A sample that cannot be recorded is
// logged and counted; it never stops the program.
type recording struct {
	path     string
	rotation account.Rotation
	// recorder is nil while the file cannot be opened.
	recorder *account.Recorder
	metrics  *serve.Metrics // nil: none
	log      *slog.Logger
	// failure is the error of the last sample, nil if it was recorded. missing
	// is the number of samples not recorded since then, lost the number of all.
	failure       error
	missing, lost uint64
}

// openRecording opens the file. A temporary error, such as a full disk, is not
// returned: the samples until it ends are missing.
func openRecording(f recordFlags, metrics *serve.Metrics, log *slog.Logger) (*recording, error) {
	rotation, err := f.rotation()
	if err != nil {
		return nil, err
	}
	r := &recording{path: f.path, rotation: rotation, metrics: metrics, log: log}
	if err := r.open(); err != nil {
		if !mayPass(err) {
			return nil, wrongRecording(err)
		}
		r.fail(err)
	}
	return r, nil
}

func (r *recording) open() error {
	recorder, err := account.OpenRotating(r.path, r.rotation)
	if err != nil {
		return err
	}
	r.recorder = recorder
	if n := recorder.Dropped(); n > 0 {
		r.log.Warn("the recording ended with an unfinished line, which is removed", "file", r.path, "bytes", n)
	}
	return nil
}

// mayPass reports whether an error is of the recording's file system and may go
// away. An error of the path or of the lock is permanent.
func mayPass(err error) bool {
	if errors.Is(err, account.ErrLock) {
		return false
	}
	for _, e := range []error{unix.ENOSPC, unix.EDQUOT, unix.EFBIG, unix.EIO, unix.EROFS, unix.ESTALE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// wrongRecording says that the user named a wrong file. A lock, another process that
// records there, and missing permission are no mistake in the command line.
func wrongRecording(err error) error {
	var held *filelock.HeldError
	if errors.Is(err, account.ErrLock) || errors.As(err, &held) || errors.Is(err, fs.ErrPermission) {
		return err
	}
	return usageError{err}
}

// record appends one sample.
func (r *recording) record(s account.Sample) {
	var err error
	if r.recorder == nil {
		err = r.open()
	}
	if err == nil {
		err = r.recorder.Record(s)
	}
	if err != nil {
		r.fail(err)
		r.missing++
		r.lost++
		if r.metrics != nil {
			r.metrics.RecordingFailed()
		}
		return
	}
	if r.failure != nil {
		r.log.Info("recording again", "file", r.path, "missing_samples", r.missing)
		r.failure, r.missing = nil, 0
	}
}

// fail logs an error when it starts.
func (r *recording) fail(err error) {
	if r.failure == nil {
		r.log.Error("cannot record; continuing without, and retrying at every sample", "file", r.path, "error", err)
	}
	r.failure = err
}

// notice is the warning to show now, "" for none.
func (r *recording) notice() string {
	if r == nil || r.failure == nil {
		return ""
	}
	return fmt.Sprintf("not recorded: %d samples; %v", r.missing, r.failure)
}

func (r *recording) close() error {
	if r.lost > 0 {
		r.log.Warn("the recording is not complete", "file", r.path, "missing_samples", r.lost)
	}
	if r.recorder == nil {
		return nil
	}
	return r.recorder.Close()
}
