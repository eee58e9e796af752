package vm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// The server of NBD (NetworkBlockDevice/nbd, doc/proto.md), with the parts that QEMU's
// client uses: one export, and simple replies in the order of the requests. It offers
// neither FUA nor discards, so only a flush makes writes durable.
const (
	nbdMagic        = 0x4e42444d41474943
	nbdOptionMagic  = 0x49484156454f5054
	nbdReplyMagic   = 0x0003e889045565a9
	nbdRequestMagic = 0x25609513
	nbdSimpleMagic  = 0x67446698

	nbdFixedNewstyle = 1 << 0
	nbdNoZeroes      = 1 << 1

	nbdOptionAbort = 2
	nbdOptionInfo  = 6
	nbdOptionGo    = 7

	nbdReplyAck         = 1
	nbdReplyInfo        = 3
	nbdReplyUnsupported = 1<<31 | 1
	nbdInfoExport       = 0

	nbdHasFlags  = 1 << 0
	nbdSendFlush = 1 << 2

	nbdRead       = 0
	nbdWrite      = 1
	nbdDisconnect = 2
	nbdFlush      = 3

	nbdEIO    = 5
	nbdEINVAL = 22

	// nbdMaxPayload limits an option and a request. 32 MiB is what the protocol allows
	// without negotiation.
	nbdMaxPayload = 32 << 20
)

// nbdExport is the served disk.
type nbdExport interface {
	io.ReaderAt
	io.WriterAt
	// Flush returns when all writes are durable.
	Flush() error
	SizeBytes() int64
}

// serveNBD serves one client until it disconnects. It returns nil if the client
// announced it or closed the connection.
func serveNBD(connection io.ReadWriter, export nbdExport) error {
	const buffer = 256 << 10
	in := bufio.NewReaderSize(connection, buffer)
	err := greetNBD(in, connection, export)
	for err == nil {
		err = answerNBD(in, connection, export)
	}
	for _, gone := range []error{
		io.EOF, io.ErrUnexpectedEOF, errNBDEnd,
		unix.ECONNRESET, unix.EPIPE, // killed: it had not read all replies, or cannot any more
	} {
		if errors.Is(err, gone) {
			return nil
		}
	}
	return err
}

var errNBDEnd = errors.New("the client disconnects")

// greetNBD negotiates the export with the client.
func greetNBD(in io.Reader, out io.Writer, export nbdExport) error {
	hello := binary.BigEndian.AppendUint64(nil, nbdMagic)
	hello = binary.BigEndian.AppendUint64(hello, nbdOptionMagic)
	hello = binary.BigEndian.AppendUint16(hello, nbdFixedNewstyle|nbdNoZeroes)
	if _, err := out.Write(hello); err != nil {
		return err
	}
	var flags uint32
	if err := binary.Read(in, binary.BigEndian, &flags); err != nil {
		return err
	}
	for {
		var option struct {
			Magic        uint64
			Kind, Length uint32
		}
		if err := binary.Read(in, binary.BigEndian, &option); err != nil {
			return err
		}
		if option.Magic != nbdOptionMagic || option.Length > nbdMaxPayload {
			return fmt.Errorf("NBD: not an option: %+v", option)
		}
		if _, err := io.CopyN(io.Discard, in, int64(option.Length)); err != nil {
			return err
		}
		reply := func(kind uint32, payload []byte) error {
			b := binary.BigEndian.AppendUint64(nil, nbdReplyMagic)
			b = binary.BigEndian.AppendUint32(b, option.Kind)
			b = binary.BigEndian.AppendUint32(b, kind)
			b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
			_, err := out.Write(append(b, payload...))
			return err
		}
		switch option.Kind {
		case nbdOptionInfo, nbdOptionGo:
			info := binary.BigEndian.AppendUint16(nil, nbdInfoExport)
			info = binary.BigEndian.AppendUint64(info, uint64(export.SizeBytes()))
			info = binary.BigEndian.AppendUint16(info, nbdHasFlags|nbdSendFlush)
			if err := reply(nbdReplyInfo, info); err != nil {
				return err
			}
			if err := reply(nbdReplyAck, nil); err != nil || option.Kind == nbdOptionGo {
				return err
			}
		case nbdOptionAbort:
			_ = reply(nbdReplyAck, nil)
			return errNBDEnd
		default:
			if err := reply(nbdReplyUnsupported, nil); err != nil {
				return err
			}
		}
	}
}

// answerNBD handles one request.
func answerNBD(in io.Reader, out io.Writer, export nbdExport) error {
	var request struct {
		Magic       uint32
		Flags, Kind uint16
		Cookie      uint64
		Offset      uint64
		Length      uint32
	}
	if err := binary.Read(in, binary.BigEndian, &request); err != nil {
		return err
	}
	if request.Magic != nbdRequestMagic || request.Length > nbdMaxPayload {
		return fmt.Errorf("NBD: not a request: %+v", request)
	}
	const header = 16
	reply := make([]byte, header, header+int(request.Length))
	result := uint32(0)
	failed := func(err error) {
		if err != nil {
			result = nbdEIO
		}
	}
	switch request.Kind {
	case nbdRead:
		reply = reply[:header+int(request.Length)]
		_, err := export.ReadAt(reply[header:], int64(request.Offset))
		failed(err)
	case nbdWrite:
		data := make([]byte, request.Length)
		if _, err := io.ReadFull(in, data); err != nil {
			return err
		}
		_, err := export.WriteAt(data, int64(request.Offset))
		failed(err)
	case nbdFlush:
		failed(export.Flush())
	case nbdDisconnect:
		return errNBDEnd
	default:
		result = nbdEINVAL
	}
	if result != 0 {
		reply = reply[:header]
	}
	binary.BigEndian.PutUint32(reply, nbdSimpleMagic)
	binary.BigEndian.PutUint32(reply[4:], result)
	binary.BigEndian.PutUint64(reply[8:], request.Cookie)
	_, err := out.Write(reply)
	return err
}
