package fio

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Result is the total of the writers of a job, as fio reports it.
type Result struct {
	// Seconds is the measured time.
	Seconds float64 `json:"seconds"`
	// ReadBytes and WrittenBytes in that time.
	ReadBytes    uint64 `json:"read_bytes,omitempty"`
	WrittenBytes uint64 `json:"written_bytes"`
	// Syncs is the number of fsync calls. The times are per call, 0 without
	// calls.
	Syncs           uint64  `json:"syncs"`
	SyncMeanSeconds float64 `json:"sync_mean_seconds"`
	SyncP50Seconds  float64 `json:"sync_p50_seconds"`
	SyncP99Seconds  float64 `json:"sync_p99_seconds"`
}

// BytesPerSecond is the rate of writing; 0 if no time was measured.
func (r Result) BytesPerSecond() float64 {
	if r.Seconds <= 0 {
		return 0
	}
	return float64(r.WrittenBytes) / r.Seconds
}

// report is the part of fio's JSON that is used; latencies are in nanoseconds.
type report struct {
	Jobs []struct {
		Error int `json:"error"`
		Read  struct {
			IOBytes       uint64  `json:"io_bytes"`
			RuntimeMillis float64 `json:"runtime"`
		} `json:"read"`
		Elapsed uint64 `json:"elapsed"`
		Write   struct {
			IOBytes        uint64  `json:"io_bytes"`
			RuntimeMillis  float64 `json:"runtime"`
			BytesPerSecond float64 `json:"bw_bytes"`
		} `json:"write"`
		Sync struct {
			Count   uint64 `json:"total_ios"`
			Latency struct {
				Mean       float64            `json:"mean"`
				Count      uint64             `json:"N"`
				Percentile map[string]float64 `json:"percentile"`
			} `json:"lat_ns"`
		} `json:"sync"`
	} `json:"jobs"`
}

const nanosecondsPerSecond = 1e9

// Parse parses fio's output with --output-format=json and --group_reporting. It
// skips lines before the JSON, in which fio reports a signal.
func Parse(text []byte) (Result, error) {
	begin := bytes.IndexByte(text, '{')
	if begin < 0 {
		return Result{}, fmt.Errorf("fio wrote no JSON: %.200q", text)
	}
	var r report
	// A decoder also ignores text after the JSON.
	if err := json.NewDecoder(bytes.NewReader(text[begin:])).Decode(&r); err != nil {
		return Result{}, fmt.Errorf("cannot read fio's JSON: %w", err)
	}
	if len(r.Jobs) != 1 {
		return Result{}, fmt.Errorf("fio's JSON has %d groups of jobs; want 1", len(r.Jobs))
	}
	job := r.Jobs[0]
	if job.Error != 0 {
		return Result{}, fmt.Errorf("fio's writers failed with error %d", job.Error)
	}
	result := Result{
		Seconds: max(job.Read.RuntimeMillis, job.Write.RuntimeMillis) / 1000, ReadBytes: job.Read.IOBytes, WrittenBytes: job.Write.IOBytes,
		Syncs: job.Sync.Latency.Count, SyncMeanSeconds: job.Sync.Latency.Mean / nanosecondsPerSecond,
	}
	if result.Syncs == 0 {
		return result, nil
	}
	var err50, err99 error
	result.SyncP50Seconds, err50 = percentile(job.Sync.Latency.Percentile, 50)
	result.SyncP99Seconds, err99 = percentile(job.Sync.Latency.Percentile, 99)
	return result, errors.Join(err50, err99)
}

// percentile finds a percentile by number: fio writes "99.000000".
func percentile(all map[string]float64, wanted float64) (seconds float64, err error) {
	for name, nanoseconds := range all {
		if number, err := strconv.ParseFloat(name, 64); err == nil && number == wanted {
			return nanoseconds / nanosecondsPerSecond, nil
		}
	}
	return 0, fmt.Errorf("fio's JSON has no percentile %g of the sync latency", wanted)
}
