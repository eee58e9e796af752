package volume

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/store"
)

// finishCheck checks what a tool was at work on when it was killed, and says whether
// there was anything. What an interrupted resize needs is done by who finishes
// it; here it only gets a superblock that can be read.
func (p *Pool) finishCheck(ctx context.Context, record Record, l *store.Lock) (finished bool, err error) {
	if record.Attachment != nil {
		return false, nil
	}
	if _, err := os.Lstat(p.files.KeptSuperblock(record.Name)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err := p.blocks(record).CheckUnused(); err != nil {
		return false, err
	}
	offline := p.offline(record, l)
	if _, err := offline.PutBack(); err != nil || record.Resize != 0 {
		return false, err
	}
	if _, _, err := offline.Check(ctx, true); err != nil {
		return false, cause.Damaged(err)
	}
	p.log.Info("a check of the file system was interrupted: it was checked again", "volume", record.Name)
	return true, nil
}
