package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/filetest"
	"github.com/daybook-project/daybook/volume/internal/chunk"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/internal/stream"
	"github.com/daybook-project/daybook/volume/records"
)

// The copies of one volume have the same ID.
func TestAStreamIsReceivedWhileItIsBeingReceivedAndAfterAKill(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	id := r.create(name, CreateOptions{}).ID
	whole := r.send(name, "", "")
	var second error
	r.pool.engine.Stop = func(step string) {
		if step == "received" {
			r.pool.engine.Stop = nil
			_, second = r.pool.Receive(t.Context(), r.name("two"), bytes.NewReader(whole), ReceiveOptions{})
		}
	}
	_, first := r.pool.Receive(t.Context(), r.name("one"), bytes.NewReader(whole), ReceiveOptions{})
	if first != nil || second != nil {
		t.Errorf("two at once: %v, %v", first, second)
	}
	if err := os.WriteFile(r.stream(), whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if !r.killed(order{Operation: "receive", Name: r.name("three"), Stream: r.stream(), KillAt: 1}) {
		t.Fatal("it was not killed")
	}
	if record, err := r.pool.Receive(t.Context(), r.name("three"), bytes.NewReader(whole), ReceiveOptions{}); err != nil || record.ID != id {
		t.Errorf("after a killed one: %+v, %v", record, err)
	}
}

// send sends to memory.
func (r *rig) send(name, snapshot, base string) []byte {
	r.t.Helper()
	var out bytes.Buffer
	if err := r.pool.Send(r.t.Context(), name, snapshot, base, &out, SendOptions{}); err != nil {
		r.t.Fatal(err)
	}
	return out.Bytes()
}

func (r *rig) snapshot(name, snapshot string) {
	r.t.Helper()
	if _, err := r.pool.Snapshot(r.t.Context(), name, snapshot, SnapshotOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func TestAVolumeIsSentAndReceivedUnderLoad(t *testing.T) {
	onEachPool(t, func(t *testing.T, r *rig, _ Method) {
		name, copied := r.name("db"), r.name("copy")
		created := r.create(name, CreateOptions{SizeBytes: 64 << 20, Weight: 300, Labels: map[string]string{"app": "db"}})
		r.attach(name, AttachOptions{Placement: PlaceNone})
		writer := startRecords(t, r.target(name))
		least := map[string]uint64{}
		for _, snapshot := range []string{"s1", "s2"} {
			writer.await(10)
			least[snapshot] = writer.synced.Load()
			r.snapshot(name, snapshot)
		}
		whole, change := r.send(name, "s1", ""), r.send(name, "s2", "s1")
		t.Logf("whole %d bytes, change %d bytes", len(whole), len(change))
		var last, total uint64
		record, err := r.pool.Receive(t.Context(), copied, bytes.NewReader(whole), ReceiveOptions{Progress: func(done, of uint64) { last, total = done, of }})
		if err != nil {
			t.Fatal(err)
		}
		if record.ID != created.ID || record.Weight != 0 || len(record.Labels) != 0 || record.Origin != name+"@s1" || record.Attachment != nil || last != total {
			t.Errorf("%+v, progress %d of %d", record, last, total)
		}
		filetest.WantEqual(t, r.pool.files.Image(copied), r.pool.files.SnapshotImage(name, "s1"))
		if got, most := filetest.AllocatedBytes(t, r.pool.files.Image(copied)), filetest.AllocatedBytes(t, r.pool.files.Image(name))+1<<20; got > most {
			t.Errorf("%d bytes are allocated, of the source %d", got, most)
		}
		if record, err = r.pool.Receive(t.Context(), copied, bytes.NewReader(change), ReceiveOptions{}); err != nil {
			t.Fatal(err)
		}
		filetest.WantEqual(t, r.pool.files.Image(copied), r.pool.files.SnapshotImage(name, "s2"))
		r.wantWhole(copied)
		if record.Origin != name+"@s2" || r.inspect(copied).Origin != record.Origin {
			t.Errorf("%+v", record)
		}
		// The last step of a move: the writer ends, and the rest is sent from the
		// present content of the volume, attached and then detached.
		r.snapshot(name, "s3")
		if _, err := r.pool.Receive(t.Context(), copied, bytes.NewReader(r.send(name, "s3", "s2")), ReceiveOptions{}); err != nil {
			t.Fatal(err)
		}
		writer.end()
		now := r.send(name, "", "s3")
		if snapshots := r.pool.files.SnapshotNames(name); !slices.Equal(snapshots, []string{"s1", "s2", "s3"}) {
			t.Errorf("sending left snapshots: %q", snapshots)
		}
		r.detach(name)
		end := r.send(name, "", "s3")
		if _, err := r.pool.Receive(t.Context(), copied, bytes.NewReader(end), ReceiveOptions{}); err != nil {
			t.Fatal(err)
		}
		filetest.WantEqual(t, r.pool.files.Image(copied), r.pool.files.Image(name))
		r.attach(copied, AttachOptions{Placement: PlaceNone})
		wantRecords(t, r.target(copied), writer.synced.Load())
		if _, err := r.pool.Receive(t.Context(), copied, bytes.NewReader(now), ReceiveOptions{}); !errors.Is(err, ErrBusy) {
			t.Errorf("into an attached volume: %v", err)
		}
		r.detach(copied)
		// It was written since: neither stream has its present content.
		if _, err := r.pool.Receive(t.Context(), copied, bytes.NewReader(now), ReceiveOptions{}); !errors.Is(err, ErrInvalid) {
			t.Errorf("into a volume that was written since: %v", err)
		}
		r.attach(copied, AttachOptions{Placement: PlaceNone})
		wantRecords(t, r.target(copied), writer.synced.Load())
		r.detach(copied)
		if work, err := os.ReadDir(filepath.Join(r.pool.dir, store.WorkDir)); err != nil || len(work) != 0 {
			t.Errorf("left in work: %v, %v", work, err)
		}
	})
}

// Each of the two streams fits alone.
func TestReceivesAtTheSameTimeDoNotExceedTheQuota(t *testing.T) {
	r := newRig(t)
	name, first, second := r.name("db"), r.name("first"), r.name("second")
	r.create(name, CreateOptions{})
	r.snapshot(name, "s1")
	whole := r.send(name, "s1", "")
	for _, copied := range []string{first, second} {
		if _, err := r.pool.Receive(t.Context(), copied, bytes.NewReader(whole), ReceiveOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.pool.Resize(t.Context(), name, 2*testBytes, ResizeOptions{}); err != nil {
		t.Fatal(err)
	}
	r.snapshot(name, "s2")
	change := r.send(name, "s2", "s1")
	usage, err := r.pool.Usage()
	if err == nil {
		err = r.pool.SetQuota(t.Context(), usage.PromisedBytes+testBytes)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := *r.pool
	p.engine.Stop = func(step string) {
		if step != "received" {
			return
		}
		if record, err := r.pool.Receive(t.Context(), second, bytes.NewReader(change), ReceiveOptions{}); err != nil || record.SizeBytes != 2*testBytes {
			t.Errorf("the receive that is first to end: %+v, %v", record, err)
		}
	}
	_, err = p.Receive(t.Context(), first, bytes.NewReader(change), ReceiveOptions{})
	wantError(t, err, ErrNoSpace, "quota")
	r.wantSize(first, testBytes)
	r.wantSize(second, 2*testBytes)
	r.wantTidy()
}

func TestAFullVolumeIsReceivedFull(t *testing.T) {
	r := newRig(t)
	name, copied := r.name("db"), r.name("copy")
	r.create(name, CreateOptions{Provision: Full})
	r.snapshot(name, "s")
	if _, err := r.pool.Receive(t.Context(), copied, bytes.NewReader(r.send(name, "s", "")), ReceiveOptions{}); err != nil {
		t.Fatal(err)
	}
	r.attach(name, AttachOptions{Placement: PlaceNone})
	fill(t, r.target(name), 2<<20)
	r.detach(name)
	if _, err := r.pool.Receive(t.Context(), copied, bytes.NewReader(r.send(name, "", "s")), ReceiveOptions{}); err != nil {
		t.Fatal(err)
	}
	filetest.WantEqual(t, r.pool.files.Image(copied), r.pool.files.Image(name))
	if status := r.wantWhole(copied); status.Provision != Full || status.AllocatedBytes < testBytes {
		t.Errorf("%+v", status)
	}
}

func TestAChangeOfSizeIsReceived(t *testing.T) {
	r := newRig(t)
	name, copied := r.name("db"), r.name("copy")
	want := r.newFilled(name, 48<<20, CreateOptions{})
	r.snapshot(name, "s0")
	if _, err := r.pool.Receive(t.Context(), copied, bytes.NewReader(r.send(name, "s0", "")), ReceiveOptions{}); err != nil {
		t.Fatal(err)
	}
	before := "s0"
	for i, size := range []uint64{80 << 20, 40 << 20} {
		if _, err := r.pool.Resize(t.Context(), name, size, ResizeOptions{}); err != nil {
			t.Fatal(err)
		}
		// Faults of resize2fs itself are repaired, also those that e2fsck -n
		// accepts.
		if report, err := r.pool.Check(t.Context(), name, CheckOptions{Repair: true}); err != nil || report.Corrected {
			t.Errorf("after the resize to %d: %+v, %v", size, report, err)
		}
		snapshot := fmt.Sprintf("s%d", i+1)
		r.snapshot(name, snapshot)
		record, err := r.pool.Receive(t.Context(), copied, bytes.NewReader(r.send(name, snapshot, before)), ReceiveOptions{})
		if err != nil || record.SizeBytes != size {
			t.Fatalf("%+v, %v", record, err)
		}
		r.wantSize(copied, size)
		r.wantWhole(copied)
		before = snapshot
	}
	r.wantFiles(copied, want)
}

// A receive that was killed just before or after it replaced the image leaves a record with a
// size below the image's. Without a repair, a snapshot would keep only a part of the image.
func TestTheNextOperationCorrectsTheSizeAfterAnInterruptedReceive(t *testing.T) {
	r := newRig(t)
	for what, next := range map[string]func(name string){
		"attach":   func(name string) { r.attach(name, AttachOptions{Placement: PlaceNone}) },
		"snapshot": func(name string) { r.snapshot(name, "s") },
	} {
		name := r.name(what)
		r.create(name, CreateOptions{SizeBytes: 2 * testBytes})
		record := r.inspect(name).Record
		record.SizeBytes = testBytes
		if err := r.pool.files.Write(record); err != nil {
			t.Fatal(err)
		}
		next(name)
		r.wantSize(name, 2*testBytes)
	}
}

func TestAStreamThatIsNotWholeLeavesNothing(t *testing.T) {
	r := newRig(t)
	name := r.name("db")
	want := r.newFilled(name, 32<<20, CreateOptions{})
	r.snapshot(name, "s1")
	whole := r.send(name, "s1", "")
	copied := r.name("copy")
	if _, err := r.pool.Receive(t.Context(), copied, bytes.NewReader(whole), ReceiveOptions{}); err != nil {
		t.Fatal(err)
	}
	r.attach(name, AttachOptions{Placement: PlaceNone})
	if err := os.Remove(filepath.Join(r.target(name), "dataa")); err != nil {
		t.Fatal(err)
	}
	r.detach(name)
	r.snapshot(name, "s2")
	change := r.send(name, "s2", "s1")
	if len(change) >= len(whole)/20 {
		t.Errorf("a file was removed; what differs is %d bytes, all is %d", len(change), len(whole))
	}
	files := r.files()
	before, err := os.ReadFile(r.pool.files.Image(copied))
	if err != nil {
		t.Fatal(err)
	}
	for what, stream := range map[string][]byte{"whole": whole, "change": change} {
		target := r.name("x")
		if what == "change" {
			target = copied
		}
		for _, at := range []int{0, 5, 100, len(stream) / 2, len(stream) - 200, len(stream) - 1} {
			for how, in := range map[string][]byte{"cut off": stream[:at], "damaged": damage(stream, at)} {
				_, err := r.pool.Receive(t.Context(), target, bytes.NewReader(in), ReceiveOptions{})
				if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrInvalid) {
					t.Errorf("%s %s at %d: %v", what, how, at, err)
				}
			}
		}
		_, err := r.pool.Receive(t.Context(), target, io.MultiReader(bytes.NewReader(stream[:len(stream)/2]), failing{}), ReceiveOptions{})
		if !errors.Is(err, errFailing) {
			t.Errorf("%s: %v", what, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := r.pool.Receive(ctx, target, bytes.NewReader(stream), ReceiveOptions{Progress: func(uint64, uint64) { cancel() }}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	}
	r.wantSame("pool", r.files(), files)
	after, err := os.ReadFile(r.pool.files.Image(copied))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the volume that was to be changed was (%v)", err)
	}

	// Streams that do not fit.
	other := r.name("other")
	r.create(other, CreateOptions{SizeBytes: 32 << 20})
	for what, try := range map[string]struct {
		target string
		stream []byte
		want   error
	}{
		"taken":              {copied, whole, ErrExists},
		"no base":            {r.name("x"), change, ErrNotFound},
		"another volume":     {other, change, ErrInvalid},
		"no stream":          {r.name("x"), []byte("#!/bin/sh\nexit 0\n"), ErrInvalid},
		"a name that is not": {"a/b", whole, ErrInvalid},
	} {
		if _, err := r.pool.Receive(t.Context(), try.target, bytes.NewReader(try.stream), ReceiveOptions{}); !errors.Is(err, try.want) {
			t.Errorf("%s: %v, want %v", what, err, try.want)
		}
	}
	if err := r.pool.SetQuota(t.Context(), 150<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := r.pool.Receive(t.Context(), r.name("x"), bytes.NewReader(whole), ReceiveOptions{}); !errors.Is(err, ErrNoSpace) {
		t.Errorf("over the quota: %v", err)
	}
	// A change needs no quota: the volume has the same length as before.
	if _, err := r.pool.Receive(t.Context(), copied, bytes.NewReader(change), ReceiveOptions{}); err != nil {
		t.Error(err)
	}
	// The same stream again does not have the same base.
	if _, err := r.pool.Receive(t.Context(), copied, bytes.NewReader(change), ReceiveOptions{}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "s1") {
		t.Errorf("%v", err)
	}
	if err := r.pool.DeleteSnapshot(t.Context(), name, "s2"); err != nil {
		t.Error(err)
	}
	if _, err := r.pool.Clone(t.Context(), name, "s1", r.name("y"), CloneOptions{}); err == nil {
		t.Error("cloned over the quota")
	}
	if err := r.pool.SetQuota(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := r.pool.Receive(t.Context(), r.name("y"), bytes.NewReader(whole), ReceiveOptions{}); err != nil {
		t.Fatal(err)
	}
	r.wantFiles(r.name("y"), want)
}

func damage(stream []byte, at int) []byte {
	stream = slices.Clone(stream)
	stream[at] ^= 1
	return stream
}

var errFailing = errors.New("the line is dead")

type failing struct{}

// Read always fails, and so does Write.
func (failing) Read([]byte) (int, error)  { return 0, errFailing }
func (failing) Write([]byte) (int, error) { return 0, errFailing }

func TestWhatCarriesNoFileSystemIsRefused(t *testing.T) {
	r := newRig(t)
	header := stream.Header{
		Format: stream.Format, Name: "db", ID: records.NewID(), Created: time.Unix(1, 0).UTC(), SizeBytes: testBytes, Provision: Thin, SectorBytes: 512,
	}
	for what, piece := range map[string][]byte{"zeros": make([]byte, 4096), "noise": bytes.Repeat([]byte{0x5a}, 4096)} {
		var out bytes.Buffer
		w, err := stream.NewWriter(&out, header)
		if err != nil {
			t.Fatal(err)
		}
		first := make([]byte, chunk.Bytes)
		copy(first, piece)
		sums := make([]chunk.Sum, 16)
		sums[0] = chunk.SumOf(first)
		if err := errors.Join(w.Data(0, piece), w.End(chunk.Sum{}, chunk.ImageSum(header.SizeBytes, sums))); err != nil {
			t.Fatal(err)
		}
		if _, err := r.pool.Receive(t.Context(), r.name("x"), &out, ReceiveOptions{}); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "no ext4") {
			t.Errorf("%s: %v", what, err)
		}
	}
	// The received content is not what the sender says it read.
	var out bytes.Buffer
	w, err := stream.NewWriter(&out, header)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.End(chunk.Sum{}, chunk.Sum{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.pool.Receive(t.Context(), r.name("x"), &out, ReceiveOptions{}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("%v", err)
	}
	r.wantDetached()
}

func TestASendingThatFailsLeavesNothing(t *testing.T) {
	r := newRig(t)
	name := r.name("db")
	r.create(name, CreateOptions{})
	r.attach(name, AttachOptions{Placement: PlaceNone})
	if err := r.pool.Send(t.Context(), name, "", "", failing{}, SendOptions{}); !errors.Is(err, errFailing) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := r.pool.Send(ctx, name, "", "", io.Discard, SendOptions{Progress: func(uint64, uint64) { cancel() }}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	for _, try := range [][2]string{{"none", ""}, {"", "none"}} {
		if err := r.pool.Send(t.Context(), name, try[0], try[1], io.Discard, SendOptions{}); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", try, err)
		}
	}
	wantWritable(t, r.target(name))
	r.detach(name)
	r.wantDetached(name)
	// A snapshot may be deleted while it is sent, and the volume may be attached.
	r.snapshot(name, "s")
	var out bytes.Buffer
	deleted := false
	err := r.pool.Send(t.Context(), name, "s", "", &out, SendOptions{Progress: func(done, _ uint64) {
		if !deleted {
			deleted = true
			if err := r.pool.DeleteSnapshot(t.Context(), name, "s"); err != nil {
				t.Error(err)
			}
			r.attach(name, AttachOptions{Placement: PlaceNone})
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.detach(name)
	if _, err := r.pool.Receive(t.Context(), r.name("copy"), &out, ReceiveOptions{}); err != nil {
		t.Error(err)
	}
	r.wantDetached(name, r.name("copy"))
}

// A pipe can be silent, or not be read, for ever.
func TestASendingAndAReceivingEndWithTheirContext(t *testing.T) {
	r := newRig(t)
	name := r.name("db")
	r.create(name, CreateOptions{})
	whole := r.send(name, "", "")
	for _, sent := range []int{0, 1000, len(whole)} { // whole: the input does not end
		ctx, cancel := context.WithCancel(t.Context())
		from, to := io.Pipe()
		go func() {
			_, _ = to.Write(whole[:sent])
			cancel()
		}()
		if _, err := r.pool.Receive(ctx, r.name("x"), from, ReceiveOptions{}); !errors.Is(err, context.Canceled) {
			t.Errorf("received after %d bytes: %v", sent, err)
		}
		_ = to.Close()
	}
	r.wantDetached(name)
	ctx, cancel := context.WithCancel(t.Context())
	from, to := io.Pipe()
	go func() {
		_, _ = io.ReadFull(from, make([]byte, 1000))
		cancel()
	}()
	if err := r.pool.Send(ctx, name, "", "", to, SendOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("sent: %v", err)
	}
	_ = from.Close()
	r.wantDetached(name)
}
