package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/systemdtest"
)

// units returns the systemd units of the repository, by name.
func units(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("../../deploy/systemd/*.*")
	if err != nil || len(paths) == 0 {
		t.Fatalf("there are no units: %v", err)
	}
	result := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		result[filepath.Base(path)] = string(text)
	}
	return result
}

func TestUnitsCallCommandsThatExist(t *testing.T) {
	const program = "/usr/bin/daybook "
	for name, text := range units(t) {
		calls := 0
		for _, line := range strings.Split(text, "\n") {
			key, command, _ := strings.Cut(line, "=")
			if !strings.HasPrefix(key, "Exec") || !strings.HasPrefix(command, program) {
				continue
			}
			calls++
			if err := parses(strings.Fields(strings.TrimPrefix(command, program))); err != nil {
				t.Errorf("%s: %s: %v", name, line, err)
			}
		}
		if calls == 0 && strings.HasSuffix(name, ".service") {
			t.Errorf("%s never calls daybook", name)
		}
	}
}

// Locks are in /run/daybook. It is read-only to a unit with a strict file
// system, unless the unit declares the directory as its own.
func TestUnitsWithStrictFileSystemCanLock(t *testing.T) {
	found := 0
	for name, text := range units(t) {
		lines := strings.Split(text, "\n")
		if !slices.Contains(lines, "ProtectSystem=strict") {
			continue
		}
		found++
		for _, want := range []string{"RuntimeDirectory=daybook", "RuntimeDirectoryMode=0700", "RuntimeDirectoryPreserve=yes"} {
			if !slices.Contains(lines, want) {
				t.Errorf("%s lacks %s", name, want)
			}
		}
	}
	if found == 0 {
		t.Error("there is no such unit")
	}
}

// systemctl stop sends SIGTERM, after which daybook ends with exitInterrupted. systemd would
// call that a failure.
func TestAStoppedUnitHasNotFailed(t *testing.T) {
	want, found := fmt.Sprintf("SuccessExitStatus=%d", exitInterrupted), 0
	for name, text := range units(t) {
		lines := strings.Split(text, "\n")
		if !slices.Contains(lines, "Type=exec") {
			continue
		}
		found++
		if !slices.Contains(lines, want) {
			t.Errorf("%s lacks %s", name, want)
		}
	}
	if found < 5 {
		t.Errorf("only %d units run until they are stopped", found)
	}
}

// systemd looks up the major number of block-loop when the unit starts; a driver that is loaded
// later stays forbidden.
func TestUnitsLoadTheDriversOfTheirDevicesBeforeTheyStart(t *testing.T) {
	found := 0
	for name := range units(t) {
		unit := "../../deploy/systemd/" + name
		for _, allowed := range systemdtest.Values(t, unit, "DeviceAllow") {
			driver, isDriver := strings.CutPrefix(allowed, "block-")
			if !isDriver || driver == "*" { // which means all numbers
				continue
			}
			found++
			for _, key := range []string{"Wants", "After"} {
				if want := "modprobe@" + driver + ".service"; !slices.Contains(systemdtest.Values(t, unit, key), want) {
					t.Errorf("%s lacks %s=%s", name, key, want)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no unit names a driver")
	}
}

// Linux 6.1 moves a kernel thread out of a cpuset only for CAP_SYS_NICE, and CAP_DAC_OVERRIDE makes
// cgroups in the root cgroup, whose directory nobody may write.
func TestUnitsThatMoveJournalsMayDoSo(t *testing.T) {
	found := 0
	for name, text := range units(t) {
		moves := slices.ContainsFunc([]string{"adopt", "restore", "volume", "serve docker"}, func(command string) bool {
			return strings.Contains(text, "=/usr/bin/daybook "+command)
		})
		if !moves {
			continue
		}
		found++
		for _, want := range []string{"CAP_SYS_NICE", "CAP_DAC_OVERRIDE"} {
			if !slices.Contains(systemdtest.Values(t, "../../deploy/systemd/"+name, "CapabilityBoundingSet"), want) {
				t.Errorf("%s lacks %s", name, want)
			}
		}
	}
	if found != 5 {
		t.Errorf("%d units move journals; want 5", found)
	}
}

// Without a limit, a unit with a wrong configuration, or on a host that lacks something, starts and
// logs for ever. Late disks and modules do not count: the program waits for them.
func TestUnitsThatCannotWorkEndAfterSomeMinutes(t *testing.T) {
	for _, name := range []string{"daybook-metrics.service", "daybook-control.service"} {
		value := func(key string) time.Duration {
			t.Helper()
			values := systemdtest.Values(t, "../../deploy/systemd/"+name, key)
			if len(values) != 1 {
				t.Fatalf("%s: %s is %q", name, key, values)
			}
			number, err := time.ParseDuration(strings.Replace(values[0], "min", "m", 1))
			if err != nil {
				t.Fatal(err)
			}
			return number
		}
		burst := systemdtest.Values(t, "../../deploy/systemd/"+name, "StartLimitBurst")
		if len(burst) != 1 {
			t.Fatalf("%s: StartLimitBurst is %q", name, burst)
		}
		starts, err := strconv.Atoi(burst[0])
		if err != nil {
			t.Fatal(err)
		}
		tries := time.Duration(starts) * value("RestartSec")
		// Twice, because each start takes time, too.
		if tries < 3*time.Minute || 2*tries > value("StartLimitIntervalSec") {
			t.Errorf("%s: %d starts in %v or more; the limit is for %v", name, starts, tries, value("StartLimitIntervalSec"))
		}
	}
}

// The runtime of Go ends a program with 2 at a panic, or when it gets no memory or no thread.
func TestUnitsStartAgainAfterACrash(t *testing.T) {
	const status = "2"
	for name := range units(t) {
		unit := "../../deploy/systemd/" + name
		if !slices.Contains(systemdtest.Values(t, unit, "Restart"), "on-failure") {
			continue
		}
		for _, key := range []string{"RestartPreventExitStatus", "SuccessExitStatus"} {
			if slices.Contains(strings.Fields(strings.Join(systemdtest.Values(t, unit, key), " ")), status) {
				t.Errorf("%s: %s has %s, the status of a crash", name, key, status)
			}
		}
	}
}

// Go starts a thread for each processor to collect its garbage. With 256 of them a daemon had
// 75 threads, and ended at TasksMax=64.
func TestUnitsHaveRoomForTheirThreadsOnManyProcessors(t *testing.T) {
	for name := range units(t) {
		if !strings.HasSuffix(name, ".service") {
			continue
		}
		unit := "../../deploy/systemd/" + name
		if !slices.Contains(systemdtest.Values(t, unit, "Environment"), "GOMAXPROCS=4") {
			t.Errorf("%s: its threads are as many as the host's processors", name)
		}
		tasks := systemdtest.Values(t, unit, "TasksMax")
		if len(tasks) != 1 {
			t.Fatalf("%s: TasksMax is %q", name, tasks)
		}
		// Two processes of daybook, each with up to ten threads in system calls, and their tools.
		if most, err := strconv.Atoi(tasks[0]); err != nil || most < 128 {
			t.Errorf("%s: TasksMax is %q", name, tasks[0])
		}
	}
}

// Containers need these: what makes them fail, such as a full disk, can end by itself.
func TestUnitsThatKeepVolumesAreRestartedForEver(t *testing.T) {
	seconds := func(name, key string, byDefault time.Duration) time.Duration {
		t.Helper()
		values := systemdtest.Values(t, "../../deploy/systemd/"+name, key)
		if len(values) == 0 {
			return byDefault
		}
		number, err := time.ParseDuration(values[0])
		if err != nil {
			t.Fatalf("%s: %s is %q", name, key, values)
		}
		return number
	}
	for _, name := range []string{"daybook-adopt.service", "daybook-docker.service", "daybook-volumes.service"} {
		burst := 5 // systemd's default, as the interval below
		if values := systemdtest.Values(t, "../../deploy/systemd/"+name, "StartLimitBurst"); len(values) > 0 {
			var err error
			if burst, err = strconv.Atoi(values[0]); err != nil {
				t.Fatal(err)
			}
		}
		interval, wait := seconds(name, "StartLimitIntervalSec", 10*time.Second), seconds(name, "RestartSec", 100*time.Millisecond)
		if interval == 0 { // no limit
			continue
		}
		if requires := systemdtest.Values(t, "../../deploy/systemd/"+name, "Requires"); len(requires) > 0 {
			t.Errorf("%s: at a limit systemd ends %s too, and requests start it besides RestartSec", name, requires)
		}
		if starts := int(interval/wait) + 1; starts >= burst {
			t.Errorf("%s: %d starts in %v reach the limit of %d", name, starts, interval, burst)
		}
	}
}

func TestSystemdAcceptsTheUnits(t *testing.T) {
	analyze := needs.Tool(t, "systemd-analyze")
	dir := t.TempDir()
	program := filepath.Join(dir, "daybook")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	all := units(t)
	for name, text := range all {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "/usr/bin/daybook", program)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name := range all {
		path := filepath.Join(dir, name)
		// systemd-analyze only warns of unknown settings and values, without
		// failing.
		if out, err := exec.Command(analyze, "verify", "--man=no", path).CombinedOutput(); err != nil || strings.Contains(string(out), name) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
