package records

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/daybook-project/daybook/volume/internal/cause"
)

// golden reads a record as a Daybook has written it, or a later one may.
func golden(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestRecordsOfFormat1AreRead(t *testing.T) {
	text := golden(t, "volume-1.json")
	record, err := ParseVolume("db", text)
	if err != nil || record.SizeBytes != 16<<20 || record.Attachment == nil || record.Attachment.WeightBefore.Default != 100 {
		t.Fatalf("%+v, %v", record, err)
	}
	again, err := record.Encode()
	if err != nil || !bytes.Equal(append(again, '\n'), text) {
		t.Errorf("it is written as\n%s, %v", again, err)
	}
}

// Format 2 has a logical volume.
func TestRecordsOfFormat2AreRead(t *testing.T) {
	text := golden(t, "volume-2.json")
	record, err := ParseVolume("db", text)
	if err != nil || record.LVM == nil || record.LVM.Node() != "/dev/vg0/daybook-"+record.ID || record.Attachment.DeviceNumber != "252:3" {
		t.Fatalf("%+v, %v", record, err)
	}
	again, err := record.Encode()
	if err != nil || !bytes.Equal(append(again, '\n'), text) {
		t.Errorf("it is written as\n%s, %v", again, err)
	}
	snapshot, err := ParseSnapshot("snap", golden(t, "snapshot-2.json"))
	if err != nil || snapshot.LVM == nil || snapshot.LVM.ThinPool != "tp" {
		t.Errorf("%+v, %v", snapshot, err)
	}
}

// Format 3 has its journal in memory.
func TestRecordsOfFormat3AreRead(t *testing.T) {
	text := golden(t, "volume-3.json")
	record, err := ParseVolume("db", text)
	if err != nil || record.JournalMemory == nil || record.JournalMemory.Region != "/dev/pmem0" || record.JournalMemory.OffsetBytes != 1<<20 {
		t.Fatalf("%+v, %v", record, err)
	}
	again, err := record.Encode()
	if err != nil || !bytes.Equal(append(again, '\n'), text) {
		t.Errorf("it is written as\n%s, %v", again, err)
	}
	for _, change := range [][2]string{
		{`"format": 3`, `"format": 1`}, {`"journal_memory"`, `"more"`}, {`"/dev/pmem0"`, `"pmem0"`}, {`"slice": "0`, `"slice": "/`}, {`"slice": "0`, `"slice": "`},
		{`1048576`, `1048577`}, {`268435456`, `7340032`}, {`"partitions": 4`, `"partitions": 0`}, {`"partitions": 4`, `"partitions": 4, "moving": "away"`},
		{`"journal_memory": {`, `"journal_device": "/dev/sdc", "journal_memory": {`},
	} {
		changed := bytes.Replace(text, []byte(change[0]), []byte(change[1]), 1)
		if _, err := ParseVolume("db", changed); !errors.Is(err, cause.ErrCorrupt) {
			t.Errorf("%s: %v", change[1], err)
		}
	}
}

// Format 4 has JFS, and its journal in memory.
func TestRecordsOfFormat4AreRead(t *testing.T) {
	text := golden(t, "volume-4.json")
	record, err := ParseVolume("db", text)
	if err != nil || record.FileSystem != JFS || record.JournalMemory == nil {
		t.Fatalf("%+v, %v", record, err)
	}
	again, err := record.Encode()
	if err != nil || !bytes.Equal(append(again, '\n'), text) {
		t.Errorf("it is written as\n%s, %v", again, err)
	}
	for _, change := range [][2]string{
		{`"format": 4`, `"format": 3`}, {`"jfs"`, `"xfs"`}, {`"journal_memory"`, `"more"`}, {`"partitions": 4`, `"partitions": 4, "moving": "to disk"`},
		{`"sector_bytes": 512`, `"sector_bytes": 512, "resize_to_bytes": 33554432`},
	} {
		changed := bytes.Replace(text, []byte(change[0]), []byte(change[1]), 1)
		if _, err := ParseVolume("db", changed); !errors.Is(err, cause.ErrCorrupt) {
			t.Errorf("%s: %v", change[1], err)
		}
	}
}

func TestADamagedLogicalVolumeInARecordIsRefused(t *testing.T) {
	for _, change := range [][2]string{
		{`"format": 2`, `"format": 1`}, {`"vg0"`, `""`}, {`"vg0"`, `"../vg0"`}, {`"vg0"`, `"-vg0"`}, {`"vg0"`, `".."`}, {`"name": "daybook-`, `"name": "/`},
		{`"device_number": "252:3"`, `"loop_device": "loop3"`}, {`"lvm": {`, `"lvm": null, "more": {`},
	} {
		text := bytes.Replace(golden(t, "volume-2.json"), []byte(change[0]), []byte(change[1]), 1)
		if _, err := ParseVolume("db", text); !errors.Is(err, cause.ErrCorrupt) {
			t.Errorf("%s: %v", change[1], err)
		}
		text = bytes.Replace(golden(t, "snapshot-2.json"), []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(text, golden(t, "snapshot-2.json")) {
			continue
		}
		if _, err := ParseSnapshot("snap", text); err == nil {
			t.Errorf("%s in a snapshot's record is read", change[1])
		}
	}
}

func TestUnknownFieldsOfARecordAreKept(t *testing.T) {
	text := golden(t, "volume-1-with-more.json")
	record, err := ParseVolume("db", text)
	if err != nil {
		t.Fatal(err)
	}
	wantJSON(t, record, text)
	record.Attachment = nil
	again, err := record.Encode()
	if err != nil || bytes.Contains(again, []byte("owner_pid")) || !bytes.Contains(again, []byte("sealed_with")) {
		t.Errorf("without the attachment: %s, %v", again, err)
	}
	wantJSON(t, mustParse(t, text), text) // the other's fields are its own
}

func mustParse(t *testing.T, text []byte) Volume {
	t.Helper()
	record, err := ParseVolume("db", text)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

func wantJSON(t *testing.T, record Volume, want []byte) {
	t.Helper()
	text, err := record.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if err := errors.Join(json.Unmarshal(text, &a), json.Unmarshal(want, &b)); err != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("%s, %v; want %s", text, err, want)
	}
}
