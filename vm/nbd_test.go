package vm

import (
	"encoding/binary"
	"io"
	"os"
	"testing"
)

// memoryExport is a disk of zeros.
type memoryExport struct{}

func (memoryExport) ReadAt(b []byte, _ int64) (int, error)  { return len(b), nil }
func (memoryExport) WriteAt(b []byte, _ int64) (int, error) { return len(b), nil }
func (memoryExport) Flush() error                           { return nil }
func (memoryExport) SizeBytes() int64                       { return 1 << 20 }

// A guest may be killed while replies are under way to it: that is its end, and no
// error of its disk.
func TestAKilledClientIsNoErrorOfItsDisk(t *testing.T) {
	for name, request := range map[string][]byte{
		"before the export is chosen": nil,
		"after a request":             nbdReadRequest(4096),
		"in the middle of a request":  nbdReadRequest(4096)[:5],
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs, err := socketPair()
			if err != nil {
				t.Fatal(err)
			}
			defer ours.Close()
			served := make(chan error, 1)
			go func() { served <- serveNBD(ours, memoryExport{}) }()
			if request != nil {
				chooseExport(t, theirs)
			}
			if _, err := theirs.Write(request); err != nil {
				t.Fatal(err)
			}
			if len(request) > 5 {
				if _, err := io.ReadFull(theirs, make([]byte, 16)); err != nil { // the rest of the reply stays unread
					t.Fatal(err)
				}
			}
			theirs.Close()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
}

func nbdReadRequest(bytes uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, nbdRequestMagic)
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint16(b, nbdRead)
	b = append(b, make([]byte, 16)...) // cookie, offset
	return binary.BigEndian.AppendUint32(b, bytes)
}

// chooseExport does what a client does before its first request.
func chooseExport(t *testing.T, client *os.File) {
	t.Helper()
	b := binary.BigEndian.AppendUint32(nil, nbdFixedNewstyle|nbdNoZeroes)
	b = binary.BigEndian.AppendUint64(b, nbdOptionMagic)
	b = binary.BigEndian.AppendUint32(b, nbdOptionGo)
	b = binary.BigEndian.AppendUint32(b, 0)
	if _, err := client.Write(b); err != nil {
		t.Fatal(err)
	}
	const hello, info, ack = 18, 20 + 12, 20
	if _, err := io.ReadFull(client, make([]byte, hello+info+ack)); err != nil {
		t.Fatal(err)
	}
}
