package volume

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/volume/internal/backing"
	"github.com/daybook-project/daybook/volume/internal/region"
)

// victimVariable makes the test binary a program that works on a pool until it
// is killed, or kills itself; its value is an order as JSON.
const victimVariable = "DAYBOOK_VOLUME_TEST_VICTIM"

// waiting is what a victim says at the step at which it waits.
const waiting = "waiting"

// order is what a victim does.
type order struct {
	Pool, Name, Target string
	// MakePool makes the pool if it is missing.
	MakePool bool
	// Device is for a volume that is to be on one: in the random sequence the
	// last.
	Device string
	// JournalDevice is for a volume whose journal is on a device.
	JournalDevice string
	// VolumeGroup and ThinPool are for a volume on LVM.
	VolumeGroup, ThinPool string
	// JournalMemory is for a volume whose journal is in memory.
	JournalMemory *MemoryOptions
	FileSystem    FileSystem
	// Operation is one of operations, or "random".
	Operation string
	Attach    AttachOptions
	Size      uint64
	Provision Provision
	Mode      os.FileMode
	// Stream is the file with the stream that is received.
	Stream string
	// KillAt is the step, counted from 0, at which the victim kills itself;
	// below 0 it does not.
	KillAt int
	// WaitAt is the step at which the victim writes "waiting" to its standard
	// output and waits for its end; "" is none.
	WaitAt string
	// Enter are cgroups, as directories, that the victim moves into first,
	// where it may.
	Enter []string
	// Seed and Names are those of the random sequence.
	Seed  uint64
	Names []string
	// Targets is the directory of its mount points.
	Targets string
}

// operations are what a victim can do once.
var operations = map[string]func(context.Context, *Pool, order) error{
	"create": func(ctx context.Context, p *Pool, o order) error {
		_, err := p.Create(ctx, o.Name, CreateOptions{SizeBytes: o.Size, Provision: o.Provision, Device: o.Device, VolumeGroup: o.VolumeGroup, ThinPool: o.ThinPool, Mode: o.Mode, JournalDevice: o.JournalDevice, JournalMemory: o.JournalMemory, FileSystem: o.FileSystem})
		return err
	},
	"attach": func(ctx context.Context, p *Pool, o order) error {
		_, err := p.Attach(ctx, o.Name, o.Attach)
		return err
	},
	"detach":             func(ctx context.Context, p *Pool, o order) error { return p.Detach(ctx, o.Name) },
	"detach until start": func(ctx context.Context, p *Pool, o order) error { return p.DetachUntilStart(ctx, o.Name) },
	"attach persistent": func(ctx context.Context, p *Pool, o order) error {
		_, err := p.AttachPersistent(ctx, o.Name)
		return err
	},
	"is elsewhere": func(_ context.Context, p *Pool, o order) error {
		record, err := p.files.Read(o.Name)
		if err != nil {
			return err
		}
		// At once, unlike Detach.
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		devices, err := p.blocks(record).Opened(backing.Loops)
		if err != nil {
			return err
		}
		return awaitAlone(ctx, devices)
	},
	"is well, as listed": func(_ context.Context, p *Pool, _ order) error {
		all, err := p.Overview()
		_, lacking := os.Readlink(blockdev.RootOfInit) // without it there are no figures
		if err == nil && (len(all) != 1 || all[0].Mountpoint == "" || all[0].UsedBytes == 0 && lacking == nil || all[0].Problem != "") {
			err = fmt.Errorf("%+v", all)
		}
		return err
	},
	"delete": func(ctx context.Context, p *Pool, o order) error { return p.Delete(ctx, o.Name, DeleteOptions{}) },
	"repair": func(ctx context.Context, p *Pool, _ order) error {
		_, err := p.Repair(ctx)
		return err
	},
	"no slices": func(context.Context, *Pool, order) error {
		table, err := region.List("/dev/pmem0", "")
		if err == nil && len(table.Slices) > 0 {
			err = fmt.Errorf("slices are left: %+v", table.Slices)
		}
		return err
	},
	"check": func(ctx context.Context, p *Pool, o order) error {
		_, err := p.Check(ctx, o.Name, CheckOptions{Repair: true})
		return err
	},
	"snapshot": func(ctx context.Context, p *Pool, o order) error {
		_, err := p.Snapshot(ctx, o.Name, "snap", SnapshotOptions{MaxFreeze: 10 * time.Minute})
		return err
	},
	"delete snapshot": func(ctx context.Context, p *Pool, o order) error { return p.DeleteSnapshot(ctx, o.Name, "snap") },
	"resize": func(ctx context.Context, p *Pool, o order) error {
		_, err := p.Resize(ctx, o.Name, o.Size, ResizeOptions{})
		return err
	},
	"clone": func(ctx context.Context, p *Pool, o order) error {
		_, err := p.Clone(ctx, o.Name, "", o.Name+"-clone", CloneOptions{MaxFreeze: 10 * time.Minute, JournalMemory: o.JournalMemory})
		return err
	},
	"receive": func(ctx context.Context, p *Pool, o order) error {
		in, err := os.Open(o.Stream)
		if err != nil {
			return err
		}
		defer func() { _ = in.Close() }()
		_, err = p.Receive(ctx, o.Name, in, ReceiveOptions{})
		return err
	},
	"move journal": func(ctx context.Context, p *Pool, o order) error {
		_, err := p.MoveJournal(ctx, o.Name, o.JournalMemory)
		return err
	},
}

func beVictim(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	for _, cgroup := range o.Enter {
		_ = os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte("0"), 0) // a cpuset without processors refuses
	}
	ctx := context.Background()
	p, err := Open(ctx, o.Pool, PoolOptions{Create: o.MakePool})
	if err != nil {
		return err
	}
	if o.Operation == "random" {
		return live(ctx, p, o)
	}
	steps := 0
	p.engine.Stop = func(step string) {
		if steps == o.KillAt {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
		if step == o.WaitAt {
			fmt.Println(waiting)
			time.Sleep(time.Hour)
		}
		steps++
	}
	return operations[o.Operation](ctx, p, o)
}

// victim makes the command of a victim.
func (r *rig) victim(o order) *exec.Cmd {
	r.t.Helper()
	o.Pool = r.pool.dir
	text, err := json.Marshal(o)
	if err != nil {
		r.t.Fatal(err)
	}
	command := exec.Command("/proc/self/exe")
	command.Env = append(os.Environ(), victimVariable+"="+string(text))
	return command
}

// killed runs a victim and says whether it was killed, rather than done.
func (r *rig) killed(o order) bool {
	r.t.Helper()
	output, err := r.victim(o).CombinedOutput()
	if err == nil {
		return false
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(interface{ Signaled() bool }); ok && status.Signaled() {
			return true
		}
	}
	r.t.Fatalf("the victim failed: %v: %s", err, output)
	return false
}

// content is what a file of that name holds in every test.
func content(name string) []byte {
	sum := sha256.Sum256([]byte(name))
	random := rand.NewChaCha8(sum)
	text := make([]byte, 1+int(sum[0])*256)
	_, _ = random.Read(text) // never fails
	return text
}

// writeSynced writes a file such that it is on disk.
func writeSynced(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content(filepath.Base(path)))
	err = errors.Join(err, file.Sync(), file.Close())
	if err != nil {
		return err
	}
	return atomicfile.SyncDirectory(filepath.Dir(path))
}

// checkContent says whether a file is as writeSynced wrote it.
func checkContent(path string) error {
	text, err := os.ReadFile(path)
	if err == nil && string(text) != string(content(filepath.Base(path))) {
		err = fmt.Errorf("%s: %d bytes, not those that were synced", path, len(text))
	}
	return err
}

// The sizes of the random sequence's volumes, and how many files and snapshots
// each has at most.
var randomSizes = []uint64{16 << 20, 24 << 20, 32 << 20}

const (
	maxFiles     = 12
	maxSnapshots = 2
)

// live does random things to volumes for ever, and tells its parent of each,
// before it begins and when it is done: a line "WHEN VOLUME OPERATION
// ARGUMENT". Two workers have half of the volumes each.
func live(ctx context.Context, p *Pool, o order) error {
	out := os.NewFile(3, "acknowledgements")
	errs := make(chan error)
	var told sync.Mutex
	tell := func(when, name, operation, argument string) {
		told.Lock()
		defer told.Unlock()
		_, _ = fmt.Fprintf(out, "%s %s %s %s\n", when, name, operation, argument)
	}
	tell("ready", "-", "-", "-")
	half := len(o.Names) / 2
	for i, names := range [][]string{o.Names[:half], o.Names[half:]} {
		go func() {
			w := worker{pool: p, device: o.Device, onDevice: o.Names[len(o.Names)-1], targets: o.Targets, random: rand.New(rand.NewPCG(o.Seed, uint64(i))), tell: tell}
			for {
				if err := w.step(ctx, names[w.random.IntN(len(names))]); err != nil {
					errs <- err
				}
			}
		}()
	}
	err := <-errs
	tell("error", "-", "-", strings.ReplaceAll(err.Error(), "\n", "; "))
	return err
}

// canGrowMounted: ext4 asks for CAP_SYS_RESOURCE, which a container's root may
// lack.
func canGrowMounted() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

type worker struct {
	pool *Pool
	// onDevice is the volume that is on the device.
	device, onDevice string
	targets          string
	random           *rand.Rand
	tell             func(when, name, operation, argument string)
}

// step does one thing to a volume.
func (w *worker) step(ctx context.Context, name string) error {
	status, err := w.pool.Inspect(ctx, name)
	if errors.Is(err, ErrNotFound) && name == w.onDevice {
		size := slices.Max(randomSizes)
		return w.do(name, "create", fmt.Sprint(size), func() error {
			_, err := w.pool.Create(ctx, name, CreateOptions{Device: w.device})
			return err
		})
	}
	if errors.Is(err, ErrNotFound) {
		provision := []Provision{Thin, Full}[w.random.IntN(2)]
		size := randomSizes[w.random.IntN(len(randomSizes))]
		return w.do(name, "create", fmt.Sprint(size), func() error {
			_, err := w.pool.Create(ctx, name, CreateOptions{SizeBytes: size, Provision: provision})
			return err
		})
	}
	if err != nil {
		return err
	}
	chance := w.random.IntN(100)
	attached := status.Attachment != nil
	switch {
	case chance < 12:
		return w.resize(ctx, status)
	case chance < 20 && status.Device == "":
		return w.snapshot(ctx, status)
	case attached && chance < 85:
		return w.write(status)
	case attached:
		return w.do(name, "detach", "-", func() error { return w.pool.Detach(ctx, name) })
	case chance < 85:
		return w.do(name, "attach", "-", func() error {
			_, err := w.pool.Attach(ctx, name, AttachOptions{Target: filepath.Join(w.targets, name)})
			return err
		})
	}
	return w.do(name, "delete", "-", func() error { return w.pool.Delete(ctx, name, DeleteOptions{}) })
}

func (w *worker) do(name, operation, argument string, do func() error) error {
	w.tell("begin", name, operation, argument)
	if err := do(); err != nil {
		return err
	}
	w.tell("done", name, operation, argument)
	return nil
}

// write writes a file, or removes one if there are many.
func (w *worker) write(status Status) error {
	entries, err := os.ReadDir(status.Mountpoint)
	if err != nil {
		return err
	}
	var files []string
	for _, entry := range entries {
		if entry.Type().IsRegular() {
			files = append(files, entry.Name())
		}
	}
	if len(files) >= maxFiles {
		file := files[w.random.IntN(len(files))]
		return w.do(status.Name, "remove", file, func() error { return os.Remove(filepath.Join(status.Mountpoint, file)) })
	}
	file := fmt.Sprintf("f%d", w.random.Uint64())
	return w.do(status.Name, "write", file, func() error { return writeSynced(filepath.Join(status.Mountpoint, file)) })
}

func (w *worker) snapshot(ctx context.Context, status Status) error {
	if len(status.Snapshots) >= maxSnapshots {
		snapshot := status.Snapshots[0]
		return w.do(status.Name, "unsnapshot", snapshot, func() error { return w.pool.DeleteSnapshot(ctx, status.Name, snapshot) })
	}
	snapshot := fmt.Sprintf("s%d", w.random.Uint64())
	return w.do(status.Name, "snapshot", snapshot, func() error {
		_, err := w.pool.Snapshot(ctx, status.Name, snapshot, SnapshotOptions{MaxFreeze: 10 * time.Minute})
		return err
	})
}

func (w *worker) resize(ctx context.Context, status Status) error {
	size := randomSizes[w.random.IntN(len(randomSizes))]
	if size == status.SizeBytes || status.Attachment != nil && (size < status.SizeBytes || !canGrowMounted()) {
		return nil
	}
	return w.do(status.Name, "resize", fmt.Sprint(size), func() error {
		_, err := w.pool.Resize(ctx, status.Name, size, ResizeOptions{})
		if errors.Is(err, ErrInvalid) && size < status.SizeBytes {
			// Its data need more: then it is as it was.
			w.tell("undone", status.Name, "resize", fmt.Sprint(status.SizeBytes))
			return nil
		}
		return err
	})
}

// events are what a victim told, in its order.
type event struct{ when, name, operation, argument string }

// tale reads what a victim tells on its third descriptor.
func tale(t testing.TB, command *exec.Cmd) <-chan event {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	command.ExtraFiles = []*os.File{write}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	events := make(chan event, 1000)
	go func() {
		defer close(events)
		defer func() { _ = read.Close() }()
		for lines := bufio.NewScanner(read); lines.Scan(); {
			fields := strings.SplitN(lines.Text(), " ", 4)
			if len(fields) == 4 {
				events <- event{fields[0], fields[1], fields[2], fields[3]}
			}
		}
	}()
	return events
}

// exists says whether a path is there.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
