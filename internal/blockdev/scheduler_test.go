package blockdev

import (
	"errors"
	"os"
	"slices"
	"testing"
)

func TestSchedulerIsTheOneInBrackets(t *testing.T) {
	for text, want := range map[string]Scheduler{
		"none mq-deadline kyber [bfq]": {"bfq", []string{"none", "mq-deadline", "kyber", "bfq"}},
		"[none] mq-deadline":           {"none", []string{"none", "mq-deadline"}},
		"none":                         {"none", []string{"none"}},
		"[none]":                       {"none", []string{"none"}},
	} {
		got, err := parseScheduler(text)
		if err != nil || got.Current != want.Current || !slices.Equal(got.Available, want.Available) {
			t.Errorf("%q: got %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "none bfq"} {
		if got, err := parseScheduler(text); err == nil {
			t.Errorf("%q gave %+v", text, got)
		}
	}
}

// Persistent memory and native NVMe multipath have no queue/scheduler from Linux 6.3 on; a
// disk that was removed has no other file of the queue either.
func TestADiskWithoutAFileOfSchedulersHasNone(t *testing.T) {
	l := layers{t, Tree{Sys: t.TempDir()}}
	l.add("pmem0", "259:0", "none")
	disk, err := l.tree.Lookup("pmem0")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(disk.path("queue/scheduler")); err != nil {
		t.Fatal(err)
	}
	if got, err := disk.Scheduler(); !errors.Is(err, ErrGone) {
		t.Errorf("without a queue: %+v, %v", got, err)
	}
	l.write(disk.path("queue/rotational"), "0")
	if got, err := disk.Scheduler(); err != nil || got.Current != NoScheduler || !slices.Equal(got.Available, []string{NoScheduler}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestTunablesAreReadAndWrittenAndNeverCreated(t *testing.T) {
	tree := fakeTree(t)
	disk, err := tree.Lookup("vda")
	if err != nil {
		t.Fatal(err)
	}
	if err := disk.SetTunable("low_latency", "0"); err != nil {
		t.Fatal(err)
	}
	if value, err := disk.Tunable("low_latency"); err != nil || value != "0" {
		t.Errorf("low_latency is %q, %v; want 0", value, err)
	}
	if _, err := disk.Tunable("no_such"); !errors.Is(err, ErrNoTunable) {
		t.Errorf("got %v, want ErrNoTunable", err)
	}
	if err := disk.SetTunable("no_such", "1"); !errors.Is(err, ErrNoTunable) {
		t.Errorf("got %v, want ErrNoTunable", err)
	}
	if _, err := os.Stat(disk.path("queue/iosched/no_such")); err == nil {
		t.Error("writing created the file")
	}
	for _, name := range []string{"", "../scheduler", "a/b", ".", ".."} {
		if _, err := disk.Tunable(name); err == nil {
			t.Errorf("tunable %q was read", name)
		}
	}
}

func TestAMountLineMayHaveAnyNumberOfOptionalFieldsAndEscapes(t *testing.T) {
	mounts, err := fakeTree(t).Mounts()
	if err != nil {
		t.Fatal(err)
	}
	want := []Mount{
		{Dev{253, 1}, "/", "/", "ext4", "/dev/vda1", "rw,discard"},
		{Dev{0, 50}, "/sub", "/mnt/with space", "btrfs", "/dev/vda1", "rw"},
	}
	if !slices.Equal(mounts, want) {
		t.Errorf("got %+v, want %+v", mounts, want)
	}
	for _, line := range []string{"", "1 2 3:4", "1 2 3:4 / / rw - ext4", "1 2 x / / rw - ext4 a rw"} {
		if mount, err := ParseMount(line); err == nil {
			t.Errorf("%q gave %+v", line, mount)
		}
	}
}

func FuzzMount(f *testing.F) {
	f.Add(`36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 - ext4 /dev/root rw,errors=continue`)
	f.Add(`1 1 1:1 \9 \ \12 - a b c`)
	f.Fuzz(func(_ *testing.T, line string) { _, _ = ParseMount(line) })
}
