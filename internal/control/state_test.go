package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/control/law"
	"github.com/daybook-project/daybook/internal/filetest"
)

func sampleState() *State {
	return &State{Version: StateVersion, BootID: bootID(), Device: "loop0", Dev: "7:0", WeightFile: "blkio.bfq.weight",
		Scheduler: "bfq", Tunables: map[string]string{"low_latency": "1"},
		Cgroups: []CgroupState{
			{Cgroup: "/a", ID: 11, Weight: Setting{Default: 100}},
			{Cgroup: "/b/c", ID: 12, Weight: Setting{Default: 100, Device: 300}, WriteBytesPerSecond: 1 << 20},
		}}
}

func TestStateIsReadBackAsWritten(t *testing.T) {
	dir := t.TempDir()
	state := sampleState()
	if err := state.Save(dir); err != nil {
		t.Fatal(err)
	}
	back, err := LoadState(dir, "loop0")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(state, back) {
		t.Errorf("wrote %+v, read %+v", state, back)
	}
	if devices, err := StateDevices(dir); err != nil || len(devices) != 1 || devices[0] != "loop0" {
		t.Errorf("devices %v, %v", devices, err)
	}
	if err := back.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := back.Remove(dir); err != nil {
		t.Errorf("removing twice: %v", err)
	}
	if _, err := LoadState(dir, "loop0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Remove: %v", err)
	}
}

// hostile are states that must be refused, made by edits of a valid one.
var hostile = map[string]struct{ old, new, want string }{
	"out of the tree":        {`"/b/c"`, `"/../../etc"`, "no path of a cgroup"},
	"dots inside":            {`"/b/c"`, `"/b/../c"`, "no path of a cgroup"},
	"relative":               {`"/b/c"`, `"b/c"`, "no path of a cgroup"},
	"the root":               {`"/b/c"`, `"/"`, "no path of a cgroup"},
	"line feed in the path":  {`"/b/c"`, `"/b\nc"`, "no path of a cgroup"},
	"NUL in the path":        {`"/b/c"`, `"/b\u0000c"`, "no path of a cgroup"},
	"one cgroup twice":       {`"/b/c"`, `"/a"`, "twice"},
	"weight 0":               {`"default": 100`, `"default": 0`, "no weight"},
	"huge weight":            {`"device": 300`, `"device": 4000000000`, "no weight"},
	"negative weight":        {`"device": 300`, `"device": -3`, ""},
	"fraction":               {`"device": 300`, `"device": 3.5`, ""},
	"weight as text":         {`"device": 300`, `"device": "300"`, ""},
	"another version":        {`"version": 1`, `"version": 0`, "version"},
	"a later version":        {`"version": 1`, `"version": 2`, "written by a newer Daybook: upgrade"},
	"another device":         {`"device": "loop0"`, `"device": "sda"`, `device "sda"`},
	"device out of sysfs":    {`"device": "loop0"`, `"device": "../loop0"`, "no name of a disk"},
	"an unknown key":         {`"scheduler"`, `"sheduler"`, "written by a newer Daybook: upgrade"},
	"an unknown tunable":     {`"low_latency"`, `"../scheduler"`, "tunable"},
	"a tunable's value":      {`"low_latency": "1"`, `"low_latency": "1\n0"`, "tunable"},
	"something behind it":    {"}\n", "}\n{}", "damaged"},
	"not JSON":               {"{", "<", ""},
	"cgroups is no list":     {`"cgroups": [`, `"cgroups": {`, ""},
	"dev is no number":       {`"dev": "7:0"`, `"dev": "7:0 900"`, "device number"},
	"scheduler is a command": {`"scheduler": "bfq"`, `"scheduler": "b;fq"`, "scheduler"},
}

func TestAHostileStateIsRefusedAsAWhole(t *testing.T) {
	for name, edit := range hostile {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := sampleState().Save(dir); err != nil {
				t.Fatal(err)
			}
			path := StatePath(dir, "loop0")
			text, _ := os.ReadFile(path)
			at := strings.LastIndex(string(text), edit.old)
			if at < 0 {
				t.Fatalf("no %q in %s", edit.old, text)
			}
			changed := string(text[:at]) + edit.new + string(text[at+len(edit.old):])
			if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
			host := newFakeHost("/a", "/b/c", "/etc", "/c")
			_, ok, err := Restore(dir, "", "loop0", "", func(*State) (Host, error) { return host.host(), nil }, discard)
			if err == nil || ok {
				t.Fatalf("taken: %s", changed)
			}
			if !strings.Contains(err.Error(), edit.want) || !strings.Contains(err.Error(), "nothing was changed") || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want %q", err, edit.want)
			}
			if len(host.log) != 0 {
				t.Errorf("wrote %v", host.log)
			}
			if now, _ := os.ReadFile(path); string(now) != changed {
				t.Error("the file was changed")
			}
		})
	}
}

func TestATruncatedStateIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := sampleState().Save(dir); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(StatePath(dir, "loop0"))
	whole := len(bytes.TrimSpace(text))
	for length := range whole {
		if _, err := parseState(text[:length]); err == nil {
			t.Fatalf("the first %d of %d bytes were taken", length, whole)
		}
	}
}

func TestAStateThatOthersCouldWriteIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := sampleState().Save(dir); err != nil {
		t.Fatal(err)
	}
	path := StatePath(dir, "loop0")
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadState(dir, "loop0"); err == nil || !strings.Contains(err.Error(), "others may write") {
		t.Errorf("mode 0666: %v", err)
	}
	os.Remove(path)
	if err := os.Symlink("/etc/passwd", path); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadState(dir, "loop0"); err == nil {
		t.Error("followed a symbolic link")
	}
	os.Remove(path)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadState(dir, "loop0"); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a directory: %v", err)
	}
}

func TestAStateThatIsNotTheUsersOwnFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := sampleState().Save(dir); err != nil {
		t.Fatal(err)
	}
	filetest.EachRefused(t, StatePath(dir, "loop0"), maxStateBytes, func(way, reason string) {
		_, err := LoadState(dir, "loop0")
		if err == nil || !strings.Contains(err.Error(), "not to be trusted, nothing was changed: "+reason) || !strings.Contains(err.Error(), "move the file away") {
			t.Errorf("%s: %v; want %q", way, err, reason)
		}
	})
	if _, err := LoadState(dir, "loop0"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestWeightsBeyondTheFilesRangeAreNotRestored(t *testing.T) {
	dir := t.TempDir()
	state := sampleState()
	state.Cgroups[1].Weight.Device = 5000 // a weight for io.weight, not for BFQ
	state.Cgroups = append(state.Cgroups, CgroupState{Cgroup: "/c", ID: 13, Weight: Setting{Default: 5000}})
	if err := state.Save(dir); err != nil {
		t.Fatal(err)
	}
	host := newFakeHost("/a", "/b/c", "/c")
	for n := range state.Cgroups {
		state.Cgroups[n].ID = host.ids[state.Cgroups[n].Cgroup]
	}
	if err := state.Save(dir); err != nil {
		t.Fatal(err)
	}
	outcome, _, err := Restore(dir, "", "loop0", "", func(*State) (Host, error) { return host.host(), nil }, discard)
	if err == nil || !reflect.DeepEqual(outcome.Failed, []string{"/b/c", "/c"}) || !reflect.DeepEqual(host.log, []string{"/a restore 100", "/b/c limit 1048576", "low_latency 1"}) {
		t.Errorf("outcome %+v, error %v, wrote %v", outcome, err, host.log)
	}
	// The rest is restored, and what could not be restored is kept.
	left, err := LoadState(dir, "loop0")
	if err != nil || len(left.Cgroups) != 2 || left.Cgroups[0].Cgroup != "/b/c" {
		t.Errorf("left %+v, %v", left, err)
	}
}

func TestAStateOfAnEarlierBootIsOnlyRemoved(t *testing.T) {
	dir := t.TempDir()
	state := sampleState()
	state.BootID = "another"
	if err := state.Save(dir); err != nil {
		t.Fatal(err)
	}
	host := newFakeHost("/a", "/b/c")
	host.ids["/a"] = 11
	outcome, ok, err := Restore(dir, "", "loop0", "", func(*State) (Host, error) { return host.host(), nil }, discard)
	if err != nil || !ok || !outcome.Rebooted || len(host.log) != 0 {
		t.Errorf("%+v %v %v, wrote %v", outcome, ok, err, host.log)
	}
	if _, err := LoadState(dir, "loop0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state is still there: %v", err)
	}
}

// diskDir is a directory like a disk's in sysfs.
func diskDir(t *testing.T, seq string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "diskseq"), []byte(seq+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestTwoLocksExcludeEachOther(t *testing.T) {
	dir, deviceDir := t.TempDir(), diskDir(t, "test-1")
	lock, err := AcquireLock(dir, "loop0", deviceDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{dir, t.TempDir()} { // the second: by the device
		var busy *BusyError
		_, err := AcquireLock(other, "loop0", deviceDir)
		if !errors.As(err, &busy) || busy.PID != os.Getpid() {
			t.Errorf("a second lock: %v (%+v), want pid %d", err, busy, os.Getpid())
		}
	}
	if _, err := AcquireLock(dir, "loop1", ""); err != nil {
		t.Errorf("another device: %v", err)
	}
	// Another disk has the name by now, and the first one is still controlled.
	next, err := AcquireLock(t.TempDir(), "loop0", diskDir(t, "test-2"))
	if err != nil {
		t.Errorf("another disk of that name: %v", err)
	}
	next.Release()
	lock.Release()
	again, err := AcquireLock(dir, "loop0", deviceDir)
	if err != nil {
		t.Errorf("after Release: %v", err)
	} else {
		again.Release()
	}
	if _, err := AcquireLock(dir, "../x", ""); err == nil {
		t.Error("locked ../x")
	}
}

func TestNotedStateDirectoriesAreFound(t *testing.T) {
	run := t.TempDir()
	for device, dir := range map[string]string{"loop0": "/srv/a", "loop1": "/srv/a", "sda": "/var/b"} {
		if err := rememberStateDir(run, device, dir); err != nil {
			t.Fatal(err)
		}
	}
	os.WriteFile(filepath.Join(run, "control-sdb"), []byte("relative\n"), 0o600)
	os.WriteFile(filepath.Join(run, "control-sdc"), []byte("/cut/sho"), 0o600)
	dirs, err := RememberedStateDirs(run)
	if err != nil || !reflect.DeepEqual(dirs, []string{"/srv/a", "/var/b"}) {
		t.Errorf("%v, %v", dirs, err)
	}
	if dirs, err := RememberedStateDirs(filepath.Join(run, "none")); err != nil || dirs != nil {
		t.Errorf("without the directory: %v, %v", dirs, err)
	}
}

// Whoever could write such a record would choose what root restores.
func TestARecordOfAStateDirectoryThatOthersCouldWriteIsLeftOut(t *testing.T) {
	run := t.TempDir()
	for device, dir := range map[string]string{"loop0": "/srv/a", "loop1": "/srv/b"} {
		if err := rememberStateDir(run, device, dir); err != nil {
			t.Fatal(err)
		}
	}
	filetest.EachRefused(t, filepath.Join(run, "control-loop0"), maxPathBytes, func(way, _ string) {
		if dir, ok := rememberedStateDir(run, "loop0"); ok {
			t.Errorf("%s: %s was taken", way, dir)
		}
		if dirs, err := RememberedStateDirs(run); err != nil || !reflect.DeepEqual(dirs, []string{"/srv/b"}) {
			t.Errorf("%s: %v, %v; want the other one", way, dirs, err)
		}
	})
	if dir, ok := rememberedStateDir(run, "loop0"); !ok || dir != "/srv/a" {
		t.Errorf("afterwards: %q, %v", dir, ok)
	}
}

// beginAndKill begins a run on the first disk, and leaves what a kill leaves.
func beginAndKill(t *testing.T, options Options) {
	t.Helper()
	c, err := start(options, options.Disks[0])
	if err == nil {
		err = c.begin()
	}
	if err != nil {
		t.Fatal(err)
	}
	c.lock.Release() // as a kill does
}

// A record that stayed would send the next restore to a directory without a state.
func TestARestoreRemovesTheRecordOfItsStateDirectory(t *testing.T) {
	for _, by := range []string{"the same path", "another path", "none"} {
		f, run := newFakeHost("/ca"), t.TempDir()
		options := fakeOptions(t, f, "")
		options.RunDir = run
		beginAndKill(t, options)
		recorded := options.Config.StateDir
		dir := recorded
		switch by {
		case "another path":
			dir = filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(options.Config.StateDir, dir); err != nil {
				t.Fatal(err)
			}
		case "none": // the record is of a later run with another directory
			recorded = t.TempDir()
			if err := rememberStateDir(run, "loop0", recorded); err != nil {
				t.Fatal(err)
			}
		}
		if _, ok, err := Restore(dir, run, "loop0", "", func(*State) (Host, error) { return f.host(), nil }, discard); !ok || err != nil {
			t.Fatal(ok, err)
		}
		dirs, err := RememberedStateDirs(run)
		if err != nil || (by == "none") != reflect.DeepEqual(dirs, []string{recorded}) || by != "none" && len(dirs) > 0 {
			t.Errorf("%s: recorded: %v, %v", by, dirs, err)
		}
	}
}

// Otherwise the weights that the killed run wrote would be the original ones of the next run.
func TestARunWithAnotherStateDirectoryRestoresWhatAKilledOneLeft(t *testing.T) {
	f, run := newFakeHost("/ca", "/cb"), t.TempDir()
	options := fakeOptions(t, f, "containers: [{match: /ca, weight: 500}]")
	options.RunDir = run
	beginAndKill(t, options)
	if f.weight("/ca") == (Setting{Default: 100}) {
		t.Fatal("the first run changed nothing")
	}
	killed := options.Config.StateDir
	next := fakeOptions(t, f, "containers: [{match: /cb, weight: 300}]", journalling)
	next.RunDir = run
	if err := Run(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	for _, cgroup := range []string{"/ca", "/cb"} {
		if got := f.weight(cgroup); got != (Setting{Default: 100}) {
			t.Errorf("in the end %s has %+v", cgroup, got)
		}
	}
	if left, err := StateDevices(killed); err != nil || len(left) > 0 {
		t.Errorf("the first run's state: %v, %v", left, err)
	}
	if dirs, err := RememberedStateDirs(run); err != nil || len(dirs) > 0 {
		t.Errorf("recorded: %v, %v", dirs, err)
	}
}

func FuzzState(f *testing.F) {
	good, _ := json.Marshal(sampleState())
	f.Add(good)
	for _, edit := range hostile {
		f.Add([]byte(strings.Replace(string(good), edit.old, edit.new, 1)))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		state, err := parseState(text)
		if err != nil {
			return
		}
		for _, c := range state.Cgroups {
			if !strings.HasPrefix(c.Cgroup, "/") || strings.Contains(c.Cgroup+"/", "/../") || c.Weight.Effective() < 1 || c.Weight.Effective() > law.MaxWeight {
				t.Fatalf("%q gave %+v", text, c)
			}
		}
		if strings.ContainsAny(state.Device, "/\x00") || state.Device == ".." {
			t.Fatalf("%q gave device %q", text, state.Device)
		}
	})
}
