package database

import (
	"fmt"
	"strconv"
	"strings"
)

// parseSysbench reads what sysbench 1.0 prints at the end of a run, for example
//
//	    transactions:                        13105  (436.71 per sec.)
//	General statistics:
//	    total time:                          30.0063s
//	Latency (ms):
//	         avg:                                    9.16
//	         99th percentile:                       21.11
func parseSysbench(text string) (Result, error) {
	var r Result
	missing := map[string]bool{"transactions": true, "total time": true, "avg": true, "99th percentile": true}
	for line := range strings.Lines(text) {
		name, rest, found := strings.Cut(strings.TrimSpace(line), ":")
		fields := strings.Fields(rest)
		if !found || len(fields) == 0 || !missing[name] {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSuffix(fields[0], "s"), 64)
		if err != nil || value < 0 {
			return Result{}, fmt.Errorf("sysbench prints %q, which is not a number", strings.TrimSpace(line))
		}
		delete(missing, name)
		switch name {
		case "transactions":
			r.Transactions = uint64(value)
		case "total time":
			r.Seconds = value
		case "avg":
			r.MeanSeconds = value / 1000
		case "99th percentile":
			r.P99Seconds = value / 1000
		}
	}
	for name := range missing {
		return Result{}, fmt.Errorf("sysbench's result has no line %q: %.400q", name, text)
	}
	return r, nil
}
