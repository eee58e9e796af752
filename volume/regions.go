package volume

import (
	"errors"

	"github.com/daybook-project/daybook/volume/internal/region"
)

// Region is persistent memory of the host.
type Region struct {
	// Device is its node.
	Device    string `json:"device"`
	SizeBytes uint64 `json:"size_bytes"`
	// Volatile says why the memory is not persistent; "" if it is, as far as the kernel
	// knows.
	Volatile string `json:"volatile,omitempty"`
	// ID is that of the table of slices; "" if there is none.
	ID string `json:"id,omitempty"`
	// FreeBytes have no slice, LongestFreeBytes of them in one piece; 0 without a table.
	FreeBytes        uint64        `json:"free_bytes"`
	LongestFreeBytes uint64        `json:"longest_free_bytes"`
	Slices           []RegionSlice `json:"slices"`
	// Problem says why the table cannot be read; "" if it can, or there is none.
	Problem string `json:"problem,omitempty"`
}

// RegionSlice is a part of a region with the journal of one volume.
type RegionSlice struct {
	ID string `json:"id"`
	// Volume and Pool are the names of its user when it was reserved.
	Volume      string `json:"volume"`
	Pool        string `json:"pool"`
	OffsetBytes uint64 `json:"offset_bytes"`
	SizeBytes   uint64 `json:"size_bytes"`
	// UsedBy is who has it now, such as "the mount of vdb"; "" is nobody.
	UsedBy string `json:"used_by,omitempty"`
}

// Regions lists the pmem devices of the host, with the slices that Daybook has reserved.
func Regions() []Region {
	all := []Region{}
	for _, node := range region.Nodes() {
		r := Region{Device: node, Slices: []RegionSlice{}}
		facts, err := region.Look(node)
		if err != nil {
			r.Problem = err.Error()
			all = append(all, r)
			continue
		}
		r.SizeBytes, r.Volatile = facts.Bytes, facts.Volatile
		table, err := region.List(node, "")
		switch {
		case errors.Is(err, region.ErrNoTable):
		case err != nil:
			r.Problem = err.Error()
		default:
			r.ID = table.ID
			r.FreeBytes, r.LongestFreeBytes = table.Free()
			for _, s := range table.Slices {
				r.Slices = append(r.Slices, RegionSlice{
					ID: s.ID, Volume: s.Volume, Pool: s.Pool, OffsetBytes: s.OffsetBytes, SizeBytes: s.SizeBytes,
					UsedBy: region.UserOf(facts.Dev, s.OffsetBytes, s.SizeBytes),
				})
			}
		}
		all = append(all, r)
	}
	return all
}
