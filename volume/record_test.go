package volume

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/ext4"
)

// sampleRecord is of an attached volume, with all there can be.
func sampleRecord() Record {
	return Record{
		Format: recordFormat, Name: "db", ID: "767aa504-c6dd-403c-b36f-59bc672629d5", SizeBytes: testBytes, Provision: Thin, SectorBytes: 512, Weight: 500,
		Labels: map[string]string{"app": "db"},
		Attachment: &Attachment{
			State: Attached, BootID: "boot", Target: "/mnt/db", MadeTarget: true, LoopDevice: "loop3", Placement: PlaceParent,
			Cgroup: "/user/db1", Journal: "/user/db1/journal-db", MadeCgroups: []string{"/user/db1/journal-db"}, EnabledIO: []string{"/user/db1"},
			WeightBefore: &WeightBefore{File: "io.bfq.weight", Disk: "7:0", Scheduler: "bfq", Default: 100},
		},
	}
}

func encoded(t testing.TB, record Record) []byte {
	t.Helper()
	text, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	record := sampleRecord()
	read, err := parseRecord("db", encoded(t, record))
	if err != nil || !reflect.DeepEqual(read, record) {
		t.Errorf("%+v, %v; want %+v", read, err, record)
	}
}

func TestADamagedRecordIsRefused(t *testing.T) {
	text := encoded(t, sampleRecord())
	for n := range len(text) {
		if _, err := parseRecord("db", text[:n]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut off after %d bytes: %v", n, err)
		}
	}
	for what, damage := range map[string]func(*Record){
		"another's":           func(r *Record) { r.Name = "other" },
		"a name with a slash": func(r *Record) { r.Name = "../db" },
		"an earlier format":   func(r *Record) { r.Format-- },
		"size 0":              func(r *Record) { r.SizeBytes = 0 },
		"size overflow":       func(r *Record) { r.SizeBytes = 1 << 63 },
		"provision":           func(r *Record) { r.Provision = "" },
		"sectors":             func(r *Record) { r.SectorBytes = 0 },
		"weight":              func(r *Record) { r.Weight = 5000 },
		"state":               func(r *Record) { r.Attachment.State = "" },
		"root as target":      func(r *Record) { r.Attachment.Target = "/" },
		"relative target":     func(r *Record) { r.Attachment.Target = "mnt" },
		"target with dots":    func(r *Record) { r.Attachment.Target = "/mnt/../etc" },
		"loop path":           func(r *Record) { r.Attachment.LoopDevice = "loop/../sda" },
		"no loop":             func(r *Record) { r.Attachment.LoopDevice = "sda" },
		"placement":           func(r *Record) { r.Attachment.Placement = "" },
		"root as parent":      func(r *Record) { r.Attachment.Cgroup = "/" },
		"another journal":     func(r *Record) { r.Attachment.Journal = "/docker" },
		"cgroup with dots":    func(r *Record) { r.Attachment.Cgroup = "/user/../docker" },
		"made another's":      func(r *Record) { r.Attachment.MadeCgroups = []string{"/docker"} },
		"made the root":       func(r *Record) { r.Attachment.MadeCgroups = []string{"/"} },
		"made a child":        func(r *Record) { r.Attachment.MadeCgroups = []string{"/user/db1/journal-db/x"} },
		"made in wrong order": func(r *Record) { r.Attachment.MadeCgroups = []string{"/user/db1/journal-db", "/user"} },
		"made twice":          func(r *Record) { r.Attachment.MadeCgroups = []string{"/user", "/user"} },
		"enabled another's":   func(r *Record) { r.Attachment.EnabledIO = []string{"/docker"} },
		"weight of what it made": func(r *Record) {
			r.Attachment.MadeCgroups = []string{"/user/db1", "/user/db1/journal-db"}
		},
		"cgroups without placement":    func(r *Record) { r.Attachment.Placement = PlaceNone },
		"made in a container's cgroup": func(r *Record) { r.Attachment.Placement = PlaceContainer },
	} {
		record := sampleRecord()
		damage(&record)
		if _, err := parseRecord("db", encoded(t, record)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, text := range []string{"", "null", "{}", "[]", "0", string(text) + "{}", "\x00\x01"} {
		if _, err := parseRecord("db", []byte(text)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

// Whatever a record says, what is done by it stays on the way to the volume's
// own journal cgroup.
func FuzzRecord(f *testing.F) {
	f.Add(encoded(f, sampleRecord()))
	parent := sampleRecord()
	parent.Attachment.MadeCgroups, parent.Attachment.WeightBefore = []string{"/user", "/user/db1", "/user/db1/journal-db"}, nil
	f.Add(encoded(f, parent))
	container := sampleRecord()
	container.Attachment = &Attachment{State: Detaching, Target: "/mnt/db", Placement: PlaceContainer, Cgroup: "/docker/1", Journal: "/docker/1"}
	f.Add(encoded(f, container))
	none := sampleRecord()
	none.Attachment = &Attachment{State: Attaching, Target: "/mnt/db", Placement: PlaceNone}
	f.Add(encoded(f, none))
	none.Attachment, none.Resize, none.Frozen = nil, 1<<30, true
	f.Add(encoded(f, none))
	f.Add([]byte(`{"format":1,"name":"..","attachment":{"target":"/","made_cgroups":["/"]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		record, err := decodeRecord(text)
		if err != nil {
			return
		}
		if CheckName(record.Name) != nil || CheckSize(record.SizeBytes) != nil || CheckWeight(record.Weight) != nil {
			t.Errorf("%+v", record)
		}
		again, err := decodeRecord(encoded(t, record))
		if err != nil || !reflect.DeepEqual(encoded(t, again), encoded(t, record)) {
			t.Errorf("%+v is read again as %+v, %v", record, again, err)
		}
		a := record.Attachment
		if a == nil {
			return
		}
		if a.Target == "/" || !filepath.IsAbs(a.Target) || filepath.Clean(a.Target) != a.Target {
			t.Errorf("target %q", a.Target)
		}
		for _, at := range a.MadeCgroups {
			if at == "/" || !within(a.Journal, at) || a.Placement != PlaceParent {
				t.Errorf("made %q, the journal's is %q", at, a.Journal)
			}
		}
		if len(a.MadeCgroups) > 0 && !strings.HasSuffix(a.Journal, "/journal") && !strings.HasSuffix(a.Journal, "/journal-"+record.Name) {
			t.Errorf("journal %q of %q", a.Journal, record.Name)
		}
	})
}

// lie changes a volume's record as somebody might who can write the pool.
func (r *rig) lie(name string, how func(*Record)) {
	r.t.Helper()
	record, err := r.pool.read(name)
	if err != nil {
		r.t.Fatal(err)
	}
	how(&record)
	if err := os.WriteFile(filepath.Join(r.pool.volumeDir(name), recordFile), encoded(r.t, record), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// A record that names what is another's gets nobody harmed: neither mounts, nor
// loop devices, directories with something in them, files, nor cgroups in use.
func TestALyingRecordHarmsNobody(t *testing.T) {
	r := newRig(t)
	name, other := r.name("v"), r.name("other")
	r.keep(name, CreateOptions{})
	r.keep(other, CreateOptions{})
	victim := r.attach(other, AttachOptions{})
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	full, file := filepath.Join(r.home, "full"), filepath.Join(r.home, "file")
	if err := errors.Join(os.Mkdir(full, 0o700), os.WriteFile(filepath.Join(full, "x"), nil, 0o600), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	host := r.host()
	for _, target := range []string{r.target(other), full, file, "/etc", "/etc/passwd", "/proc", "/sys/fs/cgroup", filepath.Join(r.home, "none"), r.pool.dir} {
		for _, state := range []AttachState{Attaching, Attached, Detaching} {
			r.lie(name, func(record *Record) {
				record.Frozen = true
				record.Attachment = &Attachment{
					State: state, BootID: boot, Target: target, MadeTarget: true, LoopDevice: strings.TrimPrefix(victim.LoopDevice, "/dev/"),
					Placement: PlaceParent, Cgroup: "/daybook/" + other, Journal: journalCgroup("/daybook/"+other, name),
					MadeCgroups: []string{"/daybook", "/daybook/" + other, journalCgroup("/daybook/"+other, name)},
				}
			})
			status := r.inspect(name)
			if status.LoopDevice != "" || status.JBD2PID != 0 || status.Mountpoint != "" || status.Problem == "" {
				t.Errorf("target %s: %+v", target, status)
			}
			if done := r.repair(); done.Volumes[name] == "" {
				t.Errorf("target %s: %+v", target, done)
			}
			r.wantSame("host", r.host(), host)
			r.wantWhole(other)
			if !exists(target) && filepath.Base(target) != "none" {
				t.Fatalf("%s is gone", target)
			}
		}
	}
	// What cannot have been Daybook's is refused as a whole.
	sound, err := r.pool.read(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"/", "/docker", "/daybook"} {
		if err := r.pool.write(sound); err != nil {
			t.Fatal(err)
		}
		r.lie(name, func(record *Record) {
			record.Attachment = &Attachment{State: Attaching, BootID: boot, Target: full, Placement: PlaceParent, Cgroup: "/x", Journal: "/x/journal-" + name, MadeCgroups: []string{at}}
		})
		done, err := r.pool.Repair(t.Context())
		if !errors.Is(err, ErrCorrupt) || done.Damaged[name] == "" {
			t.Errorf("%s: %+v, %v", at, done, err)
		}
		r.wantSame("host", r.host(), host)
	}
	wantError(t, r.pool.Delete(t.Context(), name, DeleteOptions{}), ErrCorrupt, name)
	if err := r.pool.Delete(t.Context(), name, DeleteOptions{Damaged: true}); err != nil {
		t.Error(err)
	}
	r.wantKept(other)
	r.wantDetached(other)
}

// The cgroups of another start of the host are not those that the record names.
func TestAfterAnotherStartOfTheHostNoCgroupIsTouched(t *testing.T) {
	r, disk := newWeightedRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{Weight: 700})
	parent, weights := r.weightedCgroup(disk.Disk, "user", 250)
	before, err := weights.Get(parent)
	if err != nil {
		t.Fatal(err)
	}
	child := parent + "/journal-" + name
	if err := r.tree.Make(child); err != nil {
		t.Fatal(err)
	}
	r.lie(name, func(record *Record) {
		record.Attachment = &Attachment{
			State: Attached, BootID: "an earlier one", Target: r.target(name), MadeTarget: true, LoopDevice: "loop0", Placement: PlaceParent,
			Cgroup: parent, Journal: child, MadeCgroups: []string{child},
			WeightBefore: &WeightBefore{File: weights.File(), Disk: disk.Dev.String(), Scheduler: "bfq", Default: 999},
		}
	})
	if err := os.Mkdir(r.target(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if done := r.repair(); done.Volumes[name] == "" {
		t.Errorf("%+v", done)
	}
	if now, err := weights.Get(parent); err != nil || now != before {
		t.Errorf("weight %+v, %v; before %+v", now, err, before)
	}
	if _, err := r.tree.Lookup(child); err != nil {
		t.Error(err)
	}
	if exists(r.target(name)) {
		t.Error("the mount point outlived the start")
	}
	if err := r.tree.Remove(child); err != nil {
		t.Error(err)
	}
	r.wantDetached(name)
	r.wantKept(name)
}

func TestDamagedRecordsAreToldAndHoldUpNobody(t *testing.T) {
	r := newRig(t)
	sound := r.name("sound")
	r.keep(sound, CreateOptions{})
	whole, err := os.ReadFile(filepath.Join(r.pool.volumeDir(sound), recordFile))
	if err != nil {
		t.Fatal(err)
	}
	damages := map[string][]byte{
		"empty": {}, "cut": whole[:len(whole)/2], "foreign": whole, "zeros": make([]byte, 4096), "long": []byte(strings.Repeat(" ", maxRecordBytes+1)), "text": []byte("hello\n"),
	}
	var names []string
	for what, text := range damages {
		name := r.name(what)
		names = append(names, name)
		r.create(name, CreateOptions{})
		if err := os.WriteFile(filepath.Join(r.pool.volumeDir(name), recordFile), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	missing, device := r.name("missing"), r.name("device")
	names = append(names, missing, device)
	r.create(missing, CreateOptions{})
	r.create(device, CreateOptions{})
	record := func(name string) string { return filepath.Join(r.pool.volumeDir(name), recordFile) }
	if err := errors.Join(os.Remove(record(missing)), os.Remove(record(device)), os.Mkdir(record(device), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		_, err := r.pool.Attach(t.Context(), name, AttachOptions{Target: r.target(name)})
		if err == nil {
			t.Errorf("%s: attached", name)
		}
		if err := r.pool.Detach(t.Context(), name); err == nil {
			t.Errorf("%s: detached", name)
		}
		if err := r.pool.Delete(t.Context(), name, DeleteOptions{}); err == nil {
			t.Errorf("%s: deleted", name)
		}
	}
	r.attach(sound, AttachOptions{})
	done, err := r.pool.Repair(t.Context())
	if !errors.Is(err, ErrCorrupt) || len(done.Damaged) != len(names) {
		t.Errorf("%+v, %v", done, err)
	}
	all, err := r.pool.List()
	if err != nil || len(all) != len(names)+1 {
		t.Errorf("%d volumes are listed, %v", len(all), err)
	}
	for _, status := range all {
		if (status.Name == sound) != (status.Problem == "") {
			t.Errorf("%+v", status)
		}
	}
	for _, name := range names {
		if err := r.pool.Delete(t.Context(), name, DeleteOptions{Damaged: true}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.wantKept(sound)
	r.wantDetached(sound)
}

// What others put into the pool is neither followed nor removed, but for the
// work directory, which is nobody's.
func TestForeignThingsInThePool(t *testing.T) {
	r := newRig(t)
	outside := filepath.Join(r.home, "outside")
	inside := filepath.Join(outside, "precious")
	if err := errors.Join(os.Mkdir(outside, 0o700), os.WriteFile(inside, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	name := r.name("v")
	r.keep(name, CreateOptions{})
	work, volumes := filepath.Join(r.pool.dir, workDir), filepath.Join(r.pool.dir, volumesDir)
	if err := errors.Join(
		os.Symlink(outside, filepath.Join(work, "link")), unix.Mkfifo(filepath.Join(volumes, "fifo"), 0o600), os.WriteFile(filepath.Join(volumes, "file"), nil, 0o600),
		os.Mkdir(filepath.Join(volumes, ".hidden"), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	done, err := r.pool.Repair(t.Context())
	if err == nil || done.Damaged["fifo"] == "" || done.Damaged["file"] == "" {
		t.Errorf("%+v, %v", done, err)
	}
	if !exists(inside) {
		t.Fatal("a link was followed")
	}
	// A mount in a volume's directory would go with it.
	mount := filepath.Join(r.pool.volumeDir(name), snapshotsDir)
	if err := unix.Mount(outside, mount, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	wantError(t, r.pool.Delete(t.Context(), name, DeleteOptions{}), ErrBusy, mount)
	if err := ext4.Unmount(t.Context(), mount); err != nil {
		t.Fatal(err)
	}
	if !exists(inside) {
		t.Fatal("a mount was emptied")
	}
	for _, foreign := range []string{"fifo", "file", ".hidden"} {
		if err := os.Remove(filepath.Join(volumes, foreign)); err != nil {
			t.Error(err)
		}
	}
	r.wantKept(name)
	if left := r.files(); slices.Contains(left, "work/link") {
		t.Errorf("%q", left)
	}
}
