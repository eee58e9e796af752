package volume

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// freeze holds an attached file system still: all that was written is in the
// image, and nothing comes after. It is recorded first, for a frozen file
// system blocks its writers beyond the death of who froze it.
func (p *Pool) freeze(record *Record) error {
	record.Frozen = true
	if err := p.write(*record); err != nil {
		return err
	}
	p.reached("freezing")
	err := ioctlDirectory(record.Attachment.Target, fiFreeze)
	if errors.Is(err, unix.EBUSY) {
		// By whom it is frozen, it is thawed.
		record.Frozen = false
		return errors.Join(fmt.Errorf("its file system is %w: somebody has frozen it (fsfreeze -u %s)", ErrBusy, record.Attachment.Target), p.write(*record))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("cannot freeze the file system: %w", err), p.thaw(record))
	}
	p.reached("frozen")
	return nil
}

// thaw lets it go on; that it is not frozen, or not mounted, is no error.
func (p *Pool) thaw(record *Record) error {
	if record.Attachment != nil {
		stands, err := p.stands(*record)
		if err != nil {
			return err
		}
		if stands {
			if err := ioctlDirectory(record.Attachment.Target, fiThaw); err != nil && !errors.Is(err, unix.EINVAL) {
				return fmt.Errorf("cannot thaw the file system: %w", err)
			}
		}
	}
	record.Frozen = false
	p.reached("thawed")
	return p.write(*record)
}

// FIFREEZE and FITHAW, include/uapi/linux/fs.h: _IOWR('X', 119, int) and
// _IOWR('X', 120, int).
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

func ioctlDirectory(directory string, request uint) error {
	fd, err := unix.Open(directory, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = unix.IoctlSetInt(fd, request, 0)
	return errors.Join(err, unix.Close(fd))
}
