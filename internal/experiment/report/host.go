package report

import (
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
