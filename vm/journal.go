package vm

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// harmless are entries of systemd's journal that an emulated guest logs as errors
// though nothing is wrong. docs/vm-reference.md lists them with their reasons.
var harmless = []*regexp.Regexp{
	// modprobe asks for the dependents of a module that a processor without
	// virtualization has just refused.
	regexp.MustCompile(`could not open '/sys/module/kvm/holders'`),
	// udev has loaded a module for the processor, which finds no such device and is removed
	// again while udev reads its state.
	regexp.MustCompile(`could not read from '/sys/module/[a-z_]*cpufreq/initstate': No such device`),
}

// JournalErrors returns the entries of systemd's journal with the priority err or above,
// since the boot or the last call. It leaves out entries that are known to be harmless.
func (m *Machine) JournalErrors(ctx context.Context) ([]string, error) {
	text, err := m.Run(ctx, "journalctl", "--boot", "--quiet", "--no-pager", "--no-hostname", "--priority=err", "--output=short-monotonic")
	if err != nil {
		return nil, fmt.Errorf("cannot read the systemd journal: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var added []string
	added, m.boot.journalSeen = entriesAfter(text, m.boot.journalSeen)
	return notHarmless(added), nil
}

// entriesAfter splits journalctl's output into lines, and returns those after the
// first seen ones and the number of all. An empty output has no line.
func entriesAfter(text string, seen int) (added []string, all int) {
	lines := slices.Collect(strings.Lines(text))
	return lines[min(seen, len(lines)):], len(lines)
}

func notHarmless(lines []string) []string {
	var errors []string
	for _, line := range lines {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || isHarmless(line) {
			continue
		}
		errors = append(errors, line)
	}
	return errors
}

func isHarmless(line string) bool {
	for _, known := range harmless {
		if known.MatchString(line) {
			return true
		}
	}
	return false
}
