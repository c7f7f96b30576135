package zframe

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"
)

// Reasons why a frame whose structure is whole has no plain text. They are
// matched with errors.Is.
var (
	ErrChecksum   = errors.New("checksum does not match the content")
	ErrWindow     = errors.New("window is larger than the limit")
	ErrSize       = errors.New("content size does not match the content")
	ErrDictionary = errors.New("a dictionary is needed")
	ErrData       = errors.New("compressed data is damaged")
)

// A DecodeError says why a frame was refused.
type DecodeError struct {
	Frame  int    // number of the frame, from 0
	Offset int64  // of the frame in the file
	Detail string // what was found and what is allowed; may be empty
	Err    error  // one of the reasons above
}

func (e *DecodeError) Error() string {
	s := fmt.Sprintf("byte %d: frame %d: %v", e.Offset, e.Frame, e.Err)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

func (e *DecodeError) Unwrap() error { return e.Err }

// smallPlain and smallFrame bound what Decode holds in memory.
const (
	smallPlain = 4 << 20
	smallFrame = 4 << 20
)

// Small reports whether the frame may be decoded in memory with Decode. What
// its blocks can hold decides, not what it claims.
func (f *Frame) Small() bool { return f.MaxPlain <= smallPlain && f.Length <= smallFrame }

// A Decoder turns frames into plain text, one at a time, in the calling
// goroutine. It may be used again after any error.
type Decoder struct {
	all    *zstd.Decoder
	stream *zstd.Decoder
	in     []byte
	br     *bufio.Reader
}

// NewDecoder returns a decoder. It holds no resources that need closing.
func NewDecoder() *Decoder { return new(Decoder) }

func newZstd() *zstd.Decoder {
	z, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(MaxWindow),
	)
	if err != nil {
		panic(err) // the options are constants
	}
	return z
}

// Decode appends the plain text of a frame that is Small to dst. For a whole
// frame the checksum has been verified when err is nil. On ErrChecksum the text
// is returned as well; on any other error dst is returned as it was.
//
// Of a frame that the file ends in, Decode returns every block that is there in
// full, and of a raw block also the bytes that are there (PHYSICAL §3.4). If any
// of it is damaged it returns nothing but the error.
func (d *Decoder) Decode(dst []byte, r io.ReaderAt, f *Frame) ([]byte, error) {
	if err := f.refuse(); err != nil {
		return dst, err
	}
	if f.Skippable || f.Blocks == 0 && f.partial == 0 {
		return dst, nil
	}
	if !f.Small() {
		panic("zframe: Decode of a frame that is not small")
	}
	if d.all == nil {
		d.all = newZstd()
	}
	var tail []byte
	n := f.Length
	if f.Cut != Whole {
		tail = f.tail()
		n = f.wholeEnd - f.Offset
	}
	head := f.head()
	if need := int(n) + len(tail) + int(f.partial) + 3; cap(d.in) < need {
		d.in = make([]byte, need+need/4)
	}
	in := d.in[:n]
	if err := readFull(r, in, f.Offset); err != nil {
		return dst, err
	}
	// The stored header, which is never shorter, gives way to the new one.
	in = in[int(f.header)-len(head):]
	copy(in, head[:])
	if f.Cut != Whole {
		in = append(in, tail...)
		if f.partial > 0 {
			k := len(in)
			in = in[:k+int(f.partial)]
			if err := readFull(r, in[k:], f.wholeEnd+3); err != nil {
				return dst, err
			}
		}
		if !f.lastBlock {
			in = append(in, 1, 0, 0)
		}
	}
	k := len(dst)
	out, err := d.all.DecodeAll(in, dst)
	if err == nil {
		err = f.sizeFault(int64(len(out) - k))
		if err == nil {
			return out, nil
		}
		return out[:k], err
	}
	if errors.Is(err, zstd.ErrCRCMismatch) {
		return out, f.fail(ErrChecksum, "it stores %08x, its content gives %08x", f.Sum, uint32(xxhash.Sum64(out[k:])))
	}
	return dst[:k], f.reason(err)
}

// Open returns the plain text of a frame of any size as a stream, in memory
// bounded by MaxWindow. The stream ends in io.EOF once everything has been
// verified, or in the error that Decode would give; only then is it known
// whether what came before can be trusted. The stream is valid until the next
// use of the decoder.
func (d *Decoder) Open(r io.ReaderAt, f *Frame) io.Reader {
	if err := f.refuse(); err != nil {
		return failed{err}
	}
	if f.Skippable || f.Blocks == 0 && f.partial == 0 {
		return failed{io.EOF}
	}
	if d.stream == nil {
		d.stream = newZstd()
		d.br = bufio.NewReaderSize(nil, 64<<10)
	}
	var src io.Reader
	h := f.head()
	head := bytes.NewReader(h[:])
	body := f.Offset + f.header
	if f.Cut == Whole {
		src = io.MultiReader(head, io.NewSectionReader(r, body, f.Length-f.header))
	} else {
		end := []byte{1, 0, 0}
		if f.lastBlock {
			end = nil
		}
		src = io.MultiReader(head,
			io.NewSectionReader(r, body, f.wholeEnd-body),
			bytes.NewReader(f.tail()),
			io.NewSectionReader(r, f.wholeEnd+3, f.partial),
			bytes.NewReader(end))
	}
	io1 := &ioErr{r: src}
	d.br.Reset(io1)
	if err := d.stream.Reset(d.br); err != nil {
		return failed{f.reason(err)}
	}
	return &plain{d: d, f: f, io: io1}
}

// Verify decodes a frame of any size and forgets the text. It returns the
// number of bytes and the error Decode would give.
func (d *Decoder) Verify(r io.ReaderAt, f *Frame) (int64, error) {
	return io.Copy(io.Discard, d.Open(r, f))
}

type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }

// ioErr remembers an error of the file, which must not be taken for damage.
type ioErr struct {
	r   io.Reader
	err error
}

func (e *ioErr) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if err != nil && err != io.EOF {
		e.err = err
	}
	return n, err
}

type plain struct {
	d  *Decoder
	f  *Frame
	io *ioErr
	n  int64
}

func (p *plain) Read(b []byte) (int, error) {
	n, err := p.d.stream.Read(b)
	p.n += int64(n)
	switch {
	case err == nil:
		return n, nil
	case p.io.err != nil:
		return n, p.io.err
	case err == io.EOF:
		if err := p.f.sizeFault(p.n); err != nil {
			return n, err
		}
		return n, io.EOF
	}
	return n, p.f.reason(err)
}

func readFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func (f *Frame) fail(err error, format string, args ...any) error {
	return &DecodeError{Frame: f.Index, Offset: f.Offset, Err: err, Detail: fmt.Sprintf(format, args...)}
}

// refuse finds what makes a frame undecodable before anything is allocated.
func (f *Frame) refuse() error {
	if f.Skippable || f.Cut == CutMagic || f.Cut == CutHeader {
		return nil
	}
	switch {
	case f.Window > MaxWindow:
		return f.fail(ErrWindow, "it asks for %d bytes, at most %d are allowed", f.Window, MaxWindow)
	case f.Dictionary != 0:
		return f.fail(ErrDictionary, "it names dictionary %d", f.Dictionary)
	case f.oversize:
		return f.fail(ErrData, "a block claims more than %d bytes", min(f.Window, maxBlock))
	case f.Cut == Whole && f.Content > f.MaxPlain:
		return f.fail(ErrSize, "it claims %d bytes, its blocks hold at most %d", f.Content, f.MaxPlain)
	}
	return nil
}

// sizeFault checks the claim of a frame that is cut after its last block: the
// rewritten header no longer carries it.
func (f *Frame) sizeFault(n int64) error {
	if f.Content != unknown && f.lastBlock && f.Content != n {
		return f.fail(ErrSize, "it claims %d bytes, its blocks hold %d", f.Content, n)
	}
	return nil
}

func (f *Frame) reason(err error) error {
	switch {
	case errors.Is(err, zstd.ErrCRCMismatch):
		return f.fail(ErrChecksum, "it stores %08x", f.Sum)
	case errors.Is(err, zstd.ErrFrameSizeExceeded), errors.Is(err, zstd.ErrFrameSizeMismatch):
		return f.fail(ErrSize, "it claims %d bytes", f.Content)
	case errors.Is(err, zstd.ErrUnknownDictionary):
		return f.fail(ErrDictionary, "")
	}
	return f.fail(ErrData, "%v", err)
}

// head is the header to give to the decoder in place of the stored one. It
// carries no content size, which is checked here, and a window no larger than
// the blocks can fill, so that a claim allocates nothing. A cut frame loses its
// checksum flag as well.
func (f *Frame) head() [6]byte {
	d := byte(0)
	if f.Checksum && f.Cut == Whole {
		d = 0x04
	}
	// The window also bounds a block; what MaxPlain counts is never less.
	w := windowByte(max(min(f.Window, f.MaxPlain), 1<<10))
	return [6]byte{magic[0], magic[1], magic[2], magic[3], d, w}
}

// windowByte is the smallest window descriptor for at least n bytes.
func windowByte(n int64) byte {
	e := bits.Len64(uint64(n)) - 1
	if e < 10 {
		return 0
	}
	base := int64(1) << e
	m := (n - base + base/8 - 1) / (base / 8)
	if m == 8 {
		e, m = e+1, 0
	}
	return byte(e-10)<<3 | byte(m)
}

// tail is the block header of a cut raw block, shortened to what is there.
func (f *Frame) tail() []byte {
	if f.partial == 0 {
		return nil
	}
	v := uint32(f.partial) << 3
	return []byte{byte(v), byte(v >> 8), byte(v >> 16)}
}
