package report

import (
	"runtime"

	"github.com/daybook-project/daybook/internal/kernel"
)

// Host is what one must know of the machine to read the figures.
type Host struct {
	Kernel string `json:"kernel"`
	// Architecture as Go names it; CPUs that this process may use.
	Architecture string `json:"architecture"`
	CPUs         int    `json:"cpus"`
}

func ThisHost() Host {
	return Host{Kernel: kernel.Release(), Architecture: runtime.GOARCH, CPUs: runtime.NumCPU()}
}
