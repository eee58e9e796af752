package control

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/trusted"
)

// written is what Daybook wrote last to one cgroup. With it, Daybook's own settings
// can be distinguished from those that another program wrote since.
type written struct {
	// Setting is the content of the weight files before the last write. Intended is
	// the weight of that write, which may not have happened if the process was
	// killed.
	Setting
	Intended uint64
	// Limit and IntendedLimit are the same for the limits.
	Limit, IntendedLimit Limits
	// unitWeights are those of the cgroup's unit. unitUnknown means that an earlier
	// version, which did not have them, wrote the record.
	unitWeights
	unitUnknown bool
	// switched means that the weights on this disk are gone with its scheduler.
	switched bool
}

// merge returns the setting to restore for a cgroup that had original and now has
// now. A setting that Daybook wrote becomes the original again; one that another
// program wrote since stays.
func (w written) merge(original, now Setting) Setting {
	merged := original
	wroteDefault := w.Device == 0 && now.Device == 0 && now.Default == w.Intended
	if now.Default != w.Default && !wroteDefault {
		merged.Default = now.Default
	}
	if now.Device != w.Device && now.Device != w.Intended && !w.gave(now.Device) && !(w.switched && now.Device == 0) {
		merged.Device = now.Device
	}
	return merged
}

// ownRead and ownWrite report whether a limit in force is Daybook's.
func (w written) ownRead(now uint64) bool { return now == w.Limit.Read || now == w.IntendedLimit.Read }
func (w written) ownWrite(now uint64) bool {
	return now == w.Limit.Write || now == w.IntendedLimit.Write
}

// writtenLog has one [written] for each controlled cgroup, in a file beside the
// state. A record is written in one piece and not synced. A kill cannot tear it,
// and after a crash of the host there is nothing to restore.
type writtenLog struct {
	file *os.File
	// slots are the positions of the records, by the cgroup's ID.
	slots map[uint64]int64
	free  []int64
	next  int64
}

// recordBytes divides the page size, so that a record lies in one page. Earlier
// versions had records of 128 bytes, without read limits.
const recordBytes = 256

func writtenPath(stateDir, device string) string {
	return filepath.Join(stateDir, "control-"+device+".written")
}

// newWrittenLog makes an empty log; the device's lock must be held.
func newWrittenLog(stateDir, device string) (*writtenLog, error) {
	file, err := os.OpenFile(writtenPath(stateDir, device), os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot record the weights to be written: %w; make room or choose another state_dir", err)
	}
	return &writtenLog{file: file, slots: map[uint64]int64{}}, nil
}

// note records what will be written to a cgroup.
func (l *writtenLog) note(id uint64, w written) error {
	slot, known := l.slots[id]
	if !known {
		slot = l.next
		if n := len(l.free); n > 0 {
			slot = l.free[n-1]
		}
	}
	if err := l.put(slot, id, w); err != nil {
		return fmt.Errorf("cannot record the weight to be written: %w", err)
	}
	if !known {
		if n := len(l.free); n > 0 {
			l.free = l.free[:n-1]
		} else {
			l.next++
		}
		l.slots[id] = slot
	}
	return nil
}

func (l *writtenLog) put(slot int64, id uint64, w written) error {
	line := fmt.Appendf(make([]byte, 0, recordBytes), "%d %d %d %d %d %d %d %d %d %d", id, w.Default, w.Device, w.Intended,
		w.Limit.Write, w.IntendedLimit.Write, w.Limit.Read, w.IntendedLimit.Read, w.Unit, w.IntendedUnit)
	line = append(line, bytes.Repeat([]byte{' '}, recordBytes-1-len(line))...)
	_, err := l.file.WriteAt(append(line, '\n'), slot*recordBytes)
	return err
}

// noCgroup is the ID in an empty record: no cgroup has the ID 0. Earlier versions
// read such a record, too, and find no cgroup for it.
const noCgroup = 0

// forget empties the record of a cgroup that is no longer controlled, because it
// can return and get another slot. If that fails, the cgroup keeps its slot.
func (l *writtenLog) forget(id uint64) {
	slot, known := l.slots[id]
	if !known || l.put(slot, noCgroup, written{}) != nil {
		return
	}
	delete(l.slots, id)
	l.free = append(l.free, slot)
}

func (l *writtenLog) close() error {
	if l == nil {
		return nil
	}
	return l.file.Close()
}

// readWritten reads the records of an earlier run. It returns nil if there are
// none, or if they are not trusted: then every setting in the state is restored.
func readWritten(stateDir, device string) map[uint64]written {
	file, err := trusted.File.Open(writtenPath(stateDir, device))
	if err != nil {
		return nil
	}
	defer file.Close()
	records := map[uint64]written{}
	lines := bufio.NewScanner(file)
	for n := 0; lines.Scan(); n++ {
		id, w, ok := parseWritten(lines.Text())
		if !ok || n == maxCgroups {
			return nil
		}
		if id != noCgroup {
			records[id] = w
		}
	}
	if lines.Err() != nil {
		return nil
	}
	return records
}

// parseWritten reads one record. Those of earlier versions have no weights of
// units, or also no read limits.
func parseWritten(line string) (id uint64, w written, ok bool) {
	fields := strings.Fields(line)
	numbers := []*uint64{&id, &w.Default, &w.Device, &w.Intended,
		&w.Limit.Write, &w.IntendedLimit.Write, &w.Limit.Read, &w.IntendedLimit.Read, &w.Unit, &w.IntendedUnit}
	const limits, reads, all = 6, 8, 10
	if len(fields) != limits && len(fields) != reads && len(fields) != all {
		return 0, written{}, false
	}
	w.unitUnknown = len(fields) != all
	for n, field := range fields {
		var err error
		if *numbers[n], err = strconv.ParseUint(field, 10, 64); err != nil {
			return 0, written{}, false
		}
	}
	return id, w, true
}

func removeWritten(stateDir, device string) error {
	if err := os.Remove(writtenPath(stateDir, device)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
