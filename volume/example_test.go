package volume_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/daybook-project/daybook/volume"
)

// A database gets a volume on LVM, is attached at each boot, and is
// weighted against the others.
func Example() {
	ctx := context.Background()
	pool, err := volume.Open(ctx, "/var/lib/daybook/volumes", volume.PoolOptions{Create: true})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Create(ctx, "db1", volume.CreateOptions{SizeBytes: 20 << 30, VolumeGroup: "vg0", Weight: 700}); err != nil {
		log.Fatal(err)
	}
	status, err := pool.Attach(ctx, "db1", volume.AttachOptions{Target: "/srv/db1", Persist: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s is on %s; its jbd2 thread %d is in %s\n", status.Name, status.BlockDevice, status.JBD2PID, status.JournalCgroup)
}

// Callers distinguish errors by the variables of the package.
func ExamplePool_Attach() {
	ctx := context.Background()
	pool, err := volume.Registry{}.Find(ctx, "db1", volume.PoolOptions{})
	if err != nil {
		log.Fatal(err)
	}
	_, err = pool.Attach(ctx, "db1", volume.AttachOptions{Target: "/srv/db1"})
	switch {
	case errors.Is(err, volume.ErrBusy):
		fmt.Println("it is attached elsewhere, or another process works on it:", err)
	case errors.Is(err, volume.ErrUnsupported):
		fmt.Println("a newer Daybook wrote its record, or the host cannot do it:", err)
	case err != nil:
		log.Fatal(err)
	}
}

// A program that freezes file systems calls GuardIfAsked first in main.
func ExamplePool_Snapshot() {
	volume.GuardIfAsked()
	ctx := context.Background()
	pool, err := volume.Registry{}.Find(ctx, "db1", volume.PoolOptions{})
	if err != nil {
		log.Fatal(err)
	}
	snapshot, err := pool.Snapshot(ctx, "db1", "monday", volume.SnapshotOptions{MaxFreeze: 500 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("writers waited %.3f s at most\n", snapshot.FrozenSeconds)
	if err := pool.Send(ctx, "db1", "monday", "", os.Stdout, volume.SendOptions{}); err != nil {
		log.Fatal(err)
	}
}

// At boot, before the container engines.
func ExamplePool_AttachAllPersistent() {
	ctx := context.Background()
	pools, err := volume.Registry{}.Pools(ctx, volume.PoolOptions{})
	if err != nil {
		log.Print(err) // the others are opened
	}
	for _, pool := range pools {
		if _, err := pool.AttachAllPersistent(ctx, time.Now().Add(30*time.Second)); err != nil {
			log.Print(err)
		}
	}
}

// A daemon keeps the threads in their cgroups until its context ends.
func ExampleKeeper() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	pool, err := volume.Open(ctx, "/srv/pool", volume.PoolOptions{})
	if err != nil {
		log.Fatal(err)
	}
	keeper, err := pool.Keeper()
	if err != nil {
		log.Fatal(err)
	}
	if err := keeper.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// Options can be checked without a pool.
func ExampleCreateOptions_Check() {
	err := volume.CreateOptions{SizeBytes: 64 << 20, ThinPool: "tp"}.Check()
	fmt.Println(errors.Is(err, volume.ErrInvalid), err)
	err = volume.CreateOptions{SizeBytes: 64 << 20, VolumeGroup: "vg0", ThinPool: "tp"}.Check()
	fmt.Println(err)
	// Output:
	// true invalid: a thin pool is in a volume group, and none is given
	// <nil>
}

func ExampleParseMode() {
	mode, err := volume.ParseMode("2750")
	fmt.Println(mode, err)
	// Output: grwxr-x--- <nil>
}
