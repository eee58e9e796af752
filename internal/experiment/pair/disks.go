package pair

import (
	"fmt"

	"github.com/daybook-project/daybook/internal/disksim"
)

// The disks.
const (
	// HDD, SlowHDD and QuickHDD are simulated.
	HDD      = "hdd"
	SlowHDD  = "slow-hdd"
	QuickHDD = "quick-hdd"
	// Plain is a loop device on a file of the host's disk.
	Plain = "plain"
)

// Rotational reports whether a disk is simulated with a head that moves.
func Rotational(disk string) bool { return model(disk).Rotational }

// model returns the model of a simulated disk.
func model(disk string) disksim.Parameters {
	p := hddModel()
	switch disk {
	case SlowHDD:
		p.BandwidthBytesPerSecond, p.FlushSeconds = 40e6, 0.001
		p.TrackToTrackSeekSeconds, p.FullStrokeSeekSeconds = 0.001, 0.012
	case QuickHDD:
		p.BandwidthBytesPerSecond, p.FlushSeconds = 80e6, 0.002
		p.TrackToTrackSeekSeconds, p.FullStrokeSeekSeconds = 0.0008, 0.01
	}
	return p
}

// hddModel is the model of HDD.
func hddModel() disksim.Parameters {
	return disksim.Parameters{
		BandwidthBytesPerSecond: 60e6,
		FullStrokeSeekSeconds:   0.008,
		TrackToTrackSeekSeconds: 0.0005,
		FlushSeconds:            0.0005,
		HostSlackSeconds:        0.002,
		Rotational:              true,
	}
}

// Describe describes a disk for reports.
func Describe(disk string) string {
	if disk == Plain {
		return "a loop device on a file of the host's disk"
	}
	p := model(disk)
	return fmt.Sprintf("simulated: %.0f MB/s, seek %.1f to %.0f ms, flush %.1f ms",
		p.BandwidthBytesPerSecond/1e6, p.TrackToTrackSeekSeconds*1e3, p.FullStrokeSeekSeconds*1e3, p.FlushSeconds*1e3)
}
