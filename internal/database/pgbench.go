package database

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// parsePgbench reads what pgbench prints at the end of a run, for example
//
//	number of transactions actually processed: 13705
//	latency average = 8.752 ms
//	initial connection time = 6.061 ms
//	tps = 456.965517 (without initial connection time)
func parsePgbench(text string) (Result, error) {
	const (
		processed = "number of transactions actually processed:"
		latency   = "latency average ="
		rate      = "tps ="
	)
	values := make(map[string]float64)
	for line := range strings.Lines(text) {
		for _, name := range []string{processed, latency, rate} {
			rest, found := strings.CutPrefix(strings.TrimSpace(line), name)
			if !found {
				continue
			}
			// pgbench 13 and earlier print tps twice; the last excludes connecting.
			number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			number, _, _ = strings.Cut(number, "/") // "100/100" of a fixed number
			value, err := strconv.ParseFloat(number, 64)
			if err != nil || value < 0 {
				return Result{}, fmt.Errorf("pgbench prints %q, which is not a number", strings.TrimSpace(line))
			}
			values[name] = value
		}
	}
	for _, name := range []string{processed, latency, rate} {
		if _, found := values[name]; !found {
			return Result{}, fmt.Errorf("pgbench's result has no line %q: %.400q", name, text)
		}
	}
	r := Result{Transactions: uint64(values[processed]), MeanSeconds: values[latency] / 1000}
	if values[rate] > 0 {
		r.Seconds = values[processed] / values[rate]
	}
	return r, nil
}

// maxLogged limits the number of transactions in a percentile.
const maxLogged = 10_000_000

// percentileOfLogs reads the files of pgbench --log in a directory, one for
// each of its threads.
func percentileOfLogs(directory string, part float64) (seconds float64, err error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return 0, err
	}
	var microseconds []float64
	for _, entry := range entries {
		file, err := os.Open(filepath.Join(directory, entry.Name()))
		if err != nil {
			return 0, err
		}
		microseconds, err = readLog(file, microseconds)
		_ = file.Close()
		if err != nil {
			return 0, fmt.Errorf("cannot read pgbench's log: %w", err)
		}
	}
	return percentile(microseconds, part) / 1e6, nil
}

// readLog appends the latencies of a log: its lines are client, transaction,
// microseconds, script, and the time of the end.
func readLog(log io.Reader, microseconds []float64) ([]float64, error) {
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 {
			return nil, fmt.Errorf("%q: want at least three fields", lines.Text())
		}
		value, err := strconv.ParseFloat(fields[2], 64)
		if err != nil || !(value >= 0) || math.IsInf(value, 0) { // NaN too
			return nil, fmt.Errorf("%q: the third field is not a time in microseconds", lines.Text())
		}
		if len(microseconds) == maxLogged {
			return nil, fmt.Errorf("more than %d transactions", maxLogged)
		}
		microseconds = append(microseconds, value)
	}
	return microseconds, lines.Err()
}

// percentile is the least value that is not below the given part of all values;
// 0 for no values. It sorts the values.
func percentile(values []float64, part float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[max(int(math.Ceil(part*float64(len(values))))-1, 0)]
}
