package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// awaitAlone waits a while for others' mount namespaces, such as containers',
// to let go of an attached volume. Unmounting it here would not end it, but
// only hide it from who works in it here. The error wraps ErrBusy.
func (p *Pool) awaitAlone(ctx context.Context, record Record) error {
	lowers, err := p.lowers(record)
	if err != nil {
		return err
	}
	for _, lower := range lowers {
		err := awaitFree(ctx, func() error {
			pid, err := mountedElsewhere(lower.dev)
			if err != nil || pid == 0 {
				return err
			}
			return fmt.Errorf("it is %w: process %d (%s) has it in another mount namespace, as a container has: stop that first", ErrBusy, pid, strings.TrimSpace(commOf(pid)))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// mountedElsewhere finds a process in another mount namespace that has a copy of
// a mounted device which does not go with our mount; 0 if there is none.
func mountedElsewhere(dev blockdev.Dev) (pid int, err error) {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return 0, err
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	seen := map[string]bool{own: true}
	for _, process := range processes {
		pid, err := strconv.Atoi(process.Name())
		if err != nil {
			continue
		}
		directory := filepath.Join("/proc", process.Name())
		namespace, err := os.Readlink(filepath.Join(directory, "ns/mnt"))
		if err != nil || seen[namespace] {
			continue // ended since, or seen
		}
		text, err := os.ReadFile(filepath.Join(directory, "mountinfo"))
		if err != nil {
			continue
		}
		seen[namespace] = true
		for line := range strings.Lines(string(text)) {
			if isPrivateMount(line, dev.String()) {
				return pid, nil
			}
		}
	}
	return 0, nil
}

// isPrivateMount says whether a line of mountinfo is of a device and has none
// of the optional fields, shared:N and master:N, by which an unmounting comes
// to it from other namespaces (proc_pid_mountinfo(5)).
func isPrivateMount(line, dev string) bool {
	before, _, _ := strings.Cut(line, " - ")
	fields := strings.Fields(before)
	if len(fields) < 6 || fields[2] != dev {
		return false
	}
	for _, field := range fields[6:] {
		if strings.HasPrefix(field, "shared:") || strings.HasPrefix(field, "master:") {
			return false
		}
	}
	return true
}
