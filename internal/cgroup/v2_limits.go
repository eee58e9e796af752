package cgroup

import (
	"fmt"
	"strings"
)

const v2IOMax = "io.max"

func (v2) limit(t *Tree, cgroupPath string, d disk) (Limit, error) {
	content, err := t.read(cgroupPath, v2IOMax)
	if err != nil {
		return Limit{}, err
	}
	limit, err := parseIOMax(content, d.dev)
	if err != nil {
		return Limit{}, t.explain("read", cgroupPath, v2IOMax, err)
	}
	return limit, nil
}

func (v2) setLimit(t *Tree, cgroupPath string, d disk, now, next Limit) error {
	var b strings.Builder
	b.WriteString(d.dev.String())
	for _, key := range limitKeys {
		switch value := *next.field(key); {
		case value == *now.field(key):
		case value == 0:
			fmt.Fprintf(&b, " %s=max", key)
		default:
			fmt.Fprintf(&b, " %s=%d", key, value)
		}
	}
	return t.write(cgroupPath, v2IOMax, b.String())
}
