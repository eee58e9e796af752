package dockervolume

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/volume"
)

// operator attaches and detaches by hand.
func (r *rig) operator() *volume.Pool {
	r.t.Helper()
	pool, err := volume.Open(r.t.Context(), r.home+"/pool", volume.PoolOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return pool
}

// move attaches a volume elsewhere, as an operator does, and returns the mount point.
func (r *rig) move(name string) string {
	r.t.Helper()
	if err := r.operator().Detach(r.t.Context(), name); err != nil {
		r.t.Fatal(err)
	}
	status, err := r.operator().Attach(r.t.Context(), name, volume.AttachOptions{Target: filepath.Join(r.home, "by-hand-"+name)})
	if err != nil {
		r.t.Fatal(err)
	}
	return status.Mountpoint
}

// wantAt fails the test unless a volume is attached there; it then detaches it.
func (r *rig) wantAt(name, point string) {
	r.t.Helper()
	status, err := r.operator().Inspect(r.t.Context(), name)
	if err != nil || status.Mountpoint != point {
		r.t.Errorf("volume %s is mounted at %q, %v; want %s", name, status.Mountpoint, err, point)
	}
	if err := r.operator().Detach(r.t.Context(), name); err != nil {
		r.t.Error(err)
	}
}

// The engine repeats or delays a call of a user whose mount the operator has replaced.
func TestPluginLeavesTheMountOfAnOperator(t *testing.T) {
	for _, c := range []struct {
		name           string
		stopped        bool
		call, refusing string
	}{
		{"an Unmount while the daemon runs", false, "VolumeDriver.Unmount", ""},
		{"an Unmount to the next daemon", true, "VolumeDriver.Unmount", ""},
		{"a Mount", false, "VolumeDriver.Mount", "attached at"},
		{"a Remove", false, "VolumeDriver.Remove", "in use"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.start()
			name := r.name("db")
			r.create(name, nil)
			r.mount(name, "one")
			if c.stopped {
				r.daemon.Stop()
			}
			point := r.move(name)
			if c.stopped {
				r.start()
			}
			if request := (object{"Name": name, "ID": "one"}); c.refusing == "" {
				r.call(c.call, request)
			} else {
				r.wantRefused(c.call, request, c.refusing)
			}
			if ids, err := openUsers(r.home+"/pool", slog.New(slog.DiscardHandler)); err != nil || len(ids.all()) != 0 {
				t.Errorf("users of %q are left, %v", ids.all(), err)
			}
			r.wantAt(name, point)
			r.mount(name, "two")
			r.wantMounted(name, true)
			r.unmount(name, "two")
			r.wantMounted(name, false)
		})
	}
}

// A user that went while the volume was busy does not end the operator's mount, either.
func TestBusyVolumeThatAnOperatorMovesIsNotDetachedLater(t *testing.T) {
	r := newRig(t)
	r.start()
	name := r.name("db")
	r.create(name, nil)
	inside, err := os.Create(filepath.Join(r.mount(name, "one"), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	r.unmount(name, "one") // it stays attached
	r.daemon.Kill()
	if err := inside.Close(); err != nil {
		t.Fatal(err)
	}
	point := r.move(name)
	r.start()
	r.Await("the daemon forgets the volume", r.daemon.Log, func() bool {
		u, err := openUsers(r.home+"/pool", slog.New(slog.DiscardHandler))
		return err == nil && len(u.all()) == 0
	})
	r.wantAt(name, point)
}

// A daemon with another target directory ends the mounts of the former one, and so does
// one that finds the users of a version that did not record where a volume is attached.
func TestDaemonDetachesFromWhereAnEarlierOneAttached(t *testing.T) {
	r := newRig(t)
	r.start()
	moved, old := r.name("moved"), r.name("old")
	for _, name := range []string{moved, old} {
		r.create(name, nil)
		r.mount(name, "one")
	}
	r.daemon.Stop()
	path := filepath.Join(r.home, "pool", usersFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var record map[string]any
	if err := json.Unmarshal(text, &record); err != nil {
		t.Fatal(err)
	}
	delete(record["targets"].(object), old)
	if text, err = json.Marshal(record); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.unmount(old, "one")
	r.wantMounted(old, false)
	r.daemon.Stop()

	command := r.command()
	command.Args[2] = r.home + "/elsewhere"
	r.daemon = r.Spawn(command)
	r.Await("the plugin answers", r.daemon.Log, func() bool {
		_, err := r.try("Plugin.Activate", nil)
		return err == nil
	})
	r.wantMounted(moved, true)
	// The mount of the first user serves a second one, too.
	if point := r.mount(moved, "two"); point != r.home+"/mnt/"+moved {
		t.Errorf("mounted for a second user at %q", point)
	}
	r.unmount(moved, "one")
	r.wantMounted(moved, true)
	r.unmount(moved, "two")
	r.wantMounted(moved, false)
	if point := r.mount(old, "two"); !strings.HasPrefix(point, r.home+"/elsewhere/") {
		t.Errorf("mounted at %q", point)
	}
	r.unmount(old, "two")
}
