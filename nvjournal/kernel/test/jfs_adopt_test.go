package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// daybook adopt places the threads of jfsnvj's journal under a container's cgroup, and
// releases them.
func TestGuestJFSAdopted(t *testing.T) {
	vmtest.Long(t)
	config := vmtest.Config{Fresh: true}
	if !vmtest.Inside() {
		config.Give = append(config.Give, needs.Built(t, "daybook")+":"+daybookProgram)
	}
	inJFSGuest(t, config, func(t *testing.T) {
		v := jfsEight.make(t, plan{})
		c := newContainer(t, "adopts")
		in := func() (inside, outside int) {
			threads, err := ext4.ReadJournalThreads()
			if err != nil {
				t.Fatal(err)
			}
			for _, pid := range threads.InMemory(filepath.Base(v.disk)) {
				text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(text), c.name) {
					inside++
				} else {
					outside++
				}
			}
			return inside, outside
		}
		if inside, outside := in(); inside > 0 || outside != 1+jfsEight.partitions {
			t.Fatalf("before: %d threads are in the cgroup, %d elsewhere; want a commit thread and a worker for each partition", inside, outside)
		}
		must(t, daybookProgram, "adopt", v.dir, "--cgroup", "/"+c.name, "--once")
		if inside, outside := in(); inside != 1+jfsEight.partitions || outside > 0 {
			t.Errorf("adopted: %d threads are in the cgroup, %d elsewhere", inside, outside)
		}
		stormedWith(t, v.dir, jfsStorm(3, 100))
		must(t, daybookProgram, "adopt", "--release", v.dir)
		if inside, _ := in(); inside > 0 {
			t.Errorf("released: %d threads are still in the cgroup", inside)
		}
		v.end(nil)
	})
}
