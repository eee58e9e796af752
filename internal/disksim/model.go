package disksim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Op is the operation of a request.
type Op int

// The operations of a disk.
const (
	Read Op = iota
	Write
	Flush
	Discard
)

// Parameters are the service times of the disk. Times are in seconds, 0 to 10.
type Parameters struct {
	// BandwidthBytesPerSecond is the rate of a sequential transfer; 0 means no
	// limit.
	BandwidthBytesPerSecond float64 `json:"bandwidth_bytes_per_second"`
	// FullStrokeSeekSeconds is the seek time from the first byte to the last.
	FullStrokeSeekSeconds float64 `json:"full_stroke_seek_seconds"`
	// TrackToTrackSeekSeconds is the time of the shortest seek; at most
	// FullStrokeSeekSeconds.
	TrackToTrackSeekSeconds float64 `json:"track_to_track_seek_seconds"`
	// RotationalLatencySeconds is added to each seek: half a turn.
	RotationalLatencySeconds float64 `json:"rotational_latency_seconds"`
	// RequestSeconds is added to each read and write, seek or not.
	RequestSeconds float64 `json:"request_seconds"`
	// FlushSeconds is the time of a cache flush.
	FlushSeconds float64 `json:"flush_seconds"`
	// HostSlackSeconds is the longest delay after the end of a request at which
	// the next one still counts as queued. That delay is the host's (waking the
	// reader, block layer and FUSE) and would otherwise make the disk slower on
	// a busier host.
	HostSlackSeconds float64 `json:"host_slack_seconds"`
	// Rotational is reported to the kernel, and BFQ uses it.
	Rotational bool `json:"rotational"`
}

// rotational is Rotational as the kernel shows it.
func (p Parameters) rotational() string {
	if p.Rotational {
		return "1"
	}
	return "0"
}

// Presets by name. They are slow for their kind, so that any host can simulate
// them and an effect is visible within a minute.
var presets = map[string]Parameters{
	// A disk on which metadata is expensive: a laptop's hard disk.
	"hdd": {
		BandwidthBytesPerSecond: 40e6,
		FullStrokeSeekSeconds:   0.008,
		TrackToTrackSeekSeconds: 0.0005,
		HostSlackSeconds:        0.002,
		Rotational:              true,
	},
	// A SATA solid-state disk: no seeks, but each request has a cost.
	"ssd": {
		BandwidthBytesPerSecond: 500e6,
		RequestSeconds:          60e-6,
		FlushSeconds:            0.0005,
		HostSlackSeconds:        0.0005,
	},
	// Only a bandwidth: the effect of sharing without seeks.
	"flat": {BandwidthBytesPerSecond: 400e6, HostSlackSeconds: 0.0005},
}

// PresetNames lists the presets.
func PresetNames() []string {
	names := make([]string, 0, len(presets))
	for name := range presets {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Preset returns the parameters of "hdd", "ssd" or "flat".
func Preset(name string) (Parameters, error) {
	parameters, found := presets[name]
	if !found {
		return Parameters{}, fmt.Errorf("no disk model %q: choose one of %s", name, strings.Join(PresetNames(), ", "))
	}
	return parameters, nil
}

const (
	maxSeconds   = 10
	minBandwidth = 1000
)

// Check returns an error if a parameter is out of range.
func (p Parameters) Check() error {
	for _, time := range []struct {
		name  string
		value float64
	}{
		{"full-stroke seek", p.FullStrokeSeekSeconds},
		{"track-to-track seek", p.TrackToTrackSeekSeconds},
		{"rotational latency", p.RotationalLatencySeconds},
		{"request time", p.RequestSeconds},
		{"flush time", p.FlushSeconds},
		{"host slack", p.HostSlackSeconds},
	} {
		if !(time.value >= 0 && time.value <= maxSeconds) { // NaN too
			return fmt.Errorf("%s of %g s: want 0 to %d s", time.name, time.value, maxSeconds)
		}
	}
	if p.TrackToTrackSeekSeconds > p.FullStrokeSeekSeconds {
		return fmt.Errorf("the track-to-track seek (%g s) is longer than the full stroke (%g s)",
			p.TrackToTrackSeekSeconds, p.FullStrokeSeekSeconds)
	}
	b := p.BandwidthBytesPerSecond
	if b != 0 && !(b >= minBandwidth && !math.IsInf(b, 1)) {
		return fmt.Errorf("bandwidth of %g B/s: want at least %d B/s, or 0 for no bound", b, minBandwidth)
	}
	return nil
}

// Model is a disk with a size.
type Model struct {
	Parameters
	SizeBytes uint64
}

// Service returns the service time of a request for a disk whose head is at
// byte head, and the head's new position. It is a pure function. The time never
// decreases with the distance in one direction, nor with the length.
//
// A seek takes track-to-track + (full stroke - track-to-track) * the square
// root of the distance (the arm accelerates over one half of the way and brakes
// over the other), plus the rotational latency. If the target is a little
// ahead, and it is faster, the disk just rotates there.
func (m Model) Service(head uint64, op Op, offset, length uint64) (time.Duration, uint64) {
	switch op {
	case Flush:
		return duration(m.FlushSeconds), head
	case Discard:
		return 0, head
	}
	seconds := m.seekSeconds(head, offset) + m.RequestSeconds
	if m.BandwidthBytesPerSecond > 0 {
		seconds += float64(length) / m.BandwidthBytesPerSecond
	}
	return duration(seconds), offset + length
}

func (m Model) seekSeconds(head, offset uint64) float64 {
	if head == offset {
		return 0
	}
	distance := float64(max(head, offset) - min(head, offset))
	part := 1.0
	if m.SizeBytes > 0 {
		part = min(1, distance/float64(m.SizeBytes))
	}
	seek := m.TrackToTrackSeekSeconds + m.RotationalLatencySeconds +
		(m.FullStrokeSeekSeconds-m.TrackToTrackSeekSeconds)*math.Sqrt(part)
	if offset > head && m.BandwidthBytesPerSecond > 0 {
		seek = min(seek, distance/m.BandwidthBytesPerSecond)
	}
	return seek
}

func duration(seconds float64) time.Duration {
	return time.Duration(math.Round(seconds * float64(time.Second)))
}
