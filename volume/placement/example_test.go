package placement_test

import (
	"context"
	"encoding/json"
	"log"
	"log/slog"
	"os"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/operation"
	"github.com/daybook-project/daybook/volume/placement"
)

// alone are the neighbours of a thread that shares its cgroups with nobody.
type alone struct{}

func (alone) Others(string) ([]placement.Neighbour, error)     { return nil, nil }
func (alone) Lock(context.Context) (release func(), err error) { return func() {}, nil }

// The jbd2 thread of an ext4 that somebody else has mounted on /srv/db, which is no
// volume, is placed below /user/db, and released again. What is done is saved in a
// file before it is done.
func Example() {
	ctx := context.Background()
	disk, err := blockdev.Lookup("/srv/db")
	if err != nil {
		log.Fatal(err)
	}
	placed := placement.Placed{Placement: placement.Parent, Cgroup: "/user/db"}
	thread := placement.Thread{
		Name: "db", State: &placed, Weight: 700, Log: slog.Default(), Neighbours: alone{},
		Disk: func() (blockdev.Disk, error) { return disk, nil },
		PID: func() (int, error) {
			journal, err := ext4.JournalOf(disk.Dev)
			if err != nil {
				return 0, err
			}
			return ext4.JournalThread(journal.Name)
		},
	}
	var engine operation.Engine
	run := engine.On(func() error {
		text, err := json.Marshal(placed)
		if err != nil {
			return err
		}
		return os.WriteFile("/var/lib/adopted/db.json", text, 0o600)
	})
	if err := thread.Plan(); err != nil {
		log.Fatal(err)
	}
	if err := thread.Place(ctx, run); err != nil {
		log.Fatal(err)
	}
	// After the umount; or after a crash, with what the file says.
	if err := thread.Release(ctx, run); err != nil {
		log.Fatal(err)
	}
}
