package backing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/program"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/records"
)

// lvm runs the commands of lvm2. Its reports are read as JSON (--reportformat json,
// since lvm2 2.02.158), with sizes in bytes.
type lvm struct {
	// held is a lock that each command keeps until it has ended, even if the process
	// that started it is killed. Nil: none.
	held *os.File
}

// lvmTag is on all logical volumes that Daybook has created.
const lvmTag = "daybook"

// found is a logical volume as lvs reports it.
type found struct {
	Name        string `json:"lv_name"`
	Group       string `json:"vg_name"`
	Size        string `json:"lv_size"`
	ExtentSize  string `json:"vg_extent_size"`
	Pool        string `json:"pool_lv"`
	Origin      string `json:"origin"`
	Tags        string `json:"lv_tags"`
	DataPercent string `json:"data_percent"`
	Type        string `json:"segtype"`
	// Health is that of a thin pool: "out_of_data", "metadata_read_only", "failed"; or
	// "partial".
	Health string `json:"lv_health_status"`
	// ChunkSize, MetadataSize and MetadataPercent are those of a thin pool.
	ChunkSize       string `json:"chunk_size"`
	MetadataSize    string `json:"lv_metadata_size"`
	MetadataPercent string `json:"metadata_percent"`
	// Zero is "zero" if a thin pool clears chunks that it hands out.
	Zero string `json:"zero"`
}

const lvsFields = "lv_name,vg_name,lv_size,vg_extent_size,pool_lv,origin,lv_tags,data_percent,segtype,lv_health_status,chunk_size,lv_metadata_size,metadata_percent,zero"

// thinPoolType is the Type of a thin pool.
const thinPoolType = "thin-pool"

// poolProblems say what the health of a thin pool means for its volumes.
var poolProblems = map[string]string{
	"out_of_data":        "full: writes to it wait or fail; extend it with lvextend",
	"metadata_read_only": "read-only, because its metadata is full or damaged: see lvmthin(7)",
	"failed":             "damaged: see lvmthin(7)",
	"partial":            "incomplete: a physical volume is missing; vgs --options +pv_name shows which",
}

// poolProblem is what is wrong with a thin pool; bad is false if nothing is known. A pool without
// space forgets that when LVM loads its table again, until the next write.
func (f found) poolProblem() (problem string, bad bool) {
	if problem, bad = poolProblems[f.Health]; bad {
		return problem, true
	}
	if used, err := strconv.ParseFloat(f.DataPercent, 64); err == nil && used >= 100 {
		return poolProblems["out_of_data"], true
	}
	return "", false
}

// number reads a size in bytes; an empty text is 0.
func number(text string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimSuffix(text, "B"), 10, 64)
	return n
}

// allocated is the space that it takes in its volume group or thin pool, in bytes. It is 0
// for an inactive thin logical volume, of which lvs does not report it.
func (f found) allocated() uint64 {
	if f.Pool == "" {
		return number(f.Size)
	}
	percent, _ := strconv.ParseFloat(f.DataPercent, 64)
	return uint64(float64(number(f.Size)) * percent / 100)
}

// ours says that it has Daybook's tag.
func (f found) ours() bool {
	for tag := range strings.SplitSeq(f.Tags, ",") {
		if tag == lvmTag {
			return true
		}
	}
	return false
}

// parseReport reads what lvs --reportformat json prints.
func parseReport(text []byte) ([]found, error) {
	var report struct {
		Report []struct {
			LV []found `json:"lv"`
		} `json:"report"`
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, fmt.Errorf("lvs prints no JSON: %w: %.200q", err, text)
	}
	var all []found
	for _, part := range report.Report {
		all = append(all, part.LV...)
	}
	return all, nil
}

// report runs a command that changes nothing. It is killed when the context ends, also
// while it waits for the lock of a volume group that another command holds.
func (l lvm) report(ctx context.Context, arguments ...string) ([]byte, error) {
	return output(ctx, program.Command{Path: arguments[0], Args: arguments[1:]}, arguments)
}

// run runs a command that changes something, and returns its standard output.
func (l lvm) run(ctx context.Context, arguments ...string) ([]byte, error) {
	// A killed command could leave a device suspended.
	command := program.Command{Path: arguments[0], Args: arguments[1:], Completes: true}
	if _, err := exec.LookPath(arguments[0]); err == nil && l.held != nil {
		// lvm2 closes unknown open files. So a shell keeps the lock.
		command.Path, command.Args = "sh", append([]string{"-c", `"$@"; exit $?`, "sh"}, arguments...)
		command.Inherited = []*os.File{l.held}
		command.Environment = []string{"LVM_SUPPRESS_FD_WARNINGS=1"}
	}
	return output(ctx, command, arguments)
}

// output runs a command and returns its standard output.
func output(ctx context.Context, command program.Command, arguments []string) ([]byte, error) {
	command.IfMissing = "install lvm2"
	// Its messages are read, too: see saysNoSpace.
	command.Environment = append(command.Environment, "LC_ALL=C")
	var problems bytes.Buffer
	command.Errors = &problems
	text, err := program.Output(ctx, command)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, err
	case err != nil && ctx.Err() != nil:
		return nil, errors.Join(ctx.Err(), err)
	case err != nil:
		said := strings.Join(strings.Fields(problems.String()), " ")
		if saysNoSpace(said) {
			return nil, fmt.Errorf("%w: %s: %s", cause.ErrNoSpace, arguments[0], said)
		}
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(arguments, " "), err, said)
	}
	return []byte(text), nil
}

// saysNoSpace says that a command failed because the volume group or thin pool is full.
// lvm2 has no exit status for that. A thin pool refuses new volumes and
// snapshots above thin_pool_autoextend_threshold ("Free space in pool vg0/tp reached
// threshold").
func saysNoSpace(said string) bool {
	said = strings.ToLower(said)
	for _, text := range []string{"insufficient free space", "no free extents", "reached threshold"} {
		if strings.Contains(said, text) {
			return true
		}
	}
	return false
}

// hasGroup says whether the host has a volume group.
func (l lvm) hasGroup(ctx context.Context, group string) (bool, error) {
	text, err := l.report(ctx, "vgs", "--reportformat", "json", "--options", "vg_name", "--select", "vg_name="+group)
	if err != nil {
		return false, err
	}
	var report struct {
		Report []struct {
			VG []struct{} `json:"vg"`
		} `json:"report"`
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return false, fmt.Errorf("vgs prints no JSON: %w: %.200q", err, text)
	}
	for _, part := range report.Report {
		if len(part.VG) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// list returns the logical volumes of a volume group that match a selection.
func (l lvm) list(ctx context.Context, group, selection string) ([]found, error) {
	text, err := l.report(ctx, "lvs", "--reportformat", "json", "--units", "b", "--nosuffix", "--options", lvsFields, "--select", selection, group)
	if err != nil {
		if has, groupErr := l.hasGroup(ctx, group); groupErr == nil && !has {
			return nil, fmt.Errorf("its volume group %s is missing: it is %w", group, ErrGroupGone)
		}
		return nil, err
	}
	return parseReport(text)
}

// find returns one logical volume; nil if it does not exist.
func (l lvm) find(ctx context.Context, lv records.LogicalVolume) (*found, error) {
	all, err := l.list(ctx, lv.VolumeGroup, "lv_name="+lv.Name)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

// snapshotsOf returns the names of the snapshots of a logical volume.
func (l lvm) snapshotsOf(ctx context.Context, lv records.LogicalVolume) ([]string, error) {
	all, err := l.list(ctx, lv.VolumeGroup, "origin="+lv.Name)
	var names []string
	for _, one := range all {
		names = append(names, one.Group+"/"+one.Name)
	}
	return names, err
}

// tags make a logical volume recognizable in lvs.
func tags(volume string) []string {
	return []string{"--addtag", lvmTag, "--addtag", "daybook.volume=" + volume}
}

func bytesText(bytes uint64) string { return strconv.FormatUint(bytes, 10) + "b" }

// create creates a linear or a thin logical volume, active.
func (l lvm) create(ctx context.Context, lv records.LogicalVolume, bytes uint64, volume string) error {
	arguments := []string{"lvcreate", "--quiet", "--yes", "--name", lv.Name}
	if lv.ThinPool != "" {
		arguments = append(arguments, "--type", "thin", "--thinpool", lv.ThinPool, "--virtualsize", bytesText(bytes))
	} else {
		arguments = append(arguments, "--type", "linear", "--size", bytesText(bytes), "--wipesignatures", "y", "--zero", "y")
	}
	_, err := l.run(ctx, append(append(arguments, tags(volume)...), lv.VolumeGroup)...)
	return err
}

type permission string

const (
	readOnly permission = "r"
	writable permission = "rw"
)

// snapshot creates a snapshot, active. In a thin pool it shares blocks. That of a thick
// origin reserves space for a copy of each block and for its metadata.
func (l lvm) snapshot(ctx context.Context, origin, to records.LogicalVolume, bytes uint64, volume string, may permission) error {
	arguments := []string{"lvcreate", "--quiet", "--yes", "--snapshot", "--permission", string(may), "--name", to.Name}
	if to.ThinPool != "" {
		arguments = append(arguments, "--setactivationskip", "n")
	} else {
		arguments = append(arguments, "--size", bytesText(bytes+snapshotOverhead(bytes)))
	}
	_, err := l.run(ctx, append(append(arguments, tags(volume)...), origin.String())...)
	return err
}

// snapshotOverhead is at least the metadata of a snapshot: 16 bytes for each chunk of
// 4 KiB, and a header. LVM takes no more than it can use.
func snapshotOverhead(bytes uint64) uint64 { return bytes/128 + 1<<20 }

// activate creates the device node of a logical volume.
func (l lvm) activate(ctx context.Context, lv records.LogicalVolume) error {
	_, err := l.run(ctx, "lvchange", "--quiet", "--yes", "--activate", "y", "--ignoreactivationskip", lv.String())
	return err
}

// setLength sets the length, rounded up to whole extents.
func (l lvm) setLength(ctx context.Context, lv records.LogicalVolume, bytes uint64) error {
	there, err := l.find(ctx, lv)
	if err != nil {
		return err
	}
	if there == nil {
		return fmt.Errorf("its logical volume %s is missing: it is %w", lv, cause.ErrCorrupt)
	}
	now, extent := number(there.Size), max(1, number(there.ExtentSize))
	want := (bytes + extent - 1) / extent * extent
	switch {
	case want > now:
		_, err = l.run(ctx, "lvextend", "--quiet", "--yes", "--size", bytesText(want), lv.String())
	case want < now:
		// The file system is shorter already.
		_, err = l.run(ctx, "lvreduce", "--quiet", "--yes", "--force", "--size", bytesText(want), lv.String())
	}
	return err
}

// checkRemove refuses a logical volume that Daybook has not created. It also refuses if
// lvremove would remove another such one with it: a thick snapshot is removed with its
// origin, and a thin one with an origin outside of its pool. In one thin pool nothing
// depends on the origin.
func (l lvm) checkRemove(ctx context.Context, lv records.LogicalVolume, there found) error {
	if !there.ours() {
		return fmt.Errorf("%s is %w: it has no tag %q, so Daybook did not create it", lv, cause.ErrBusy, lvmTag)
	}
	all, err := l.list(ctx, lv.VolumeGroup, "origin="+lv.Name)
	if err != nil {
		return err
	}
	for _, one := range all {
		if independent := one.Pool != "" && one.Pool == there.Pool; !independent && !one.ours() {
			return fmt.Errorf("%s is %w: LVM would remove its snapshot %s/%s, too, which has no tag %q, so Daybook did not create it", lv, cause.ErrBusy, one.Group, one.Name, lvmTag)
		}
	}
	return nil
}

// remove removes a logical volume that Daybook has created. If it is gone already, that is
// no error.
func (l lvm) remove(ctx context.Context, lv records.LogicalVolume) error {
	there, err := l.find(ctx, lv)
	if err != nil || there == nil {
		return err
	}
	if err := l.checkRemove(ctx, lv, *there); err != nil {
		return err
	}
	if err := AwaitUnused(ctx, lv.Node()); err != nil && !IsGone(err) {
		return err
	}
	_, err = l.run(ctx, "lvremove", "--quiet", "--yes", "--force", lv.String())
	if err != nil {
		// A command of a killed process may have removed it meanwhile.
		if there, findErr := l.find(ctx, lv); findErr == nil && there == nil {
			return nil
		}
	}
	return err
}
