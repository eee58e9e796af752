package shares

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/experiment/scenario"
	"github.com/daybook-project/daybook/internal/fio"
)

// Conditions are the properties in which the scenarios differ.
type Conditions struct {
	// Depth is the number of requests that each container has in flight.
	Depth int `json:"depth"`
	// Load is Readers, Writers, Syncers or Mixed.
	Load string `json:"load"`
	// Containers are 2, 3 or 4.
	Containers int `json:"containers"`
	// Storm means that one of the containers also changes metadata.
	Storm bool `json:"storm"`
	// Divider is the mechanism that divides the disk.
	Divider string `json:"divider"`
}

// The loads.
const (
	Readers = "readers"
	Writers = "writers"
	// Syncers are writers that call fsync.
	Syncers = "writers with fsync"
	// Mixed are a reader, a writer and one that does both.
	Mixed = "mixed"
)

// The dividers. Without weights, limits hold the shares.
const (
	// BFQDefault begins with BFQ's own tunables except low_latency=0, without which it
	// does not follow weights. Control may set others.
	BFQDefault = "BFQ default"
	// BFQRecommended has the tunables of the README.
	BFQRecommended = "BFQ recommended"
	MQDeadline     = "mq-deadline"
	None           = "none"
)

// defaultTunables are the kernel's, except low_latency.
func defaultTunables() map[string]uint64 { return map[string]uint64{"low_latency": 0} }

// base is the scenario from which each other one differs in one or two conditions.
var base = Conditions{Depth: 8, Load: Readers, Containers: 3, Storm: true, Divider: BFQDefault}

// Scenario is one of the plan.
type Scenario struct {
	Conditions
	scenario.Scenario
}

// plan covers the conditions: each value of each is in at least two scenarios.
func (settings Settings) plan() []Scenario {
	changes := []func(*Conditions){
		func(*Conditions) {},
		func(c *Conditions) { c.Divider = BFQRecommended },
		func(c *Conditions) { c.Depth, c.Containers = 1, 2 },
		func(c *Conditions) { c.Depth, c.Storm = 1, false },
		func(c *Conditions) { c.Depth = 32 },
		func(c *Conditions) { c.Depth, c.Divider = 32, BFQRecommended },
		func(c *Conditions) { c.Load, c.Storm = Writers, false },
		func(c *Conditions) { c.Load, c.Containers = Writers, 4 },
		func(c *Conditions) { c.Load = Syncers },
		func(c *Conditions) { c.Load = Mixed },
		func(c *Conditions) { c.Divider, c.Containers = MQDeadline, 2 },
		func(c *Conditions) { c.Divider, c.Load = MQDeadline, Mixed },
		func(c *Conditions) { c.Divider, c.Containers = None, 4 },
		func(c *Conditions) { c.Divider, c.Load = None, Syncers },
	}
	var scenarios []Scenario
	for _, change := range changes {
		c := base
		change(&c)
		scenarios = append(scenarios, settings.scenario(c))
	}
	return scenarios
}

// weights returns the weights of that many containers.
var weights = map[int][]uint64{2: {700, 300}, 3: {500, 300, 200}, 4: {400, 300, 200, 100}}

const (
	// changesPerSecond is the number of changes for which the storm's container has
	// room in its share.
	changesPerSecond = 600
	// fsyncEvery is 8 MiB.
	fsyncEvery = 64
)

func (settings Settings) scenario(c Conditions) Scenario {
	s := scenario.Scenario{Name: c.name(), Parameters: disk(), Interval: seconds(settings.IntervalSeconds), WarmUp: seconds(settings.WarmUpSeconds), AutoTunables: true}
	switch c.Divider {
	case BFQDefault:
		s.Tunables = defaultTunables()
	case MQDeadline:
		s.Scheduler = MQDeadline
	case None:
		s.Scheduler = blockdev.NoScheduler
	}
	for n, weight := range weights[c.Containers] {
		actor := scenario.Actor{Name: string(rune('A' + n)), Weight: weight, Stream: &scenario.Stream{Access: c.access(n), Depth: c.Depth}}
		if c.Load == Syncers {
			actor.Stream.FsyncEvery = fsyncEvery
		}
		if c.Storm && n == min(2, c.Containers-1) {
			actor.ChangesPerSecond = changesPerSecond
		}
		s.Actors = append(s.Actors, actor)
	}
	return Scenario{Conditions: c, Scenario: s}
}

func (c Conditions) access(container int) fio.Access {
	switch c.Load {
	case Readers:
		return fio.Read
	case Mixed:
		return []fio.Access{fio.Read, fio.Write, fio.ReadWrite, fio.Read}[container]
	}
	return fio.Write
}

// name lists all conditions, such as "3 readers, depth 8, storm, BFQ default".
func (c Conditions) name() string {
	storm := ""
	if c.Storm {
		storm = ", storm"
	}
	return fmt.Sprintf("%d %s, depth %d%s, %s", c.Containers, c.Load, c.Depth, storm, c.Divider)
}

// disk is the model "hdd", as in daybook disk create.
func disk() disksim.Parameters {
	parameters, err := disksim.Preset("hdd")
	if err != nil {
		panic(err) // a preset of this program
	}
	return parameters
}

// fair returns the same containers on BFQ with the recommended tunables.
func (c Conditions) fair() Conditions {
	c.Divider = BFQRecommended
	return c
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// sameAs compares definitions, to check that a result can be continued.
func (s Scenario) sameAs(other Scenario) bool {
	a, errA := json.Marshal(s)
	b, errB := json.Marshal(other)
	return errA == nil && errB == nil && string(a) == string(b)
}
