package ext4

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Info is jbd2's information about a journal since its mount. The kernel
// reports most times in whole milliseconds, as means over all transactions.
type Info struct {
	// Transactions is the number of commits; Requested is the number of them
	// that were requested and not due by time or size.
	Transactions, Requested uint64
	// MaxBlocks limits one transaction, in file-system blocks.
	MaxBlocks uint64
	// The phases of a transaction, in order.
	WaitingSeconds, RequestDelaySeconds, RunningSeconds float64
	LockedSeconds, FlushingSeconds, LoggingSeconds      float64
	// CommitSeconds is the time from lock to commit record.
	CommitSeconds float64
	// These are per transaction; LoggedBlocks includes descriptors and revokes.
	Handles, Blocks, LoggedBlocks uint64
}

// ParseInfo parses the text of /proc/fs/jbd2/NAME/info. It skips unknown lines;
// averages are missing before the first commit.
func ParseInfo(text string) (Info, error) {
	var info Info
	first, rest, _ := strings.Cut(text, "\n")
	// Kernels before 2.6.39 did not print "requested"; they are not supported.
	n, err := fmt.Sscanf(first, "%d transactions (%d requested), each up to %d blocks",
		&info.Transactions, &info.Requested, &info.MaxBlocks)
	if err != nil || n != 3 {
		return Info{}, fmt.Errorf("%q does not start like jbd2's info", first)
	}
	for line := range strings.Lines(rest) {
		number, what, found := strings.Cut(strings.TrimSpace(line), " ")
		if !found {
			continue
		}
		if err := info.set(number, what); err != nil {
			return Info{}, fmt.Errorf("line %q: %w", strings.TrimSpace(line), err)
		}
	}
	return info, nil
}

func (i *Info) set(number, what string) error {
	var err error
	switch what {
	case "waiting for transaction":
		i.WaitingSeconds, err = seconds(number)
	case "request delay":
		i.RequestDelaySeconds, err = seconds(number)
	case "running transaction":
		i.RunningSeconds, err = seconds(number)
	case "transaction was being locked":
		i.LockedSeconds, err = seconds(number)
	case "flushing data (in ordered mode)":
		i.FlushingSeconds, err = seconds(number)
	case "logging transaction":
		i.LoggingSeconds, err = seconds(number)
	case "average transaction commit time":
		i.CommitSeconds, err = seconds(number)
	case "handles per transaction":
		i.Handles, err = strconv.ParseUint(number, 10, 64)
	case "blocks per transaction":
		i.Blocks, err = strconv.ParseUint(number, 10, 64)
	case "logged blocks per transaction":
		i.LoggedBlocks, err = strconv.ParseUint(number, 10, 64)
	}
	return err
}

// seconds parses "12ms" or "4816us".
func seconds(text string) (float64, error) {
	for _, unit := range []struct {
		suffix  string
		divisor float64
	}{{"ms", 1e3}, {"us", 1e6}} {
		if digits, found := strings.CutSuffix(text, unit.suffix); found {
			value, err := strconv.ParseUint(digits, 10, 64)
			return float64(value) / unit.divisor, err
		}
	}
	return math.NaN(), fmt.Errorf("%q is not a time in ms or us", text)
}
