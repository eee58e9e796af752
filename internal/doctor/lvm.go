package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/program"
)

// volumeGroups asks LVM, without a lock and without a change of its caches. Where LVM is
// not installed there are none.
func volumeGroups(ctx context.Context) ([]VolumeGroup, error) {
	if _, err := exec.LookPath("vgs"); errors.Is(err, exec.ErrNotFound) {
		return nil, nil
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("vgs wants root")
	}
	text, err := program.Run(ctx, program.Command{
		Path: "vgs", Args: []string{"--readonly", "--reportformat", "json", "--units", "b", "--nosuffix", "--options", "vg_name,vg_free,pv_name"},
		Environment: []string{"LC_ALL=C", "LVM_SUPPRESS_FD_WARNINGS=1"},
	})
	if err != nil {
		return nil, err
	}
	return parseVolumeGroups(text)
}

// parseVolumeGroups reads what vgs prints: a line for each physical volume.
func parseVolumeGroups(text string) ([]VolumeGroup, error) {
	var report struct {
		Report []struct {
			VG []struct {
				Name string `json:"vg_name"`
				Free string `json:"vg_free"`
				PV   string `json:"pv_name"`
			} `json:"vg"`
		} `json:"report"`
	}
	if start := strings.IndexByte(text, '{'); start > 0 {
		text = text[start:] // warnings come first
	}
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		return nil, fmt.Errorf("vgs prints no JSON: %w: %.200q", err, text)
	}
	var groups []VolumeGroup
	for _, part := range report.Report {
		for _, line := range part.VG {
			n := slices.IndexFunc(groups, func(g VolumeGroup) bool { return g.Name == line.Name })
			if n < 0 {
				free, err := strconv.ParseUint(line.Free, 10, 64)
				if err != nil {
					return nil, fmt.Errorf("vgs: %q is no number of free bytes of %q", line.Free, line.Name)
				}
				groups, n = append(groups, VolumeGroup{Name: line.Name, FreeBytes: free}), len(groups)
			}
			groups[n].Disks = append(groups[n].Disks, disksBelow(line.PV)...)
			slices.Sort(groups[n].Disks)
			groups[n].Disks = slices.Compact(groups[n].Disks)
		}
	}
	return groups, nil
}

// disksBelow names the disks that carry a device node; none if it is gone.
func disksBelow(node string) []string {
	disk, err := blockdev.Lookup(node)
	if err != nil {
		return nil
	}
	disks, err := disk.Physical()
	if err != nil {
		return nil
	}
	var names []string
	for _, d := range disks {
		names = append(names, d.Name)
	}
	return names
}
