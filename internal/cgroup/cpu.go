package cgroup

import (
	"errors"
	"io/fs"
	"path"
	"strings"
)

// ProcessorLimit returns the nearest cgroup, from the given one up, that limits the
// processor time of the tasks in it (cpu.max), and its limit as the kernel writes it: a
// quota and a period in microseconds. It returns "" if none does. On v1 the I/O
// controller's cgroups have no such limit, because the processor has a hierarchy of its
// own.
func (t *Tree) ProcessorLimit(cgroupPath string) (limiting, limit string, err error) {
	if t.version != V2 {
		return "", "", nil
	}
	for at := clean(cgroupPath); at != "/"; at = path.Dir(at) {
		content, err := t.read(at, "cpu.max")
		if errors.Is(err, fs.ErrNotExist) {
			continue // the controller is not enabled for it
		}
		if err != nil {
			return "", "", err
		}
		limit := strings.TrimSpace(string(content))
		if quota, _, _ := strings.Cut(limit, " "); quota != "max" {
			return at, limit, nil
		}
	}
	return "", "", nil
}
