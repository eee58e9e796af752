package report

import (
	"fmt"
	"runtime"
	"time"

	"github.com/daybook-project/daybook/internal/kernel"
)

// Host describes the machine of the measurement.
type Host struct {
	Kernel string `json:"kernel"`
	// Architecture as Go names it; CPUs that this process may use.
	Architecture string `json:"architecture"`
	CPUs         int    `json:"cpus"`
	// Measured is the day; "" in results from before it was kept.
	Measured string `json:"measured,omitempty"`
}

func ThisHost() Host {
	return Host{Kernel: kernel.Release(), Architecture: runtime.GOARCH, CPUs: runtime.NumCPU(), Measured: time.Now().UTC().Format(time.DateOnly)}
}

// SameHost returns an error unless figures of before and of now can be on one page: they have
// the same kernel, architecture and number of CPUs. The day may differ.
func SameHost(before, now Host) error {
	before.Measured = now.Measured
	if before == now {
		return nil
	}
	return fmt.Errorf("the earlier figures are of another host (kernel %s, %s, %d CPUs; this one: %s, %s, %d): measure all parts, or write to another file (--output)",
		before.Kernel, before.Architecture, before.CPUs, now.Kernel, now.Architecture, now.CPUs)
}
