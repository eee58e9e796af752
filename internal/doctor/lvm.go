package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// volumeGroups asks LVM, without a lock and without a change of its caches. Where LVM is
// not installed there are none.
func volumeGroups(ctx context.Context) ([]VolumeGroup, error) {
	text, err := lvmReport(ctx, "vgs", "--readonly", "vg_name,vg_free,pv_name")
	if err != nil || text == "" {
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
	if err := readLVMReport("vgs", text, &report); err != nil {
		return nil, err
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
