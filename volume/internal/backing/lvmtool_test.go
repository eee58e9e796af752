package backing

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/records"
)

// What lvs of lvm2 2.03.16 prints; the commands themselves run in the guest tests of
// the package volume.
const lvsReport = `  {
      "report": [
          {
              "lv": [
                  {"lv_name":"daybook-1", "vg_name":"vg0", "lv_size":"67108864", "vg_extent_size":"4194304", "pool_lv":"", "origin":"", "lv_tags":"daybook,daybook.volume=db", "data_percent":""},
                  {"lv_name":"thin", "vg_name":"vg0", "lv_size":"104857600", "vg_extent_size":"4194304", "pool_lv":"tp", "origin":"daybook-1", "lv_tags":"daybook.volume=db", "data_percent":"25.00"},
                  {"lv_name":"inactive", "vg_name":"vg0", "lv_size":"104857600", "vg_extent_size":"4194304", "pool_lv":"tp", "origin":"", "lv_tags":"", "data_percent":""}
              ]
          }
      ]
  }
`

func TestAReportOfLVMIsRead(t *testing.T) {
	all, err := parseReport([]byte(lvsReport))
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	for i, want := range []struct {
		ours      bool
		allocated uint64
	}{{true, 64 << 20}, {false, 25 << 20}, {false, 0}} {
		if got := all[i]; got.ours() != want.ours || got.allocated() != want.allocated {
			t.Errorf("%s: ours %v, %d bytes; want %+v", got.Name, got.ours(), got.allocated(), want)
		}
	}
	if all, err := parseReport([]byte(`{"report":[{"lv":[]}]}`)); err != nil || len(all) != 0 {
		t.Errorf("none: %+v, %v", all, err)
	}
	if _, err := parseReport([]byte("  LV   VG\n")); err == nil {
		t.Error("a table was read as JSON")
	}
}

func TestWithoutLVMTheErrorNamesThePackage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	record := records.Volume{Name: "db", SizeBytes: 64 << 20, LVM: records.NewLogicalVolume("vg0", "", "1")}
	err := Of("", record, nil).Create(context.Background(), nil)
	if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "install lvm2") || !errors.Is(cause.Public(err), cause.ErrUnsupported) {
		t.Errorf("%v", err)
	}
}

// A record says which blocks a volume uses.
func TestARecordChoosesItsBacking(t *testing.T) {
	for _, c := range []struct {
		record records.Volume
		node   string
		inPool bool
	}{
		{records.Volume{}, "/pool/volumes/db/image", true},
		{records.Volume{Device: "/dev/sdb1"}, "/dev/sdb1", false},
		{records.Volume{LVM: records.NewLogicalVolume("vg0", "tp", "1")}, "/dev/vg0/daybook-1", false},
	} {
		blocks := Of("/pool/volumes/db", c.record, nil)
		if blocks.Node() != c.node || c.record.InPool() != c.inPool {
			t.Errorf("%+v: %s, in the pool %v", c.record, blocks.Node(), c.record.InPool())
		}
		if err := blocks.CheckCopy(); errors.Is(err, cause.ErrUnsupported) != (c.record.Device != "") {
			t.Errorf("%s: copies: %v", c.node, err)
		}
	}
}

// A command without a message in English, or with other capitals, would hide that the
// volume group is full.
func TestAFullVolumeGroupIsNoSpace(t *testing.T) {
	for _, c := range []struct {
		says string
		full bool
	}{
		{`Volume group "vg0" has insufficient free space (3 extents): 16 required.`, true},
		{`Insufficient free space: 16 extents needed, but only 3 available`, true},
		{`Insufficient Free Space`, true},
		{`No free extents on physical volume "/dev/vdb"`, true},
		{`Cannot create new thin volume, free space in thin pool vg0/tp reached threshold.`, true},
		{`Volume group "vg0" not found`, false},
	} {
		programs := t.TempDir()
		script := "#!/bin/sh\n[ \"$LC_ALL\" = C ] && echo '" + c.says + "' >&2\nexit 5\n"
		if err := os.WriteFile(filepath.Join(programs, "lvcreate"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", programs+":/usr/bin:/bin")
		t.Setenv("LC_ALL", "de_DE.UTF-8")
		record := records.Volume{Name: "db", SizeBytes: 64 << 20, LVM: records.NewLogicalVolume("vg0", "", "1")}
		for _, held := range []*os.File{nil, os.Stderr} {
			err := Of("", record, nil).Create(t.Context(), held)
			if errors.Is(err, cause.ErrNoSpace) != c.full || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", c.says, err)
			}
		}
	}
}

func TestAThinPoolWithAllDataInUseIsFull(t *testing.T) {
	for _, c := range []struct{ health, percent, want string }{
		{"", "99.99", ""}, {"", "", ""}, {"", "100.00", "full: "}, {"out_of_data", "50.00", "full: "}, {"failed", "100.00", "damaged: "},
	} {
		problem, bad := found{Health: c.health, DataPercent: c.percent}.poolProblem()
		if bad != (c.want != "") || !strings.HasPrefix(problem, c.want) {
			t.Errorf("health %q, %q %%: %q, %v; want %q", c.health, c.percent, problem, bad, c.want)
		}
	}
}
