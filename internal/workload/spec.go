package workload

import (
	"errors"
	"fmt"
	"time"
)

// Spec is the work of one child process until it is stopped, or until its jobs
// are done if it has nothing else. Its parts run concurrently.
type Spec struct {
	// Read lists files that are read repeatedly from start to end, each by its
	// own thread, with direct I/O.
	Read []string `json:"read,omitempty"`
	// ReadBytes is the size of one read; 0 means 1 MiB.
	ReadBytes int `json:"read_bytes,omitempty"`
	// MkdirIn is the parent of new directories, which MkdirThreads threads (0
	// means 1) make at MkdirPerSecond.
	MkdirIn        string  `json:"mkdir_in,omitempty"`
	MkdirPerSecond float64 `json:"mkdir_per_second,omitempty"`
	MkdirThreads   int     `json:"mkdir_threads,omitempty"`
	// ChangeIn is where metadata is changed, in ChangesPerSecond rounds: mkdir,
	// create, rename, symlink, unlink and setxattr.
	ChangeIn         string  `json:"change_in,omitempty"`
	ChangesPerSecond float64 `json:"changes_per_second,omitempty"`
	// FsyncEvery, if > 0, is how often MkdirIn is synced.
	FsyncEvery time.Duration `json:"fsync_every,omitempty"`
	// AppendIn is a file to which blocks of 4 KiB are appended at
	// AppendPerSecond (0 means as fast as possible), with an fsync after each
	// if AppendSync is true.
	AppendIn        string  `json:"append_in,omitempty"`
	AppendPerSecond float64 `json:"append_per_second,omitempty"`
	AppendSync      bool    `json:"append_sync,omitempty"`
	// Jobs are done once, one after the other; a process that has nothing else
	// to do then ends. With Prepare they are only prepared.
	Jobs    []Job `json:"jobs,omitempty"`
	Prepare bool  `json:"prepare,omitempty"`
	// EachCgroup, if set, selects cgroups to work in, one after another, repeatedly.
	EachCgroup *EachCgroup `json:"each_cgroup,omitempty"`
}

// Check returns an error if the spec is invalid.
func (s Spec) Check() error {
	switch {
	case len(s.Read) == 0 && s.MkdirIn == "" && s.ChangeIn == "" && s.AppendIn == "" && len(s.Jobs) == 0 && s.EachCgroup == nil:
		return errors.New("the workload does nothing")
	case s.ReadBytes < 0 || s.ReadBytes%4096 != 0:
		return fmt.Errorf("reads of %d bytes: want a multiple of 4096", s.ReadBytes)
	case s.MkdirIn != "" && s.MkdirPerSecond <= 0:
		return fmt.Errorf("%v directories a second: want more than 0", s.MkdirPerSecond)
	case s.ChangeIn != "" && s.ChangesPerSecond <= 0:
		return fmt.Errorf("%v changes a second: want more than 0", s.ChangesPerSecond)
	case s.MkdirThreads < 0 || s.MkdirThreads > 64:
		return fmt.Errorf("%d threads: want 1 to 64", s.MkdirThreads)
	case s.AppendPerSecond < 0:
		return fmt.Errorf("%v appends a second: want 0 or more", s.AppendPerSecond)
	}
	for _, job := range s.Jobs {
		if err := job.Check(); err != nil {
			return err
		}
	}
	if s.EachCgroup != nil {
		return s.EachCgroup.Check()
	}
	return nil
}
