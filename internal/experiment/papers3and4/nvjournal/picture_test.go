package nvjournal

import "testing"

// All engines of the benchmark and of the counter together are not too many subjects, and
// all panels of two streams are not too many panels.
func TestThePictureHasRoomForAllEngines(t *testing.T) {
	result := Result{Streams: []Stream{{Stream: "varmail"}, {Stream: "create"}}}
	engine := func(name string, partitions int) {
		bytes := 100.0
		result.Rows = append(result.Rows, Row{Stream: "varmail", Engine: name, Partitions: partitions, Threads: 1, BytesPerUpdate: &bytes,
			Rounds: []Round{{Round: 1, UpdatesPerSecond: 1e6}}})
	}
	engine("nvjournal", 1)
	engine("nvjournal", 8)
	engine(byProcessor, 16)
	for _, name := range []string{"nvjournal-blocks", sameOneLock, "one-lock", bestOneLock, "jbd2-like", "libpmemobj", "libpmemlog"} {
		engine(name, 1)
	}
	for _, r := range result.Rows {
		result.Transfers = append(result.Transfers, Transfer{Stream: r.Stream, Engine: r.Engine, Partitions: r.Partitions, Processors: 1})
	}
	result.Transfers = append(result.Transfers, Transfer{Stream: "varmail", Engine: "nvjournal-commit-worker", Partitions: 1, Processors: 1},
		Transfer{Stream: "varmail", Engine: byProcessor, Partitions: 64, Processors: 1})
	result.evaluate()
	for _, s := range result.Streams {
		for _, fence := range []float64{0, 100} {
			rates := []Rate{{State: NVJNear, Rounds: 1}, {State: Apart, Rounds: 1}}
			result.Latency = append(result.Latency, Latency{FenceNanoseconds: fence, Stream: s.Stream, Engine: "nvjournal", Partitions: 8, Threads: 2, Rates: rates})
		}
	}
	if _, err := result.curves().SVG(); err != nil {
		t.Error(err)
	}
}

func TestASectionWithoutCurvesHasAReport(t *testing.T) {
	report, err := Result{Rings: []Rings{{Partitions: 1, RegionBytes: 64 << 20}}}.Report()
	if err != nil || report.Picture != nil {
		t.Errorf("%v, a picture of %d bytes; want no picture", err, len(report.Picture))
	}
}
