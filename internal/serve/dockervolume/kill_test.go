package dockervolume

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybook-project/daybook/volume"
	"github.com/daybook-project/daybook/volume/records"
)

// Users that mount and unmount at the same time leave the volume attached
// exactly as long as one has it.
func TestManyUsersComeAndGoAtOnce(t *testing.T) {
	r := newRig(t)
	r.start()
	name := r.name("db")
	r.create(name, nil)
	const users, rounds = 6, 5
	var wait sync.WaitGroup
	for user := range users {
		wait.Go(func() {
			for round := range rounds {
				id := fmt.Sprintf("%d-%d", user, round)
				for _, call := range []string{"VolumeDriver.Mount", "VolumeDriver.Unmount"} {
					if _, err := r.try(call, object{"Name": name, "ID": id}); err != nil {
						t.Errorf("%s %s: %v", call, id, err)
					}
					if call == "VolumeDriver.Mount" && r.mountpoint(name) == "" {
						t.Errorf("user %s has a volume that is not mounted", id)
					}
				}
			}
		})
	}
	wait.Wait()
	r.wantMounted(name, false)
}

// An engine repeats a call that got no answer. Afterwards the volumes are as if
// the daemon had never been killed.
func TestDaemonMayBeKilledAtAnyMoment(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	r := newRig(t)
	r.start()
	names := []string{r.name("a"), r.name("b")}
	used := map[string][]string{}
	for _, name := range names {
		r.create(name, nil)
	}
	// call calls the plugin while the daemon is killed, and repeats the call
	// until it is answered.
	call := func(what string, request object) {
		t.Helper()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = r.try(what, request) // an answer, an error or a broken connection
		}()
		time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
		r.daemon.Kill()
		<-done
		r.start()
		r.call(what, request)
	}
	for round := range 20 {
		name := names[random.IntN(len(names))]
		if ids := used[name]; len(ids) == 0 || len(ids) < 3 && random.IntN(2) == 0 {
			id := fmt.Sprint(round)
			call("VolumeDriver.Mount", object{"Name": name, "ID": id})
			used[name] = append(ids, id)
		} else {
			call("VolumeDriver.Unmount", object{"Name": name, "ID": ids[0]})
			used[name] = ids[1:]
		}
		for _, name := range names {
			r.wantMounted(name, len(used[name]) > 0)
			details := r.call("VolumeDriver.Get", object{"Name": name})["Volume"].(object)["Status"].(object)
			if details["users"] != float64(len(used[name])) {
				t.Errorf("round %d: volume %s has %v users, want %d", round, name, details["users"], len(used[name]))
			}
		}
	}
	for _, name := range names {
		for _, id := range used[name] {
			r.unmount(name, id)
		}
		call("VolumeDriver.Remove", object{"Name": name})
	}
	// A killed creation leaves no partial volume.
	third := r.name("c")
	call("VolumeDriver.Create", object{"Name": third, "Opts": map[string]string{"provision": "full"}})
	r.mount(third, "1")
	r.unmount(third, "1")
	if got := r.call("VolumeDriver.List", object{})["Volumes"].([]any); len(got) != 1 {
		t.Errorf("volumes: %v", got)
	}
}

// A logical volume that LVM cannot remove now does not keep other volumes from
// their containers.
func TestDaemonServesWhileALogicalVolumeCannotBeRemoved(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.start()
	r.create(name, nil)
	r.daemon.Stop()
	record := volume.Record{
		Format: records.FormatLVM, Name: r.name("lost"), ID: records.NewID(), Created: time.Now().UTC(), SizeBytes: 32 << 20, Provision: volume.Full, SectorBytes: 512,
	}
	record.LVM = records.NewLogicalVolume("daybook-none", "", record.ID)
	text, err := record.Encode()
	if err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(r.home, "pool", "work", records.NewID())
	if err := os.Mkdir(work, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "volume.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	r.start()
	if log, err := os.ReadFile(r.daemon.Log); err != nil || !strings.Contains(string(log), work) {
		t.Errorf("the log does not name what is left: %s, %v", log, err)
	}
	if _, err := os.Stat(work); err != nil {
		t.Error(err)
	}
	if at := r.mount(name, "user"); at == "" {
		t.Error("not mounted")
	}
	r.unmount(name, "user")
	r.call("VolumeDriver.Remove", object{"Name": name})
	if err := os.RemoveAll(work); err != nil {
		t.Error(err)
	}
}
