package transfer

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/chunk"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/internal/stream"
)

// Apply writes the content of a stream to an image and verifies all of it.
// base is the checksum of the image before. clear: the parts that are not in the stream
// are cleared, because they do not read as zeros. The error wraps cause.ErrInvalid if the
// stream has another base, and stream.ErrDamaged if its data are not what the sender read.
func Apply(ctx context.Context, incoming *stream.Reader, image string, base chunk.Sum, clear bool, progress imagefile.Progress) error {
	size := incoming.Header.SizeBytes
	out, err := imagefile.OpenDirect(image, os.O_WRONLY)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	end, err := writeFrames(ctx, incoming, out, clear, progress)
	if err != nil {
		return err
	}
	if end.Base != base {
		if incoming.Header.Base != nil {
			return fmt.Errorf("%w: the volume differs from the stream's base %s: it was written since, or is another volume; receive the whole volume under another name",
				cause.ErrInvalid, incoming.Header.Base.Name)
		}
		return fmt.Errorf("%w: it has no base, but the checksum of one", stream.ErrDamaged)
	}
	if err := cause.NoSpace(out.Sync()); err != nil {
		return err
	}
	sums, err := imagefile.Sums(ctx, image, size, progress)
	if err != nil {
		return err
	}
	if chunk.ImageSum(size, sums) != end.Image {
		return fmt.Errorf("%w: the received data differ from what the sender read", stream.ErrDamaged)
	}
	return nil
}

// writeFrames writes the frames of a stream, and returns the last one, which has the
// checksums.
func writeFrames(ctx context.Context, incoming *stream.Reader, out *os.File, clear bool, progress imagefile.Progress) (end stream.Frame, err error) {
	size := incoming.Header.SizeBytes
	written := uint64(0)
	for {
		if err := ctx.Err(); err != nil {
			return end, err
		}
		f, err := incoming.Frame()
		if err != nil {
			return end, err
		}
		to := f.Offset
		if f.End {
			to = size
		}
		if clear {
			if err := clearRange(ctx, out, written, to); err != nil {
				return end, err
			}
		}
		switch {
		case f.End:
			return f, nil
		case f.Data != nil:
			_, err = out.WriteAt(f.Data, int64(f.Offset))
		default:
			err = imagefile.ClearRange(out, int64(f.Offset), int64(f.Length))
		}
		if err != nil {
			return end, cause.NoSpace(err)
		}
		written = f.Offset + f.Length
		progress.Report(written, size)
	}
}

// clearBytes is how much is cleared between two checks of the context.
const clearBytes = 64 << 20

// clearRange clears an image from one offset to another.
func clearRange(ctx context.Context, out *os.File, from, to uint64) error {
	for from < to {
		if err := ctx.Err(); err != nil {
			return err
		}
		piece := min(to-from, clearBytes)
		if err := imagefile.ClearRange(out, int64(from), int64(piece)); err != nil {
			return cause.NoSpace(err)
		}
		from += piece
	}
	return nil
}

// CheckReceived refuses a file system that cannot be attached here, and returns its block
// size. The sizes are those of the volume and of its sectors, in bytes. The error wraps
// stream.ErrDamaged or cause.ErrUnsupported.
func CheckReceived(image string, sizeBytes uint64, sectorBytes uint32) (blockBytes uint32, err error) {
	fs, err := ext4.ReadSuperblock(image)
	switch {
	case errors.Is(err, ext4.ErrNotExt4):
		err = fmt.Errorf("%w: its content is no ext4: %w", stream.ErrDamaged, err)
	case err != nil:
	case fs.External() || fs.JournalDevice:
		err = fmt.Errorf("%w: its journal is on another device", cause.ErrUnsupported)
	case fs.Blocks > sizeBytes/uint64(fs.BlockSizeBytes):
		err = fmt.Errorf("%w: its file system is longer than the volume", stream.ErrDamaged)
	case fs.BlockSizeBytes < sectorBytes:
		err = fmt.Errorf("%w: the disk has sectors of %d bytes, and the volume blocks of %d", cause.ErrUnsupported, sectorBytes, fs.BlockSizeBytes)
	}
	return fs.BlockSizeBytes, err
}
