package journal

import "testing"

// The state of a device is read first, and the entries of its file systems are
// visited later: another one can be mounted in between.
func TestALaterFileSystemIsNeitherGoneNorReplaced(t *testing.T) {
	for _, state := range []uint32{0, 5, 1<<23 - 1, instanceMask} {
		earlier, later := (state-1)&instanceMask, (state+1)&instanceMask
		mounted := endedInstance{state: state, idle: endedCollections}
		justEnded := endedInstance{state: state | instanceEnded, idle: endedCollections - 1}
		longEnded := endedInstance{state: state | instanceEnded, idle: endedCollections}
		for _, c := range []struct {
			name           string
			ended          endedInstance
			instance       uint32
			gone, replaced bool
		}{
			{"mounted, earlier", mounted, earlier, true, true},
			{"mounted, the same", mounted, state, false, false},
			{"mounted, later", mounted, later, false, false},
			{"just ended, earlier", justEnded, earlier, true, true},
			{"just ended, the same", justEnded, state, true, false},
			{"just ended, later", justEnded, later, false, false},
			{"long ended, the same", longEnded, state, true, true},
			{"long ended, later", longEnded, later, false, false},
		} {
			if gone, replaced := c.ended.isGone(c.instance), c.ended.isReplaced(c.instance); gone != c.gone || replaced != c.replaced {
				t.Errorf("state %#x, %s: gone %v, replaced %v; want %v, %v", state, c.name, gone, replaced, c.gone, c.replaced)
			}
		}
	}
}
