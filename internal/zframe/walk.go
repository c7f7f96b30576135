// Package zframe reads and writes Zstandard frames as a log uses them: a file
// is a row of independent frames, and where each begins and ends matters as
// much as what is in it. It implements PHYSICAL §3.
//
// # Frames
//
//	frame      magic descriptor [window] [dictionary] [content size] block… [checksum]
//	magic      28 B5 2F FD
//	block      3 bytes little endian: last (1 bit), type (2 bits), size (21 bits); payload
//	type       0 raw, 1 one byte repeated, 2 compressed, 3 reserved
//	checksum   low 4 bytes, little endian, of XXH64 of the plain text, seed 0
//	skippable  5x 2A 4D 18, 4 bytes of length, payload
//
// A [Walker] finds the frames of a file without decompressing anything, so that
// a frame's place is known even where its content is damaged. A [Decoder]
// gives the plain text of one frame, and what can be had of one that the file
// ends in. [Encoder] writes frames with the parameters of the harness.
//
// Nothing here trusts a size that a frame claims: memory is bounded by the
// window limit and by what the blocks that are present can hold.
package zframe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

const (
	// MaxWindow is the largest window a frame may ask for, the limit that
	// the reference decoder sets for streams.
	MaxWindow = 128 << 20

	maxBlock = 128 << 10
	unknown  = -1
)

var magic = []byte{0x28, 0xB5, 0x2F, 0xFD}

// Fault is a kind of structural damage: bytes that no intact file has at that
// place, whatever follows.
type Fault string

const (
	BadMagic      Fault = "magic"    // no frame begins where one has to
	ReservedBit   Fault = "reserved" // a reserved bit of the descriptor is set
	ReservedBlock Fault = "block"    // a block of the reserved type
)

// An Error is structural damage and its place.
type Error struct {
	Fault  Fault
	Frame  int    // number of the frame, from 0
	Start  int64  // offset of the frame in the file
	Offset int64  // offset of the first wrong byte
	Got    []byte // the bytes found there
}

func (e *Error) Error() string {
	switch e.Fault {
	case BadMagic:
		return fmt.Sprintf("byte %d: no zstd frame begins here: % x instead of % x", e.Offset, e.Got, magic)
	case ReservedBit:
		return fmt.Sprintf("byte %d: frame %d sets a reserved bit in its descriptor %#02x", e.Offset, e.Frame, e.Got[0])
	}
	return fmt.Sprintf("byte %d: frame %d has a block of the reserved type 3", e.Offset, e.Frame)
}

// Cut says in which part of a frame the file ends.
type Cut string

const (
	Whole       Cut = ""         // the frame is complete
	CutMagic    Cut = "magic"    // within the first four bytes
	CutHeader   Cut = "header"   // within descriptor, window, dictionary or content size
	CutBlock    Cut = "block"    // within a block or where one has to begin
	CutChecksum Cut = "checksum" // within the checksum
	CutSkip     Cut = "skip"     // within a skippable frame
)

// Frame is what the structure of one frame says of it.
type Frame struct {
	Index  int   // from 0, counting skippable frames
	Offset int64 // of the magic in the file
	Length int64 // bytes present in the file
	Cut    Cut   // where the file ends inside the frame

	Skippable  bool
	Descriptor byte
	Window     int64 // bytes of history the frame may refer to; the content size when single-segment
	Dictionary uint32
	Content    int64 // claimed size of the plain text; -1 if not recorded
	Checksum   bool
	Sum        uint32 // the stored checksum of a whole frame

	Blocks   int64 // whole blocks present
	MaxPlain int64 // the most plain text these blocks can hold, a partial raw block included
	Stray    bool  // CutMagic whose bytes are not the beginning of a magic

	header    int64 // length of magic and header
	wholeEnd  int64 // offset after the last whole block
	lastBlock bool  // that block is the last one of the frame
	partial   int64 // payload bytes present of a cut raw block
	oversize  bool  // a block header claims more than a block may hold
}

// End is the offset after the last byte of the frame that is in the file.
func (f *Frame) End() int64 { return f.Offset + f.Length }

// SingleSegment reports whether the frame replaces its window by its content size.
func (f *Frame) SingleSegment() bool { return f.Descriptor&0x20 != 0 }

// A Walker goes through the frames of a file by their structure alone. It keeps
// a small buffer whatever the file holds.
type Walker struct {
	r     io.ReaderAt
	size  int64
	off   int64
	index int
	bad   bool // Next stopped at damage, which takes a number

	buf   []byte
	at    int64 // file offset of buf[0]
	steps int64 // block headers that Resync may still look at
}

// NewWalker walks the first size bytes of r.
func NewWalker(r io.ReaderAt, size int64) *Walker {
	w := &Walker{buf: make([]byte, 0, 32<<10)}
	w.Reset(r, size)
	return w
}

// Reset makes w a walker at the start of another file. It keeps its buffer.
func (w *Walker) Reset(r io.ReaderAt, size int64) {
	*w = Walker{r: r, size: size, buf: w.buf[:0], steps: size/8 + 1<<16}
}

// Offset is where the next frame is looked for.
func (w *Walker) Offset() int64 { return w.off }

// peek returns up to n bytes at off: fewer only at the end of the file.
func (w *Walker) peek(off int64, n int) ([]byte, error) {
	if rest := w.size - off; rest < int64(n) {
		n = int(max(rest, 0))
	}
	if off < w.at || off+int64(n) > w.at+int64(len(w.buf)) {
		m := int(min(int64(cap(w.buf)), w.size-off))
		got, err := w.r.ReadAt(w.buf[:m], off)
		w.at, w.buf = off, w.buf[:got]
		if got < n {
			if err == nil || errors.Is(err, io.EOF) {
				// The file is shorter than it was when it was opened.
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	i := off - w.at
	return w.buf[i : i+int64(n)], nil
}

// Next returns the next frame, io.EOF after the last one, an *Error for
// structural damage, or an I/O error. After damage Next repeats the error until
// Resync moves the walker.
func (w *Walker) Next() (*Frame, error) {
	if w.off >= w.size {
		return nil, io.EOF
	}
	f := new(Frame)
	if err := w.walk(w.off, f, nil); err != nil {
		var bad *Error
		w.bad = errors.As(err, &bad)
		return nil, err
	}
	f.Index = w.index
	w.index++
	w.off = f.End()
	return f, nil
}

// Resync looks for the next frame that begins at or after from and is sound in
// its structure, moves there and returns its offset. It returns -1 if there is
// none. Damage that Next stopped at counts as one frame. A frame that is cut by the end of the file counts only if its header is
// whole. The work is bounded: a file made of nothing but frame beginnings
// exhausts it.
func (w *Walker) Resync(from int64) (int64, error) {
	off := max(from, 0)
	for off+4 <= w.size {
		b, err := w.peek(off, min(cap(w.buf), 4<<10))
		if err != nil {
			return -1, err
		}
		i := bytes.Index(b, magic)
		if i < 0 {
			off += int64(max(len(b)-3, 1))
			continue
		}
		off += int64(i)
		var f Frame
		err = w.walk(off, &f, &w.steps)
		var bad *Error
		switch {
		case err == nil && f.Cut != CutHeader && f.Cut != CutMagic && !f.oversize:
			if w.bad {
				w.index++
				w.bad = false
			}
			w.off = off
			return off, nil
		case errors.Is(err, errSteps):
			return -1, nil
		case err != nil && !errors.As(err, &bad):
			return -1, err
		}
		off += 4
	}
	return -1, nil
}

// Back makes f, a frame that Next returned, the next one again.
func (w *Walker) Back(f *Frame) { w.off, w.index = f.Offset, f.Index }

var errSteps = errors.New("too many frame beginnings")

// walk fills f from the structure at s. With steps it counts them down and
// gives up at zero.
func (w *Walker) walk(s int64, f *Frame, steps *int64) error {
	*f = Frame{Offset: s, Content: unknown, wholeEnd: s}
	cut := func(c Cut) error {
		f.Cut, f.Length = c, w.size-s
		return nil
	}
	bad := func(k Fault, at int64, got []byte) error {
		return &Error{Fault: k, Frame: w.index, Start: s, Offset: at, Got: bytes.Clone(got)}
	}

	b, err := w.peek(s, 4)
	if err != nil {
		return err
	}
	if len(b) < 4 {
		skip := len(b) > 0 && b[0]&0xF0 == 0x50 && bytes.HasPrefix([]byte{0x2A, 0x4D, 0x18}, b[1:])
		f.Stray = !skip && !bytes.HasPrefix(magic, b)
		return cut(CutMagic)
	}
	if b[0]&0xF0 == 0x50 && b[1] == 0x2A && b[2] == 0x4D && b[3] == 0x18 {
		return w.walkSkippable(s, f)
	}
	if !bytes.Equal(b, magic) {
		return bad(BadMagic, s, b)
	}

	b, err = w.peek(s, 4+14)
	if err != nil {
		return err
	}
	if len(b) < 5 {
		return cut(CutHeader)
	}
	d := b[4]
	f.Descriptor = d
	f.Checksum = d&0x04 != 0
	if d&0x18 != 0 {
		return bad(ReservedBit, s+4, b[4:5])
	}
	h := b[5:]
	window, dict, content := headerSizes(d)
	if len(h) < window+dict+content {
		return cut(CutHeader)
	}
	f.header = int64(5 + window + dict + content)
	if window > 0 {
		base := int64(1) << (10 + h[0]>>3)
		f.Window = base + base/8*int64(h[0]&7)
	}
	f.Dictionary = uint32(little(h[window : window+dict]))
	if content > 0 {
		c := little(h[window+dict : window+dict+content])
		if content == 2 {
			c += 256
		}
		f.Content = int64(min(c, 1<<63-1))
		if window == 0 {
			f.Window = f.Content
		}
	}

	largest := min(f.Window, maxBlock)
	p := s + f.header
	for !f.lastBlock {
		if steps != nil {
			if *steps--; *steps < 0 {
				return errSteps
			}
		}
		f.wholeEnd = p
		if b, err = w.peek(p, 3); err != nil {
			return err
		}
		if len(b) < 3 {
			return cut(CutBlock)
		}
		v := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
		size := int64(v >> 3)
		payload, plain := size, size
		switch v >> 1 & 3 {
		case 0: // raw
			f.oversize = f.oversize || size > largest
		case 1: // one byte repeated
			payload = 1
		case 2: // compressed
			plain = largest
			f.oversize = f.oversize || size > largest
		default:
			return bad(ReservedBlock, p, b)
		}
		if rest := w.size - (p + 3); rest < payload {
			if v>>1&3 == 0 {
				f.partial = rest
				f.MaxPlain += rest
			}
			return cut(CutBlock)
		}
		f.oversize = f.oversize || size > largest
		f.MaxPlain += plain
		f.Blocks++
		f.lastBlock = v&1 != 0
		p += 3 + payload
		f.wholeEnd = p
	}
	if f.Checksum {
		if b, err = w.peek(p, 4); err != nil {
			return err
		}
		if len(b) < 4 {
			return cut(CutChecksum)
		}
		f.Sum = uint32(little(b))
		p += 4
	}
	f.Length = p - s
	return nil
}

func (w *Walker) walkSkippable(s int64, f *Frame) error {
	f.Skippable = true
	b, err := w.peek(s, 8)
	if err != nil {
		return err
	}
	f.header = 8
	if len(b) == 8 {
		f.Length = 8 + int64(little(b[4:]))
	}
	if len(b) < 8 || f.Length > w.size-s {
		f.Cut, f.Length = CutSkip, w.size-s
	}
	return nil
}

// headerSizes gives the lengths of the window, dictionary and content size
// fields that follow the descriptor d.
func headerSizes(d byte) (window, dict, content int) {
	single := d&0x20 != 0
	if !single {
		window = 1
	}
	dict = [4]int{0, 1, 2, 4}[d&3]
	content = [4]int{0, 2, 4, 8}[d>>6]
	if content == 0 && single {
		content = 1
	}
	return window, dict, content
}

func little(b []byte) uint64 {
	var v uint64
	for i, c := range b {
		v |= uint64(c) << (8 * i)
	}
	return v
}
