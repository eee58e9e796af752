package control

import "testing"

func TestASchedulerWasChosenAgainIfItsInodeIsAnother(t *testing.T) {
	var s seenScheduler
	for _, step := range []struct {
		inode                uint64
		wantAgain, wantKnown bool
	}{{7, true, false}, {7, false, true}, {8, true, true}, {0, true, false}, {8, false, true}} {
		again, known := s.chosenAgain(step.inode)
		if known != step.wantKnown || known && again != step.wantAgain {
			t.Errorf("inode %d after %d: %v, known %v; want %v, %v", step.inode, s.inode, again, known, step.wantAgain, step.wantKnown)
		}
		s.look(step.inode)
	}
}
