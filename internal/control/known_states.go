package control

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxKnownStates bounds how many states are kept: one for each disk.
	maxKnownStates = 64
	// restingTime is how old a state must be to be kept. Two changes within one tick of the file
	// system's clock can have the same times, and the second file the inode of the one before. A
	// tick is 10 ms at most, but a second on ext3, and on ext4 with inodes of 128 bytes.
	restingTime = 3 * time.Second
)

// knownStates keeps states that were read, for questions about many cgroups: to read a state of a
// thousand takes milliseconds. At each question it looks whether the file is still the same.
type knownStates struct {
	rest   time.Duration
	mu     sync.Mutex
	states map[string]knownState // by path
}

type knownState struct {
	file  stateFile
	state *State
}

// stateFile changes when a state is replaced, and when its owner or mode changes.
type stateFile struct {
	device, inode uint64
	size          int64
	changed       unix.Timespec
}

// load is LoadState. The state is shared: the caller does not change it.
func (k *knownStates) load(stateDir, device string) (*State, error) {
	path := StatePath(stateDir, device)
	k.mu.Lock()
	defer k.mu.Unlock()
	before, ok := stateFileAt(path)
	if known := k.states[path]; ok && known.state != nil && known.file == before {
		return known.state, nil
	}
	delete(k.states, path)
	state, err := LoadState(stateDir, device)
	if err != nil {
		return nil, err
	}
	after, ok := stateFileAt(path)
	if !ok || after != before || time.Since(time.Unix(after.changed.Unix())) < k.rest {
		return state, nil
	}
	if k.states == nil || len(k.states) >= maxKnownStates {
		k.states = map[string]knownState{}
	}
	k.states[path] = knownState{after, state}
	return state, nil
}

func stateFileAt(path string) (file stateFile, ok bool) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return stateFile{}, false
	}
	return stateFile{uint64(st.Dev), st.Ino, st.Size, st.Ctim}, true
}
