package synctime

import "math/bits"

// The buckets are those of bpf/synctime.bpf.c.
const (
	bucketCount = 200
	unitShift   = 10
	// parts is the number of buckets in each power of two.
	parts    = 8
	partBits = 3
)

// bucketOf is the bucket of a call of that duration in nanoseconds.
func bucketOf(nanoseconds uint64) int {
	units := nanoseconds >> unitShift
	if units < parts {
		return int(units)
	}
	log := bits.Len64(units) - 1
	return min((log-partBits+1)*parts+int(units>>(log-partBits)&(parts-1)), bucketCount-1)
}

// bucketBegin is the shortest time in a bucket, in nanoseconds; that of
// bucketCount is the end of the last one.
func bucketBegin(bucket int) float64 {
	if bucket < parts {
		return float64(uint64(bucket) << unitShift)
	}
	log := bucket/parts + partBits - 1
	return float64(uint64(parts+bucket%parts) << (log - partBits + unitShift))
}

// Latencies are the durations of the sync calls of a place.
type Latencies struct {
	// Calls is the number of ended calls, and DataOnly the number of them that
	// were fdatasync or O_DSYNC writes.
	Calls    uint64 `json:"calls"`
	DataOnly uint64 `json:"data_only"`
	// MeanSeconds is exact. The error of the percentiles is at most the width
	// of their bucket, an eighth of their value. All are 0 without calls.
	MeanSeconds float64 `json:"mean_seconds"`
	P50Seconds  float64 `json:"p50_seconds"`
	P99Seconds  float64 `json:"p99_seconds"`
}

func summarize(calls, dataOnly, nanoseconds uint64, buckets *[bucketCount]uint64) Latencies {
	l := Latencies{Calls: calls, DataOnly: dataOnly}
	if calls == 0 {
		return l
	}
	l.MeanSeconds = float64(nanoseconds) / float64(calls) / 1e9
	l.P50Seconds, l.P99Seconds = percentile(buckets, 0.5), percentile(buckets, 0.99)
	return l
}

// percentile assumes that the calls of a bucket are spread evenly over it.
func percentile(buckets *[bucketCount]uint64, part float64) (seconds float64) {
	var all uint64
	for _, n := range buckets {
		all += n
	}
	want := part * float64(all)
	var before float64
	for bucket, n := range buckets {
		if n > 0 && before+float64(n) >= want {
			begin, end := bucketBegin(bucket), bucketBegin(bucket+1)
			return (begin + (end-begin)*(want-before)/float64(n)) / 1e9
		}
		before += float64(n)
	}
	return 0
}
