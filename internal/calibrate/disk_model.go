package calibrate

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/daybook-project/daybook/internal/iocost"
)

// DiskFormatVersion is raised when a field of DiskModel changes its meaning.
const DiskFormatVersion = 1

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

	Coefficients iocost.Coefficients `json:"coefficients"`
	// ModelPart is the part of the coefficients that Model has, 0.1 to 1.
	ModelPart float64 `json:"model_part"`
	// Use is what the proposed lines are for.
	Use iocost.Use `json:"for"`
	// CgroupRoot has the files io.cost.model and io.cost.qos, Model and QoS are the
	// proposed lines for them.
	CgroupRoot string   `json:"cgroup_root"`
	Model      string   `json:"model"`
	QoS        string   `json:"qos"`
	Warnings   []string `json:"warnings"`
}

func (m *DiskModel) propose() {
	proposal := iocost.Propose(m.Coefficients, m.ModelPart, m.Use)
	m.Model, m.QoS = m.Dev+" "+proposal.Model, m.Dev+" "+proposal.QoS
}

// Commands set io.cost up.
func (m DiskModel) Commands() []string {
	return []string{
		fmt.Sprintf("echo '%s' > %s", m.Model, filepath.Join(m.CgroupRoot, "io.cost.model")),
		fmt.Sprintf("echo '%s' > %s", m.QoS, filepath.Join(m.CgroupRoot, "io.cost.qos")),
	}
}

// useText says for people what the lines are for.
var useText = map[iocost.Use]string{
	iocost.ForControl: "on a host with daybook control (--for control)",
	iocost.ForVolumes: "for volumes on a host without daybook control (--for volumes)",
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
	fmt.Fprintf(w, "\nNothing was changed. To divide the disk by io.cost, until the next boot, with %.0f %% of these rates (--model-part),\n%s:\n\n", 100*m.ModelPart, useText[m.Use])
	for _, command := range m.Commands() {
		if _, err := fmt.Fprintln(w, command); err != nil {
			return err
		}
	}
	return nil
}
