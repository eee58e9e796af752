package volume

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/filetest"
	"github.com/daybook-project/daybook/volume/internal/backing"
	"github.com/daybook-project/daybook/volume/internal/chunk"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/internal/stream"
	"github.com/daybook-project/daybook/volume/internal/transfer"
	"github.com/daybook-project/daybook/volume/records"
)

// fakeLVM replaces lvm2's commands by scripts, to test failures around them. Guests
// test the commands themselves. vgs and lvs print the files vgs and lvs of the
// directory; without the file lvs, lvs fails.
func fakeLVM(t *testing.T) (answers string) {
	t.Helper()
	answers = t.TempDir()
	programs := t.TempDir()
	for name, script := range map[string]string{
		"vgs":      `cat "` + answers + `/vgs"`,
		"lvs":      `[ -e "` + answers + `/hang" ] && { : > "` + answers + `/hangs"; exec sleep 1000; }; cat "` + answers + `/lvs"`,
		"lvchange": `: > "` + answers + `/activated"`,
		"lvremove": `echo '` + noVolumes + `' > "` + answers + `/lvs"`,
	} {
		if err := os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	answer(t, answers, "vgs", `{"report":[{"vg":[]}]}`)
	return answers
}

func answer(t *testing.T, answers, command, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(answers, command), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const (
	noVolumes  = `{"report":[{"lv":[]}]}`
	groupThere = `{"report":[{"vg":[{"vg_name":"daybook-none"}]}]}`
)

// recordOnLVM is the record of a volume in a missing volume group.
func (r *rig) recordOnLVM(name string) Record {
	r.t.Helper()
	o, err := CreateOptions{SizeBytes: testBytes, VolumeGroup: "daybook-none"}.complete()
	if err != nil {
		r.t.Fatal(err)
	}
	return o.record(name, testBytes, 512)
}

// volumeOnLVM puts the record of such a volume in the pool.
func (r *rig) volumeOnLVM(name string, change func(*Record)) Record {
	r.t.Helper()
	record := r.recordOnLVM(name)
	if change != nil {
		change(&record)
	}
	directory := r.pool.files.VolumeDir(name)
	if err := errors.Join(os.MkdirAll(filepath.Join(directory, store.SnapshotsDir), 0o711), store.WriteVolume(directory, record)); err != nil {
		r.t.Fatal(err)
	}
	return record
}

// If a volume group is gone for ever, its work stays until the user forgets it. A
// work whose volume group exists is never forgotten.
func TestAWorkIsForgottenOnlyIfItsVolumeGroupIsGone(t *testing.T) {
	r := newRig(t)
	answers := fakeLVM(t)
	path := filepath.Join(r.pool.dir, store.WorkDir, records.NewID())
	work := filepath.Base(path)
	if err := errors.Join(os.Mkdir(path, 0o711), store.WriteVolume(path, r.recordOnLVM(r.name("lost")))); err != nil {
		t.Fatal(err)
	}
	_, err := r.pool.Repair(t.Context())
	wantError(t, err, ErrWorkLeft, "daybook volume repair --forget "+work)
	answer(t, answers, "vgs", groupThere)
	wantError(t, r.pool.Forget(t.Context(), work), ErrSystem, "its volume group is there")
	if !exists(path) {
		t.Fatal("a work whose volume group is there was forgotten")
	}
	answer(t, answers, "vgs", `{"report":[{"vg":[]}]}`)
	wantError(t, r.pool.Forget(t.Context(), records.NewID()), ErrNotFound, "")
	wantError(t, r.pool.Forget(t.Context(), "../volumes"), ErrInvalid, "")
	held, err := store.LockDirectory(path)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, r.pool.Forget(t.Context(), work), ErrBusy, "")
	held.Release()
	if err := r.pool.Forget(t.Context(), work); err != nil || exists(path) {
		t.Errorf("%v, there: %v", err, exists(path))
	}
	if done, err := r.pool.Repair(t.Context()); err != nil || done.Work != 0 {
		t.Errorf("%+v, %v", done, err)
	}
}

// A stream that cannot be received on LVM is refused before anything is created.
func TestAStreamIsReceivedOnLVMOnlyAsAWholeAndInAVolumeGroup(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{})
	r.snapshot(name, "s")
	whole, change := r.send(name, "s", ""), r.send(name, "", "s")
	fakeLVM(t)
	for _, c := range []struct {
		stream  []byte
		options ReceiveOptions
		naming  string
	}{
		{whole, ReceiveOptions{ThinPool: "tp"}, "thin pool"},
		{whole, ReceiveOptions{VolumeGroup: "-x"}, "-x"},
		{whole, ReceiveOptions{VolumeGroup: "daybook-none"}, "there is no daybook-none"},
		{change, ReceiveOptions{VolumeGroup: "daybook-none"}, "without --base"},
	} {
		_, err := r.pool.Receive(t.Context(), r.name("copy"), bytes.NewReader(c.stream), c.options)
		wantError(t, err, ErrInvalid, c.naming)
		if work, err := os.ReadDir(filepath.Join(r.pool.dir, store.WorkDir)); err != nil || len(work) > 0 {
			t.Errorf("%+v left %v, %v", c.options, work, err)
		}
	}
	onLVM := r.name("lvm")
	r.volumeOnLVM(onLVM, nil)
	if err := r.pool.Send(t.Context(), onLVM, "", "", &bytes.Buffer{}, SendOptions{}); err == nil {
		t.Error("a volume without its logical volume was sent")
	}
	if err := os.RemoveAll(r.pool.files.VolumeDir(onLVM)); err != nil {
		t.Fatal(err)
	}
	r.wantTidy()
}

// A new linear logical volume has the old content of the disk in places that the
// stream does not cover.
func TestAStreamIsAppliedToBlocksWithOldContent(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	whole := r.send(name, "", "")
	old := bytes.Repeat([]byte{0xa5}, testBytes)
	target := filepath.Join(r.home, "blocks")
	for _, clear := range []bool{true, false} {
		if err := os.WriteFile(target, old, 0o600); err != nil {
			t.Fatal(err)
		}
		incoming, err := stream.NewReader(bytes.NewReader(whole))
		if err != nil {
			t.Fatal(err)
		}
		err = transfer.Apply(t.Context(), incoming, target, chunk.Sum{}, clear, nil)
		if clear && err != nil || !clear && !errors.Is(err, stream.ErrDamaged) {
			t.Errorf("cleared: %v: %v", clear, err)
		}
		if clear {
			filetest.WantEqual(t, target, r.pool.files.Image(name))
		}
	}
}

// Only its record names the logical volume of a snapshot.
func TestASnapshotOnLVMWhoseRecordCannotBeReadIsNotPassedOver(t *testing.T) {
	r := newRig(t)
	answer(t, fakeLVM(t), "lvs", noVolumes)
	name := r.name("v")
	r.volumeOnLVM(name, nil)
	snapshot := r.pool.files.SnapshotDir(name, "monday")
	if err := errors.Join(os.Mkdir(snapshot, 0o711), os.WriteFile(filepath.Join(snapshot, store.SnapshotFile), []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	wantError(t, r.pool.DeleteSnapshot(t.Context(), name, "monday"), ErrCorrupt, "snapshot monday")
	wantError(t, r.pool.Delete(t.Context(), name, DeleteOptions{}), ErrCorrupt, snapshot)
	if !exists(snapshot) {
		t.Fatal("it was deleted")
	}
	if err := r.pool.Delete(t.Context(), name, DeleteOptions{Damaged: true}); err != nil || exists(r.pool.files.VolumeDir(name)) {
		t.Error(err)
	}
	r.wantTidy()
}

func TestAFullThinPoolIsAProblemOfItsVolumes(t *testing.T) {
	r := newRig(t)
	answers := fakeLVM(t)
	name := r.name("v")
	record := r.volumeOnLVM(name, func(record *Record) { record.LVM.ThinPool = "tp" })
	for _, c := range []struct{ health, want string }{
		{"", ""}, {"failed", "its thin pool daybook-none/tp is damaged: "}, {"out_of_data", "its thin pool daybook-none/tp is full: "},
	} {
		health, want := c.health, c.want
		answer(t, answers, "lvs", strings.ReplaceAll(noVolumes, "[]", `[{"lv_name":"tp","vg_name":"daybook-none","segtype":"thin-pool","lv_health_status":"`+health+`"},
			{"lv_name":"`+record.LVM.Name+`","vg_name":"daybook-none","lv_size":"67108864","pool_lv":"tp","data_percent":"50.00","lv_health_status":""}]`))
		status, err := r.pool.Inspect(t.Context(), name)
		if err != nil || !strings.HasPrefix(status.Problem, want) || want == "" && status.Problem != "" || status.AllocatedBytes != 32<<20 {
			t.Errorf("%q: %v, %d bytes, %q", health, err, status.AllocatedBytes, status.Problem)
		}
	}
	// It comes before what it may be the cause of, or what a repair would write to it.
	record.Resize = 128 << 20
	if err := r.pool.files.Write(record); err != nil {
		t.Fatal(err)
	}
	if status, err := r.pool.Inspect(t.Context(), name); err != nil || !strings.HasPrefix(status.Problem, "its thin pool daybook-none/tp is full: ") ||
		!strings.HasSuffix(status.Problem, "; a resize is unfinished: daybook volume repair") {
		t.Errorf("%q, %v", status.Problem, err)
	}
	if err := os.RemoveAll(r.pool.files.VolumeDir(name)); err != nil {
		t.Fatal(err)
	}
}

// lvs waits for a command that holds the lock of the volume group.
func TestAReportOfLVMEndsWithItsContext(t *testing.T) {
	r := newRig(t)
	answers := fakeLVM(t)
	answer(t, answers, "hang", "")
	name := r.name("v")
	r.volumeOnLVM(name, nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for !exists(filepath.Join(answers, "hangs")) {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := r.pool.Check(ctx, name, CheckOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := os.RemoveAll(r.pool.files.VolumeDir(name)); err != nil {
		t.Fatal(err)
	}
}

// The node of a logical volume that is not active appears when it is activated: waiting
// for it before would never end.
func TestAnInactiveLogicalVolumeIsActivatedBeforeItsNodeIsAwaited(t *testing.T) {
	r := newRig(t)
	answers := fakeLVM(t)
	name := r.name("v")
	record := r.volumeOnLVM(name, func(record *Record) {
		record.Persist = AttachOptions{Target: r.target(name), Placement: PlaceNone}.persistence()
	})
	answer(t, answers, "lvs", strings.ReplaceAll(noVolumes, "[]", `[{"lv_name":"`+record.LVM.Name+`","vg_name":"daybook-none","lv_size":"67108864","lv_tags":"daybook"}]`))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for !exists(filepath.Join(answers, "activated")) {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := r.pool.AttachAllPersistent(ctx, time.Now().Add(time.Hour)); err == nil {
		t.Error("it was attached")
	}
	if _, err := backing.LookAt(record.LVM.Node()); !backing.IsGone(err) {
		t.Errorf("the node: %v", err)
	}
	// It has its protected mount point.
	if err := r.pool.Delete(t.Context(), name, DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.wantTidy()
}

// A volume whose resize was interrupted while its logical volume was not active: repair
// activates it, as an attach does.
func TestARepairActivatesALogicalVolumeWithAnUnfinishedResize(t *testing.T) {
	r := newRig(t)
	answers := fakeLVM(t)
	name := r.name("v")
	record := r.volumeOnLVM(name, func(record *Record) { record.Resize = 2 * testBytes })
	answer(t, answers, "lvs", strings.ReplaceAll(noVolumes, "[]", `[{"lv_name":"`+record.LVM.Name+`","vg_name":"daybook-none","lv_size":"67108864","lv_tags":"daybook"}]`))
	if done, err := r.pool.Repair(t.Context()); err == nil || done.Failed[name] == "" {
		t.Errorf("without a node: %+v, %v", done, err)
	}
	if !exists(filepath.Join(answers, "activated")) {
		t.Error("it was not activated")
	}
	if err := os.RemoveAll(r.pool.files.VolumeDir(name)); err != nil {
		t.Fatal(err)
	}
}

// LVM allocates blocks of a thin volume when they are written: without a check mke2fs, or the
// tools that change a copy, would fill the thin pool.
func TestAThinPoolWithoutSpaceForTheTablesOfAFileSystemRefusesThem(t *testing.T) {
	r := newRig(t)
	image := r.name("image")
	r.create(image, CreateOptions{})
	whole := r.send(image, "", "")
	answers := fakeLVM(t)
	answer(t, answers, "vgs", groupThere)
	onLVM := ReceiveOptions{VolumeGroup: "daybook-none", ThinPool: "tp"}
	for name, do := range map[string]func(ctx context.Context) error{
		"create": func(ctx context.Context) error {
			_, err := r.pool.Create(ctx, r.name("v"), CreateOptions{SizeBytes: 4 << 30, VolumeGroup: "daybook-none", ThinPool: "tp"})
			return err
		},
		"receive": func(ctx context.Context) error {
			_, err := r.pool.Receive(ctx, r.name("v"), bytes.NewReader(whole), onLVM)
			return err
		},
	} {
		for _, c := range []struct{ percent, metadata, health, want string }{
			{"99.90", "1.00", "", "has 1 of 1024 MiB free, and the tables of a file system of "},
			{"100.00", "1.00", "", "is full"},
			{"50.00", "89.00", "", "has 40 of 4096 KiB of metadata free, and the tables of a file system of "},
			{"50.00", "100.00", "", "has 0 of 4096 KiB of metadata free, and the tables of a file system of "},
			{"50.00", "1.00", "out_of_data", "is full"},
			{"50.00", "1.00", "metadata_read_only", "is read-only"},
			{"", "", "partial", "is incomplete"},
		} {
			answer(t, answers, "lvs", strings.ReplaceAll(noVolumes, "[]", `[{"lv_name":"tp","vg_name":"daybook-none","lv_size":"1073741824","segtype":"thin-pool","chunk_size":"65536","lv_metadata_size":"4194304",
				"data_percent":"`+c.percent+`","metadata_percent":"`+c.metadata+`","lv_health_status":"`+c.health+`"}]`))
			err := do(t.Context())
			wantError(t, err, ErrNoSpace, c.want)
			if err != nil && !strings.Contains(err.Error(), "thin pool daybook-none/tp ") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	r.wantTidy()
}

func TestASnapshotOnLVMHasTheSpaceThatLVMReports(t *testing.T) {
	r := newRig(t)
	answers := fakeLVM(t)
	name := r.name("v")
	volume := r.volumeOnLVM(name, func(record *Record) { record.LVM.ThinPool = "tp" })
	at := map[string]*records.LogicalVolume{}
	for _, snapshot := range []string{"here", "missing"} {
		s := records.Snapshot{Format: records.SnapshotFormatLVM, Name: snapshot, ID: records.NewID(), VolumeID: volume.ID, Created: time.Now(), SizeBytes: testBytes, Method: LVMSnapshot}
		s.LVM = records.NewLogicalVolume("daybook-none", "tp", s.ID)
		at[snapshot] = s.LVM
		directory := r.pool.files.SnapshotDir(name, snapshot)
		if err := errors.Join(os.Mkdir(directory, 0o711), store.ReplaceFile(filepath.Join(directory, store.SnapshotFile), s)); err != nil {
			t.Fatal(err)
		}
	}
	answer(t, answers, "lvs", strings.ReplaceAll(noVolumes, "[]", `[{"lv_name":"`+at["here"].Name+`","vg_name":"daybook-none","lv_size":"67108864","pool_lv":"tp","data_percent":"25.00"}]`))
	all, err := r.pool.Snapshots(t.Context(), name)
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, s := range all {
		if s.Name == "here" && (s.AllocatedBytes != 16<<20 || s.Problem != "") || s.Name == "missing" && !strings.Contains(s.Problem, at["missing"].Name+" is missing") {
			t.Errorf("%+v", s)
		}
	}
	if err := os.Remove(filepath.Join(answers, "lvs")); err != nil {
		t.Fatal(err)
	}
	answer(t, answers, "vgs", groupThere)
	if all, err := r.pool.Snapshots(t.Context(), name); err != nil || len(all) != 2 || all[0].Problem == "" || all[1].Problem == "" {
		t.Errorf("without a report: %+v, %v", all, err)
	}
	if err := os.RemoveAll(r.pool.files.VolumeDir(name)); err != nil {
		t.Fatal(err)
	}
}
