package doctor

import (
	"fmt"

	"github.com/daybook-project/daybook/volume"
)

// examineRegions says how much of the persistent memory has journals of volumes.
func examineRegions(regions []volume.Region) []Finding {
	var found []Finding
	for _, r := range regions {
		const id = "memory-region"
		switch {
		case r.Problem != "":
			found = append(found, missing(id, r.Device, r.Problem, "volumes with their journal in it cannot be attached", ""))
			continue
		case r.Volatile != "":
			found = append(found, note(id, r.Device, "the memory is not persistent: "+r.Volatile, "a journal in it is lost with the power; volumes refuse it without --allow-volatile", ""))
		}
		if r.ID == "" {
			if r.Volatile == "" {
				found = append(found, ok(id, r.Device, "%d MiB of memory, no slices of volumes", r.SizeBytes>>20))
			}
			continue
		}
		var slices []string
		for _, s := range r.Slices {
			text := fmt.Sprintf("%s %d MiB", s.Volume, s.SizeBytes>>20)
			if s.UsedBy != "" {
				text += " in use"
			}
			slices = append(slices, text)
		}
		text := fmt.Sprintf("%d slices of volumes, %d of %d MiB free, %d MiB in one piece", len(slices), r.FreeBytes>>20, r.SizeBytes>>20, r.LongestFreeBytes>>20)
		if len(slices) > 0 {
			text += ": " + shortList(slices, 8)
		}
		found = append(found, ok(id, r.Device, "%s", text))
	}
	return found
}
