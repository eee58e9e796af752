package disksim

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Messages of the creator of an owner-bound disk while it lives.
const (
	instantWord = "instant"
	timedWord   = "timed"
)

// SetInstant makes the disk serve everything at once, or by its model again. It
// speeds up the preparation of an experiment. Only for owner-bound disks.
func (d *Disk) SetInstant(instant bool) error {
	if !d.record.OwnerBound || d.server == nil {
		return fmt.Errorf("cannot change the pace of disk %s: it is not bound to this process", d.Name)
	}
	word := timedWord
	if instant {
		word = instantWord
	}
	if err := d.server.say(word); err != nil {
		return fmt.Errorf("cannot change the pace of disk %s: %w", d.Name, err)
	}
	return nil
}

// say sends the server a message and waits until it has processed it.
func (s *server) say(word string) error {
	if err := s.conversation.SetDeadline(time.Now().Add(readyPatience)); err != nil {
		return err
	}
	if _, err := s.conversation.WriteString(word + "\n"); err != nil {
		return fmt.Errorf("the disk's server (process %d) died: %w", s.pid, err)
	}
	line, err := s.lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the disk's server (process %d) does not answer: %w", s.pid, err)
	}
	var reply answer
	if err := json.Unmarshal(line, &reply); err != nil {
		return fmt.Errorf("the disk's server answers %q: %w", line, err)
	}
	if reply.Error != "" {
		return errors.New(reply.Error)
	}
	return nil
}

// setInstant changes the pace, also for waiting requests.
func (a *arm) setInstant(instant bool) {
	if instant {
		a.finish()
		return
	}
	a.mu.Lock()
	a.instant = false
	a.mu.Unlock()
}
