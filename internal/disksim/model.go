package disksim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Op is what a request asks of the disk.
type Op int

// The requests that a disk knows.
const (
	Read Op = iota
	Write
	Flush
	Discard
)

// Parameters say how long the disk takes. Times are seconds, 0 to 10.
type Parameters struct {
	// BandwidthBytesPerSecond is the rate of a sequential transfer; 0 is
	// without bound.
	BandwidthBytesPerSecond float64 `json:"bandwidth_bytes_per_second"`
	// FullStrokeSeekSeconds is the time from the first byte to the last.
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
	// HostSlackSeconds is how late a request may come after the one before
	// ended and still count as having waited. That time is the host's
	// (waking the reader, the way through block layer and FUSE) and would
	// otherwise make the disk slower the busier the host is.
	HostSlackSeconds float64 `json:"host_slack_seconds"`
	// Rotational is what the kernel is told, which BFQ heeds.
	Rotational bool `json:"rotational"`
}

// Presets by name. They are slow for their kind, so that any host keeps up
// and a minute shows an effect.
var presets = map[string]Parameters{
	// A disk on which metadata hurts: a laptop's platter.
	"hdd": {
		BandwidthBytesPerSecond: 40e6,
		FullStrokeSeekSeconds:   0.008,
		TrackToTrackSeekSeconds: 0.0005,
		HostSlackSeconds:        0.002,
		Rotational:              true,
	},
	// A SATA solid-state disk: no seeks, but no request is free.
	"ssd": {
		BandwidthBytesPerSecond: 500e6,
		RequestSeconds:          60e-6,
		FlushSeconds:            0.0005,
		HostSlackSeconds:        0.0005,
	},
	// Bandwidth alone: what sharing does without any seek.
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

// Preset gives the parameters of "hdd", "ssd" or "flat".
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

// Check says what is wrong with the parameters.
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

// Model is a disk of a size.
type Model struct {
	Parameters
	SizeBytes uint64
}

// Service gives how long a request takes a disk whose head is at byte head,
// and where the head is after it. It is a pure function; it never falls with
// the distance in one direction, nor with the length.
//
// A seek takes track-to-track + (full stroke - track-to-track) * the square
// root of the distance (the arm accelerates half the way and brakes the other
// half), plus the rotational latency. Where the target is a little ahead, the
// platter turns there by itself, if that is faster.
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
