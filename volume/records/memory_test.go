package records

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The default number of partitions is that of nvj format: its own test reads the same table.
func TestUsualPartitionsAreThoseOfNVJFormat(t *testing.T) {
	text, err := os.ReadFile("../../nvjournal/test/usual_partitions.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var mebibytes uint64
		var processors int
		var want uint32
		if _, err := fmt.Sscan(line, &mebibytes, &processors, &want); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if got := UsualPartitions(mebibytes<<20, processors); got != want {
			t.Errorf("%d MiB, %d processors: %d partitions, want %d", mebibytes, processors, got, want)
		}
		// Each slice from the least on can have its default.
		if mebibytes >= MinPartitionBytes>>20 && mebibytes<<20 <= MaxSliceBytes {
			if err := CheckSlice(mebibytes<<20, want); err != nil {
				t.Error(err)
			}
		}
		rows++
	}
	if rows < 20 {
		t.Errorf("the table has %d rows", rows)
	}
	if got := UsualPartitions(1<<30, 0); got != 1 {
		t.Errorf("processors unknown: %d partitions", got)
	}
	header, err := os.ReadFile("../../nvjournal/include/nvjournal.h")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(fmt.Sprintf(`NVJ_USUAL_PARTITION_BYTES \(UINT64_C\(%d\) << 20\)`, UsualPartitionBytes>>20)).Match(header) {
		t.Error("nvjournal.h has another NVJ_USUAL_PARTITION_BYTES")
	}
}
