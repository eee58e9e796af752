package calibrate

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"time"
)

// DiskFormatVersion is raised when a field of DiskModel changes its meaning.
const DiskFormatVersion = 1

// Coefficients are those of io.cost's linear model, by the names of io.cost.model
// (Documentation/admin-guide/cgroup-v2.rst): bytes per second of large sequential
// requests, and requests of 4 KiB per second, one after the other and at random.
type Coefficients struct {
	ReadBytesPerSecond       uint64 `json:"rbps"`
	ReadSequentialPerSecond  uint64 `json:"rseqiops"`
	ReadRandomPerSecond      uint64 `json:"rrandiops"`
	WriteBytesPerSecond      uint64 `json:"wbps"`
	WriteSequentialPerSecond uint64 `json:"wseqiops"`
	WriteRandomPerSecond     uint64 `json:"wrandiops"`
}

// named lists them in the kernel's order.
func (c Coefficients) named() []struct {
	name  string
	value uint64
} {
	return []struct {
		name  string
		value uint64
	}{
		{"rbps", c.ReadBytesPerSecond}, {"rseqiops", c.ReadSequentialPerSecond}, {"rrandiops", c.ReadRandomPerSecond},
		{"wbps", c.WriteBytesPerSecond}, {"wseqiops", c.WriteSequentialPerSecond}, {"wrandiops", c.WriteRandomPerSecond},
	}
}

// Check rejects coefficients that io.cost cannot use.
func (c Coefficients) Check() error {
	for _, n := range c.named() {
		if n.value == 0 {
			return fmt.Errorf("%s is 0", n.name)
		}
	}
	return nil
}

// DefaultModelPart is the part of the measured rates that the proposed model has. io.cost does not
// count the journal, so a model of the whole rate lets requests wait in the disk, which knows no
// weights: with it, two volumes had 53:47 in place of 70:30, and with three quarters of the rate
// 70:30 (docs/results/guest-volumes.md).
const DefaultModelPart = 0.75

// leastModelPart is the least part that a model may have.
const leastModelPart = 0.1

// times returns a part of all rates, each at least 1.
func (c Coefficients) times(part float64) Coefficients {
	of := func(rate uint64) uint64 { return max(1, uint64(part*float64(rate))) }
	return Coefficients{
		of(c.ReadBytesPerSecond), of(c.ReadSequentialPerSecond), of(c.ReadRandomPerSecond),
		of(c.WriteBytesPerSecond), of(c.WriteSequentialPerSecond), of(c.WriteRandomPerSecond),
	}
}

// Model is the text for io.cost.model.
func (c Coefficients) Model(dev string) string {
	words := []string{dev, "ctrl=user model=linear"}
	for _, n := range c.named() {
		words = append(words, fmt.Sprintf("%s=%d", n.name, n.value))
	}
	return strings.Join(words, " ")
}

// io.cost computes the length of its period from the latencies of io.cost.qos, twice
// the greater one (ioc_refresh_period_us, block/blk-iocost.c; 1 ms to 1 s). It must
// be longer than a large write takes, or io.cost lets through more than its model
// allows (docs/results/guest-volumes.md).
const (
	largeWriteBytes        = 1 << 20
	latencyOfLargeWrites   = 3.0
	minLatency, maxLatency = 5_000, 250_000 // of the kernel's own tables, in µs
)

// QoS is the text for io.cost.qos.
func (c Coefficients) QoS(dev string) string {
	slowest := math.Min(float64(c.ReadBytesPerSecond), float64(c.WriteBytesPerSecond))
	latency := math.Max(minLatency, math.Min(maxLatency, latencyOfLargeWrites*1e6*largeWriteBytes/slowest))
	step := 1000.0
	micros := uint64(math.Ceil(latency/step) * step)
	return fmt.Sprintf("%s enable=1 ctrl=user rpct=0 rlat=%d wpct=0 wlat=%d min=100 max=100", dev, micros, micros)
}

// DiskModel is what MeasureDisk found.
type DiskModel struct {
	Version int       `json:"daybook_io_cost"`
	Time    time.Time `json:"time"`
	Kernel  string    `json:"kernel"`
	// Device is the disk's name in /sys/block, Dev its "major:minor".
	Device string `json:"device"`
	Dev    string `json:"dev"`
	// Scheduler was in use; "": unknown.
	Scheduler string `json:"scheduler"`
	// Directory is where the file of the tests was, "" for the disk itself. Bytes is
	// the length of the file or of the disk.
	Directory string `json:"directory"`
	Bytes     uint64 `json:"bytes"`

	Coefficients Coefficients `json:"coefficients"`
	// ModelPart is the part of the coefficients that Model has, 0.1 to 1.
	ModelPart float64 `json:"model_part"`
	// CgroupRoot has the files io.cost.model and io.cost.qos, Model and QoS are the
	// proposed lines for them.
	CgroupRoot string   `json:"cgroup_root"`
	Model      string   `json:"model"`
	QoS        string   `json:"qos"`
	Warnings   []string `json:"warnings"`
}

func (m *DiskModel) propose() {
	m.Model, m.QoS = m.Coefficients.times(m.ModelPart).Model(m.Dev), m.Coefficients.QoS(m.Dev)
}

// Commands set io.cost up.
func (m DiskModel) Commands() []string {
	return []string{
		fmt.Sprintf("echo '%s' > %s", m.Model, filepath.Join(m.CgroupRoot, "io.cost.model")),
		fmt.Sprintf("echo '%s' > %s", m.QoS, filepath.Join(m.CgroupRoot, "io.cost.qos")),
	}
}

// Write prints the model for people.
func (m DiskModel) Write(w io.Writer) error {
	on := "the disk itself"
	if m.Directory != "" {
		on = fmt.Sprintf("a file of %.0f MB in %s", float64(m.Bytes)/1e6, m.Directory)
	}
	_, err := fmt.Fprintf(w, "io.cost's model of %s (%s), measured on %s\n\n", m.Device, m.Dev, on)
	if err != nil {
		return err
	}
	c := m.Coefficients
	fmt.Fprintf(w, "%22s %12s %12s\n", "", "reads", "writes")
	fmt.Fprintf(w, "%22s %12.1f %12.1f\n", "MB/s, sequential", float64(c.ReadBytesPerSecond)/1e6, float64(c.WriteBytesPerSecond)/1e6)
	fmt.Fprintf(w, "%22s %12d %12d\n", "4 KiB/s, sequential", c.ReadSequentialPerSecond, c.WriteSequentialPerSecond)
	fmt.Fprintf(w, "%22s %12d %12d\n", "4 KiB/s, random", c.ReadRandomPerSecond, c.WriteRandomPerSecond)
	fmt.Fprintf(w, "\nNothing was changed. To divide the disk by io.cost, until the next boot, with %.0f %% of these rates (--model-part):\n\n", 100*m.ModelPart)
	for _, command := range m.Commands() {
		if _, err := fmt.Fprintln(w, command); err != nil {
			return err
		}
	}
	return nil
}
