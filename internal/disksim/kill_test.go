package disksim

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
)

func TestKillingTheOwnerEndsItsDiskAndUnmountsIt(t *testing.T) {
	r := newRig(t)
	owner, out := r.owner("bound", "bound")
	point := r.mount(device(t, out))
	if err := os.WriteFile(filepath.Join(point, "dirty"), make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	kill(owner)
	awaittest.Until(t, awaittest.Patience, "the server cleans up", func() bool { return len(r.left()) == 0 })
	if mounted(t, point) {
		t.Errorf("%s is still mounted", point)
	}
}

func TestAKeptDiskSurvivesItsCreator(t *testing.T) {
	r := newRig(t)
	owner, out := r.owner("kept", "kept")
	path := device(t, out)
	point := r.mount(path)
	kill(owner)
	// A disk that does not survive its creator would be gone after that time.
	time.Sleep(500 * time.Millisecond)
	if !mounted(t, point) {
		t.Errorf("%s is not mounted any more", point)
	}
	if recovered, err := Recover(context.Background(), r.dir); err != nil || len(recovered) != 0 {
		t.Errorf("recovered %+v, %v; want nothing", recovered, err)
	}
	if err := os.WriteFile(filepath.Join(point, "file"), []byte("data"), 0o600); err != nil {
		t.Error(err)
	}
	if err := unix.Unmount(point, 0); err != nil {
		t.Fatal(err)
	}
	if err := Delete(context.Background(), r.dir, testPrefix+"kept"); err != nil {
		t.Error(err)
	}
	r.wantNothingLeft()
}

// A process that still uses the disk of a dead owner gets errors after a while,
// and keeps only the loop device until it closes it.
func TestUsersOfADeadOwnersDiskGetErrorsAndDoNotHang(t *testing.T) {
	r := newRig(t)
	owner, out := r.owner("used", "bound")
	point := r.mount(device(t, out))
	file, err := os.Create(filepath.Join(point, "open"))
	if err != nil {
		t.Fatal(err)
	}
	kill(owner)
	awaittest.Until(t, awaittest.Patience, "the server ends", func() bool { return len(r.processes()) == 0 })
	if _, err := file.Write([]byte("x")); err == nil {
		if err := file.Sync(); err == nil {
			t.Error("data were written to a disk that is gone")
		}
	}
	_ = file.Close()
	if mounted(t, point) {
		t.Errorf("%s is still mounted", point)
	}
	if _, err := Recover(context.Background(), r.dir); err != nil {
		t.Error(err)
	}
	awaittest.Until(t, awaittest.Patience, "the loop device is free", func() bool { return len(r.loops()) == 0 })
}

func TestAfterKillingTheServerUsersGetErrorsAndRecoverCleansUp(t *testing.T) {
	r := newRig(t)
	disk := r.create(Config{Name: "killed", Scheduler: "mq-deadline"})
	point := r.mount(disk.DevicePath)
	file, err := os.Create(filepath.Join(point, "open"))
	if err != nil {
		t.Fatal(err)
	}
	if err := signalProcess(disk.server.pid, disk.server.start, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-disk.server.exited
	if _, err := file.Write(make([]byte, 1<<20)); err == nil {
		if err := file.Sync(); err == nil {
			t.Error("data were written to a disk whose server is dead")
		}
	}
	_ = file.Close()
	recovered, err := Recover(context.Background(), r.dir)
	if scheduler, err := disk.Device.Scheduler(); err == nil && disk.record.PreviousScheduler != "" && scheduler.Current != disk.record.PreviousScheduler {
		t.Errorf("scheduler is %s, was %s before the disk", scheduler.Current, disk.record.PreviousScheduler)
	}
	if err != nil || len(recovered) != 1 || recovered[0].Name != disk.Name {
		t.Errorf("recovered %+v, %v", recovered, err)
	}
	if mounted(t, point) {
		t.Errorf("%s is still mounted", point)
	}
	r.wantNothingLeft()
	// The name is free again; creating a disk would also have recovered it.
	disk = r.create(Config{Name: "killed"})
	if err := signalProcess(disk.server.pid, disk.server.start, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-disk.server.exited
	disk = r.create(Config{Name: "killed"})
	if err := disk.Delete(context.Background()); err != nil {
		t.Error(err)
	}
}

// The server is killed while it cleans up after its owner.
func TestKillingOwnerAndServerLeavesNothingAfterRecover(t *testing.T) {
	r := newRig(t)
	for i := range 5 {
		owner, out := r.owner("both", "bound")
		point := r.mount(device(t, out))
		if err := os.WriteFile(filepath.Join(point, "dirty"), make([]byte, 8<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		records, err := List(r.dir)
		if err != nil || len(records) != 1 {
			t.Fatalf("records %+v, %v", records, err)
		}
		kill(owner)
		time.Sleep(time.Duration(i) * 5 * time.Millisecond)
		if err := signalProcess(records[0].ServerPID, records[0].ServerStart, unix.SIGKILL); err != nil && err != os.ErrProcessDone {
			t.Fatal(err)
		}
		awaittest.Until(t, awaittest.Patience, "all processes end", func() bool { return len(r.processes()) == 0 })
		// A dying process loses its command line shortly before it releases its
		// lock; until then Recover assumes that the disk is alive.
		awaittest.Until(t, awaittest.Patience, "nothing is left", func() bool {
			if _, err := Recover(context.Background(), r.dir); err != nil {
				t.Fatal(err)
			}
			return !mounted(t, point) && len(r.left()) == 0
		})
	}
}

func TestKillingTheCreatorAtAnyMomentLeavesNothingAfterRecover(t *testing.T) {
	r := newRig(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	unfinished := 0
	for i := range 20 {
		binding := []string{"bound", "kept"}[i%2]
		owner, _ := r.owner("moment", binding)
		time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
		kill(owner)
		if i%4 >= 2 { // its server at the same time
			for _, pid := range r.processes() {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		finished := func() bool {
			records, err := List(r.dir)
			return err == nil && len(records) == 1 && records[0].Device != "" && !records[0].OwnerBound
		}
		awaittest.Until(t, awaittest.Patience, "the server ends, or serves a finished disk", func() bool {
			return len(r.processes()) == 0 || finished()
		})
		if finished() {
			// The server may be about to end: its creator was killed just
			// before the last message.
			if err := Delete(context.Background(), r.dir, testPrefix+"moment"); err != nil && !errors.Is(err, ErrNotFound) {
				t.Fatal(err)
			}
		} else {
			unfinished++
		}
		// A server that had not fully started ends only after this recovery.
		awaittest.Until(t, awaittest.Patience, "nothing is left", func() bool {
			if _, err := Recover(context.Background(), r.dir); err != nil {
				t.Fatal(err)
			}
			return len(r.left()) == 0
		})
	}
	t.Logf("%d of 20 disks were not finished", unfinished)
}

// A server whose creator died dismantles its disk while another process deletes
// it.
func TestTwoProcessesMayTakeADiskApart(t *testing.T) {
	r := newRig(t)
	for range 10 {
		disk := r.create(Config{Name: "twice", Scheduler: "mq-deadline"})
		found := disk.record.PreviousScheduler
		t.Cleanup(func() { _ = disk.Device.RenewScheduler(found) })
		// To restore it takes two writes, with "none" between them.
		record := disk.record
		record.PreviousScheduler = record.Scheduler
		if err := disk.home.writeRecord(record); err != nil {
			t.Fatal(err)
		}
		apart := make(chan error, 1)
		go func() { apart <- disk.home.dismantle(context.Background(), disk.Name) }()
		if err := disk.home.detach(context.Background(), disk.Name, record); err != nil {
			t.Error(err)
		}
		if err := <-apart; err != nil {
			t.Error(err)
		}
		if err := disk.Delete(context.Background()); err != nil {
			t.Error(err)
		}
		r.wantNothingLeft()
	}
}

func TestCancellingCreateAtAnyMomentLeavesNothing(t *testing.T) {
	r := newRig(t)
	for i := range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*2*time.Millisecond)
		disk, err := Create(ctx, Config{Name: testPrefix + "cancelled", StateDir: r.dir, SizeBytes: 64 << 20, OwnerBound: true})
		cancel()
		if err == nil {
			if err := disk.Delete(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		r.wantNothingLeft()
	}
}

// A recovery that was killed itself may already have unmounted the FUSE file
// system, and with it the path by which the loop device is found.
func TestRecoverFindsTheLoopDeviceOfADiskThatIsHalfGone(t *testing.T) {
	r := newRig(t)
	disk := r.create(Config{Name: "half"})
	if err := signalProcess(disk.server.pid, disk.server.start, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-disk.server.exited
	if err := unix.Unmount(disk.record.MountPoint, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if len(r.loops()) != 1 {
		t.Fatalf("loop devices %+v, want the orphan", r.loops())
	}
	if _, err := Recover(context.Background(), r.dir); err != nil {
		t.Error(err)
	}
	awaittest.Until(t, awaittest.Patience, "the loop device is free", func() bool { return len(r.loops()) == 0 })
}
