package volume

import (
	"cmp"
	"context"
	"io"

	"github.com/daybook-project/daybook/volume/internal/chunk"
)

// A read of a pipe whose writer is silent, and a write to one that nobody reads, end with no
// context. So another goroutine does them, and may still do so after ctx has ended.

// readUntil returns a reader of r that fails when ctx ends. The caller calls stop, and reads r
// no more.
func readUntil(ctx context.Context, r io.Reader) (until io.Reader, stop func()) {
	from, to := io.Pipe()
	go func() { to.CloseWithError(pass(to, r)) }()
	after := context.AfterFunc(ctx, func() { to.CloseWithError(ctx.Err()) })
	return from, func() {
		after()
		_ = from.Close()
	}
}

// writeUntil returns a writer to w that fails when ctx ends. finish waits until w has all, or ctx
// ends; the caller calls it also after an error, with that error, which it returns.
func writeUntil(ctx context.Context, w io.Writer) (until io.Writer, finish func(error) error) {
	from, to := io.Pipe()
	passed := make(chan error, 1)
	go func() {
		err := pass(w, from)
		from.CloseWithError(err)
		passed <- err
	}()
	after := context.AfterFunc(ctx, func() { from.CloseWithError(ctx.Err()) })
	return to, func(err error) error {
		defer after()
		to.CloseWithError(err)
		select {
		case passErr := <-passed:
			return cmp.Or(err, passErr)
		case <-ctx.Done():
			return cmp.Or(err, ctx.Err())
		}
	}
}

// pass copies all of r to w.
func pass(w io.Writer, r io.Reader) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, chunk.Bytes))
	return err
}
