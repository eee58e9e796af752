package disksim

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// anyModel draws a valid model.
func anyModel(t *rapid.T) Model {
	full := rapid.Float64Range(0, 0.05).Draw(t, "full")
	m := Model{
		SizeBytes: rapid.Uint64Range(MinSizeBytes, 1<<40).Draw(t, "size"),
		Parameters: Parameters{
			BandwidthBytesPerSecond:  rapid.Float64Range(1e6, 1e9).Draw(t, "bandwidth"),
			FullStrokeSeekSeconds:    full,
			TrackToTrackSeekSeconds:  full * rapid.Float64Range(0, 1).Draw(t, "track"),
			RotationalLatencySeconds: rapid.Float64Range(0, 0.01).Draw(t, "rotation"),
			RequestSeconds:           rapid.Float64Range(0, 0.001).Draw(t, "request"),
			FlushSeconds:             rapid.Float64Range(0, 0.01).Draw(t, "flush"),
		},
	}
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAFartherSeekInOneDirectionNeverTakesLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyModel(t)
		head := rapid.Uint64Range(0, m.SizeBytes).Draw(t, "head")
		near := rapid.Uint64Range(0, m.SizeBytes).Draw(t, "near")
		var far uint64
		if near >= head {
			far = rapid.Uint64Range(near, m.SizeBytes).Draw(t, "far")
		} else {
			far = rapid.Uint64Range(0, near).Draw(t, "far")
		}
		nearTime, _ := m.Service(head, Read, near, 4096)
		farTime, _ := m.Service(head, Read, far, 4096)
		if farTime < nearTime {
			t.Errorf("from %d to %d takes %v, to %d only %v", head, near, nearTime, far, farTime)
		}
	})
}

func TestALongerRequestNeverTakesLessAndLeavesTheHeadAtItsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyModel(t)
		head := rapid.Uint64Range(0, m.SizeBytes).Draw(t, "head")
		offset := rapid.Uint64Range(0, m.SizeBytes).Draw(t, "offset")
		short := rapid.Uint64Range(0, maxTransferBytes).Draw(t, "short")
		long := rapid.Uint64Range(short, maxTransferBytes).Draw(t, "long")
		op := rapid.SampledFrom([]Op{Read, Write}).Draw(t, "op")
		shortTime, _ := m.Service(head, op, offset, short)
		longTime, end := m.Service(head, op, offset, long)
		if longTime < shortTime {
			t.Errorf("%d bytes take %v, %d only %v", short, shortTime, long, longTime)
		}
		if end != offset+long {
			t.Errorf("the head is at %d, want %d", end, offset+long)
		}
		if again, _ := m.Service(head, op, offset, long); again != longTime {
			t.Errorf("the same request took %v and %v", longTime, again)
		}
	})
}

func TestSequentialTransfersRunAtTheBandwidthWhateverTheirSize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyModel(t)
		m.RequestSeconds = 0
		length := rapid.Uint64Range(4096, maxTransferBytes).Draw(t, "length")
		var total time.Duration
		var head uint64
		const requests = 100
		for range requests {
			var service time.Duration
			service, head = m.Service(head, Read, head, length)
			total += service
		}
		want := float64(requests*length) / m.BandwidthBytesPerSecond
		// Each service time is rounded to a nanosecond.
		if math.Abs(total.Seconds()-want) > requests*0.5e-9+1e-12 {
			t.Errorf("took %v, want %g s", total, want)
		}
	})
}

func TestASeekTakesAtMostTheFullStrokeAndRotation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyModel(t)
		head := rapid.Uint64Range(0, m.SizeBytes).Draw(t, "head")
		offset := rapid.Uint64Range(0, m.SizeBytes).Draw(t, "offset")
		service, _ := m.Service(head, Write, offset, 0)
		longest := m.FullStrokeSeekSeconds + m.RotationalLatencySeconds + m.RequestSeconds
		if service.Seconds() > longest+1e-9 {
			t.Errorf("took %v, want at most %g s", service, longest)
		}
		if head == offset && service != duration(m.RequestSeconds) {
			t.Errorf("no seek took %v", service)
		}
	})
}

func TestTheFullStrokeBackTakesTheFullStrokeSeek(t *testing.T) {
	m := Model{SizeBytes: 1 << 30, Parameters: presets["hdd"]}
	if service, _ := m.Service(1<<30, Read, 0, 0); service != 8*time.Millisecond {
		t.Errorf("took %v, want 8ms", service)
	}
	// A seek over a quarter of the distance takes half the time, above the
	// shortest seek.
	if service, _ := m.Service(1<<28, Read, 0, 0); service != 4250*time.Microsecond {
		t.Errorf("took %v, want 4.25ms", service)
	}
	// 40 kB ahead the rotation reaches the target in 1 ms, before the arm
	// would.
	m.TrackToTrackSeekSeconds = 0.002
	if service, _ := m.Service(0, Read, 40000, 0); service != time.Millisecond {
		t.Errorf("took %v, want 1ms", service)
	}
}

func TestFlushTakesItsTimeAndDiscardNone(t *testing.T) {
	m := Model{SizeBytes: 1 << 30, Parameters: Parameters{FlushSeconds: 0.003, FullStrokeSeekSeconds: 0.01}}
	if service, head := m.Service(77, Flush, 0, 0); service != 3*time.Millisecond || head != 77 {
		t.Errorf("flush took %v and left the head at %d", service, head)
	}
	if service, head := m.Service(77, Discard, 1<<20, 1<<20); service != 0 || head != 77 {
		t.Errorf("discard took %v and left the head at %d", service, head)
	}
}

func TestPresetsAreValidAndOthersAreRefused(t *testing.T) {
	for _, name := range PresetNames() {
		p, err := Preset(name)
		if err != nil || p.Check() != nil {
			t.Errorf("%s: %v, %v", name, err, p.Check())
		}
	}
	if _, err := Preset("tape"); err == nil {
		t.Error("an unknown preset was accepted")
	}
	for name, p := range map[string]Parameters{
		"negative":  {FlushSeconds: -1},
		"NaN":       {RequestSeconds: math.NaN()},
		"too long":  {FullStrokeSeekSeconds: 11},
		"order":     {TrackToTrackSeekSeconds: 0.01, FullStrokeSeekSeconds: 0.005},
		"slow":      {BandwidthBytesPerSecond: 1},
		"infinite":  {BandwidthBytesPerSecond: math.Inf(1)},
		"bandwidth": {BandwidthBytesPerSecond: math.NaN()},
	} {
		if p.Check() == nil {
			t.Errorf("%s: accepted %+v", name, p)
		}
	}
}
