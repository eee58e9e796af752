package blockdev

import "testing"

func TestPartitionsAreNamedAsTheKernelDoes(t *testing.T) {
	for disk, want := range map[string]string{"loop0": "loop0p2", "nvme0n1": "nvme0n1p2", "vda": "vda2"} {
		if got := partitionName(disk, 2); got != want {
			t.Errorf("partition 2 of %s is called %s, not %s", disk, got, want)
		}
	}
}
