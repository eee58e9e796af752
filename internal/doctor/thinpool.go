package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// nearlyFullPercent is how much of a thin pool is in use when doctor says so.
const nearlyFullPercent = 90

// thinPools asks LVM for the thin pools with volumes of Daybook, without a lock. Not with
// --readonly: LVM then does not ask the kernel how full they are.
func thinPools(ctx context.Context) ([]ThinPool, error) {
	text, err := lvmReport(ctx, "lvs", "--nolocking",
		"lv_name,vg_name,lv_size,pool_lv,lv_tags,segtype,data_percent,metadata_percent,lv_health_status")
	if err != nil || text == "" {
		return nil, err
	}
	return parseThinPools(text)
}

// parseThinPools reads what lvs prints, and leaves out pools without volumes of Daybook.
func parseThinPools(text string) ([]ThinPool, error) {
	type volume struct {
		Name     string `json:"lv_name"`
		Group    string `json:"vg_name"`
		Size     string `json:"lv_size"`
		Pool     string `json:"pool_lv"`
		Tags     string `json:"lv_tags"`
		Type     string `json:"segtype"`
		Data     string `json:"data_percent"`
		Metadata string `json:"metadata_percent"`
		Health   string `json:"lv_health_status"`
	}
	var report struct {
		Report []struct {
			LV []volume `json:"lv"`
		} `json:"report"`
	}
	if err := readLVMReport("lvs", text, &report); err != nil {
		return nil, err
	}
	var all []volume
	for _, part := range report.Report {
		all = append(all, part.LV...)
	}
	var pools []ThinPool
	for _, pool := range all {
		if pool.Type != "thin-pool" {
			continue
		}
		// Fields of a pool that is not active are empty.
		p := ThinPool{VolumeGroup: pool.Group, Name: pool.Name, Health: pool.Health, Inactive: pool.Data == "" || pool.Metadata == ""}
		p.SizeBytes, _ = strconv.ParseUint(pool.Size, 10, 64)
		p.DataPercent, _ = strconv.ParseFloat(pool.Data, 64)
		p.MetadataPercent, _ = strconv.ParseFloat(pool.Metadata, 64)
		for _, v := range all {
			if v.Group != pool.Group || v.Pool != pool.Name {
				continue
			}
			bytes, _ := strconv.ParseUint(v.Size, 10, 64)
			p.PromisedBytes += bytes
			if slices.Contains(strings.Split(v.Tags, ","), "daybook") {
				p.Volumes++
			}
		}
		if p.Volumes > 0 {
			pools = append(pools, p)
		}
	}
	return pools, nil
}

// examineThinPools says which thin pools of volumes are full, or nearly so.
func examineThinPools(pools []ThinPool) []Finding {
	var found []Finding
	for _, p := range pools {
		const id = "thin-pool"
		name := p.VolumeGroup + "/" + p.Name
		use := fmt.Sprintf("%.1f %% of its data and %.1f %% of its metadata are in use, by %s of Daybook", p.DataPercent, p.MetadataPercent,
			plural(p.Volumes, "logical volume", "logical volumes"))
		data, metadata := "lvextend --extents +20%LV "+name, "lvextend --poolmetadatasize +64M "+name
		switch {
		case p.Health == "partial":
			found = append(found, missing(id, name, "a physical volume of it is missing", "its volumes cannot be used, or not all of their blocks; vgs --options +pv_name shows which disk to attach again", ""))
		case p.Inactive && p.Health == "":
			found = append(found, note(id, name, "it is not active, so LVM does not know how full it is", "writes to its volumes wait or fail when it is full", "lvchange --activate y "+name))
		case p.Health == "failed":
			found = append(found, missing(id, name, "it is damaged: "+use, "its volumes cannot be written; see lvmthin(7)", ""))
		case p.Health == "metadata_read_only" || p.MetadataPercent >= 100:
			found = append(found, missing(id, name, "its metadata is full or damaged: "+use, "its volumes cannot be written; see lvmthin(7)", metadata))
		case p.Health == "out_of_data" || p.DataPercent >= 100:
			found = append(found, missing(id, name, "it is full: "+use, "writes to its volumes wait or fail; after failed writes, run daybook volume check --repair", data))
		case p.MetadataPercent >= nearlyFullPercent:
			found = append(found, note(id, name, "its metadata is nearly full: "+use, "its volumes become read-only when it is full", metadata))
		case p.DataPercent >= nearlyFullPercent:
			found = append(found, note(id, name, "it is nearly full: "+use, "writes to its volumes wait or fail when it is full", data))
		case p.Health != "":
			found = append(found, note(id, name, fmt.Sprintf("LVM reports %q of it: %s", p.Health, use), "see lvs(8), lv_health_status", ""))
		default:
			found = append(found, ok(id, name, "%s", use))
		}
	}
	return found
}
