package records

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/placement"
)

// sampleRecord is of an attached volume, with all there can be.
func sampleRecord() Volume {
	return Volume{
		Format: Format, Name: "db", ID: "767aa504-c6dd-403c-b36f-59bc672629d5", SizeBytes: 16 << 20, Provision: Thin, SectorBytes: 512, Weight: 500,
		Labels: map[string]string{"app": "db"},
		Attachment: &Attachment{
			EarlierWeight: new(uint64(0)),
			State:         Attached, BootID: "boot", Target: "/mnt/db", MadeTarget: true, LoopDevice: "loop3",
			Placed: placement.Placed{
				Placement: placement.Parent, Cgroup: "/user/db1", Journal: "/user/db1/journal-db", MadeCgroups: []string{"/user/db1/journal-db"}, EnabledIO: []string{"/user/db1"},
				WeightBefore: &placement.WeightBefore{File: "io.bfq.weight", Disk: "7:0", Scheduler: "bfq", Default: 100},
			},
		},
	}
}

func encoded(t testing.TB, record Volume) []byte {
	t.Helper()
	text, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	record := sampleRecord()
	read, err := ParseVolume("db", encoded(t, record))
	if err != nil || !reflect.DeepEqual(read, record) {
		t.Errorf("%+v, %v; want %+v", read, err, record)
	}
}

func TestADamagedRecordIsRefused(t *testing.T) {
	text := encoded(t, sampleRecord())
	for n := range len(text) {
		if _, err := ParseVolume("db", text[:n]); !errors.Is(err, cause.ErrCorrupt) {
			t.Fatalf("cut off after %d bytes: %v", n, err)
		}
	}
	for what, damage := range map[string]func(*Volume){
		"another's":           func(r *Volume) { r.Name = "other" },
		"a name with a slash": func(r *Volume) { r.Name = "../db" },
		"an earlier format":   func(r *Volume) { r.Format-- },
		"size 0":              func(r *Volume) { r.SizeBytes = 0 },
		"size overflow":       func(r *Volume) { r.SizeBytes = 1 << 63 },
		"provision":           func(r *Volume) { r.Provision = "" },
		"sectors":             func(r *Volume) { r.SectorBytes = 0 },
		"weight":              func(r *Volume) { r.Weight = 5000 },
		"state":               func(r *Volume) { r.Attachment.State = "" },
		"root as target":      func(r *Volume) { r.Attachment.Target = "/" },
		"relative target":     func(r *Volume) { r.Attachment.Target = "mnt" },
		"target with dots":    func(r *Volume) { r.Attachment.Target = "/mnt/../etc" },
		"loop path":           func(r *Volume) { r.Attachment.LoopDevice = "loop/../sda" },
		"no loop":             func(r *Volume) { r.Attachment.LoopDevice = "sda" },
		"placement":           func(r *Volume) { r.Attachment.Placement = "" },
		"earlier weight":      func(r *Volume) { r.Attachment.EarlierWeight = new(uint64(1001)) },
		"root as parent":      func(r *Volume) { r.Attachment.Cgroup = "/" },
		"another journal":     func(r *Volume) { r.Attachment.Journal = "/docker" },
		"cgroup with dots":    func(r *Volume) { r.Attachment.Cgroup = "/user/../docker" },
		"made another's":      func(r *Volume) { r.Attachment.MadeCgroups = []string{"/docker"} },
		"made the root":       func(r *Volume) { r.Attachment.MadeCgroups = []string{"/"} },
		"made a child":        func(r *Volume) { r.Attachment.MadeCgroups = []string{"/user/db1/journal-db/x"} },
		"made in wrong order": func(r *Volume) { r.Attachment.MadeCgroups = []string{"/user/db1/journal-db", "/user"} },
		"made twice":          func(r *Volume) { r.Attachment.MadeCgroups = []string{"/user", "/user"} },
		"enabled another's":   func(r *Volume) { r.Attachment.EnabledIO = []string{"/docker"} },
		"weight of what it made": func(r *Volume) {
			r.Attachment.MadeCgroups = []string{"/user/db1", "/user/db1/journal-db"}
		},
		"cgroups without placement":    func(r *Volume) { r.Attachment.Placement = placement.None },
		"made in a container's cgroup": func(r *Volume) { r.Attachment.Placement = placement.Container },
	} {
		record := sampleRecord()
		damage(&record)
		if _, err := ParseVolume("db", encoded(t, record)); !errors.Is(err, cause.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, text := range []string{"", "null", "{}", "[]", "0", string(text) + "{}", "\x00\x01"} {
		if _, err := ParseVolume("db", []byte(text)); !errors.Is(err, cause.ErrCorrupt) {
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
	container.Attachment = &Attachment{State: Detaching, Target: "/mnt/db", Placed: placement.Placed{Placement: placement.Container, Cgroup: "/docker/1", Journal: "/docker/1"}}
	f.Add(encoded(f, container))
	none := sampleRecord()
	none.Attachment = &Attachment{State: Attaching, Target: "/mnt/db", Placed: placement.Placed{Placement: placement.None}}
	f.Add(encoded(f, none))
	none.Attachment, none.Resize, none.Frozen = nil, 1<<30, true
	f.Add(encoded(f, none))
	f.Add([]byte(`{"format":1,"name":"..","attachment":{"target":"/","made_cgroups":["/"]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		record, err := DecodeVolume(text)
		if err != nil {
			return
		}
		if CheckName(record.Name) != nil || CheckSize(record.SizeBytes) != nil || CheckWeight(record.Weight) != nil {
			t.Errorf("%+v", record)
		}
		again, err := DecodeVolume(encoded(t, record))
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
			if at == "/" || !Within(a.Journal, at) || a.Placement != placement.Parent {
				t.Errorf("made %q, the journal's is %q", at, a.Journal)
			}
		}
		if len(a.MadeCgroups) > 0 && !strings.HasSuffix(a.Journal, "/journal") && !strings.HasSuffix(a.Journal, "/journal-"+record.Name) {
			t.Errorf("journal %q of %q", a.Journal, record.Name)
		}
	})
}
