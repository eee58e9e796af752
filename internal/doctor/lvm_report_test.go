package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
)

// A host with thousands of logical volumes, and with warnings before and after the report.
func TestALongReportOfLVMIsReadBesideWarnings(t *testing.T) {
	needs.Root(t)
	const volumes = 20_000
	script := fmt.Sprintf(`#!/bin/sh
echo '  WARNING: {before}' >&2
echo '{"report":[{"lv":['
echo '{"lv_name":"tp","vg_name":"vg0","lv_size":"1","segtype":"thin-pool","data_percent":"1.00","metadata_percent":"1.00"}'
i=0; while [ $i -lt %d ]; do i=$((i+1)); echo ',{"lv_name":"daybook-'$i'","vg_name":"vg0","lv_size":"1","pool_lv":"tp","lv_tags":"daybook","segtype":"thin"}'; done
echo ']}]}'
echo '  WARNING: after' >&2`, volumes)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lvs"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	pools, err := thinPools(t.Context())
	if err != nil || len(pools) != 1 || pools[0].Volumes != volumes {
		t.Errorf("%+v, %v", pools, err)
	}
}
