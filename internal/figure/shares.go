package figure

import (
	"errors"
	"fmt"

	"github.com/daybook-project/daybook/internal/account"
)

// Limits of what one figure can show legibly.
const (
	maxContainers = 8
	maxPhases     = 9
)

// SVG is a figure made by this package: one svg element in UTF-8 without an XML
// prologue, suitable for a file and for an HTML page.
type SVG []byte

// Phase is one part of an experiment, such as "uncontrolled".
type Phase struct {
	Name string
	// Samples are in the order of time. A sample without the device leaves a
	// gap; one with an interval below 1 ms is skipped.
	Samples []account.Sample
}

// Container is a container to show.
type Container struct {
	// Cgroup is its path in the samples.
	Cgroup string
	// Name is the displayed name; empty means the name in the samples, or else
	// the path.
	Name string
	// Target is the configured share, 0..1; 0 means TargetShare of the samples.
	Target float64
}

// Shares is an experiment on one disk. Shares are computed among Containers
// only, so that they compare with the targets: the root cgroup and other
// cgroups are not part of the sum.
type Shares struct {
	// Device is the disk's name in the samples, such as "loop0".
	Device string
	// Containers are one to eight, in the order of display.
	Containers []Container
	// Phases are one to eight, one column each.
	Phases []Phase
}

// Panel is a kind of panel: one row of a picture.
type Panel int

const (
	// Throughput is bytes per second over time, the journal included
	// (paper 1, Figs. 2 and 5).
	Throughput Panel = iota
	// Frequency is the cumulative frequency of the share in an interval (paper
	// 1, Figs. 3 and 6); the target is a dashed line.
	Frequency
	// Composition is the kinds of bytes: charged, journal, metadata, uncharged.
	Composition
	// Weights is the weight in force over time.
	Weights
	panelKinds int = iota
)

// SVG draws the panels as rows and the phases as columns; without panels it
// draws [Throughput] and [Frequency]. It fails only for invalid input; phases
// without samples give empty panels.
func (s Shares) SVG(panels ...Panel) (SVG, error) {
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("cannot draw the shares of %q: %w", s.Device, err)
	}
	if len(panels) == 0 {
		panels = []Panel{Throughput, Frequency}
	}
	for _, p := range panels {
		if p < 0 || int(p) >= panelKinds {
			return nil, fmt.Errorf("cannot draw the shares of %q: there is no panel of kind %d", s.Device, p)
		}
	}
	return drawGrid(s.reduce(), panels), nil
}

func (s Shares) check() error {
	if s.Device == "" {
		return errors.New("no device is named")
	}
	if n := len(s.Containers); n < 1 || n > maxContainers {
		return fmt.Errorf("it has %d containers; want 1 to %d", n, maxContainers)
	}
	if n := len(s.Phases); n < 1 || n > maxPhases {
		return fmt.Errorf("it has %d phases; want 1 to %d", n, maxPhases)
	}
	seen := make(map[string]bool, len(s.Containers))
	for _, c := range s.Containers {
		if seen[c.Cgroup] {
			return fmt.Errorf("the cgroup %q is named twice", c.Cgroup)
		}
		seen[c.Cgroup] = true
		// The negation also catches NaN.
		if !(c.Target >= 0 && c.Target <= 1) {
			return fmt.Errorf("the target of %q is %g; want 0 to 1", c.Cgroup, c.Target)
		}
	}
	return nil
}
