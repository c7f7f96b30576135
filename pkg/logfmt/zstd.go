package logfmt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/internal/zframe"
)

// Rules of the frames of a Zstandard log (PHYSICAL §3).
const (
	RuleFrameMagic    = "FRAME-MAGIC"    // no frame begins where one has to
	RuleFrameReserved = "FRAME-RESERVED" // a reserved bit or block type
	RuleFrameSkip     = "FRAME-SKIP"     // a skippable frame, which the harness takes for damage
	RuleFrameData     = "FRAME-DATA"     // a frame does not decode, or its checksum is wrong
	RuleFrameHeader   = "FRAME-HEADER"   // the first frame is not exactly the header line
	RuleFrameLine     = "FRAME-LINE"     // the last whole frame ends inside a record
	RuleFrameTorn     = "FRAME-TORN"     // the file ends inside its last frame
)

// FrameStats counts the frames of a Zstandard log, as far as it was read.
type FrameStats struct {
	Frames     int64 // complete frames that decode
	Empty      int64 // of these, frames without content, which no build writes
	NoChecksum int64 // of these, frames that carry no checksum: their content is unproven
	Foreign    int64 // of these, frames with other parameters than the harness sets
}

// Frames returns what is known of the frames of a Zstandard log.
func (l *Log) Frames() FrameStats { return l.frames }

// spoolMemory is how much of a stream is kept in memory; a longer one goes to a
// temporary file.
const spoolMemory = 4 << 20

// mark says which frame the text at an offset belongs to.
type mark struct {
	text  int64 // offset in the text
	frame int
	at    int64 // offset of the frame in the file
}

// halt is why the text stops at a place: something other than a sound frame
// follows in the file.
type halt byte

const (
	haltNone   halt = iota
	haltEnd         // the file is read
	haltSkip        // a skippable frame
	haltCut         // the file ends inside the next frame
	haltCutEnd      // all there is of a cut frame has been read
	haltData        // a frame that does not decode
	haltBad         // structural damage
)

// frameText is the text of the frames of a file as one stream. A frame that is
// not sound ends the stream (io.EOF); the owner looks at halt, decides, and reads
// on. No byte of a frame is given out before the whole frame is verified.
type frameText struct {
	r    io.ReaderAt
	size int64
	walk *zframe.Walker
	dec  *zframe.Decoder

	text []byte    // of the current small frame
	rest []byte    // what was not given out yet
	big  io.Reader // text of the current large frame
	at   int64     // offset in the text of the next byte
	cut  bool      // the current frame is the cut one

	ahead bool          // frames are decoded ahead
	next  chan upcoming // by a goroutine, when not nil
	spare chan []byte   // buffers for it
	quit  chan struct{}

	halt  halt
	frame *zframe.Frame // the frame at which the text stopped, or that was read last
	err   error         // why: a *zframe.Error or *zframe.DecodeError
	marks []mark
	bad   *zframe.Frame // the last frame that did not decode
	sound int64         // end in the file of the unbroken row of sound frames
	first shape0
	stats FrameStats
}

// shape0 is what the text of the first frame looks like.
type shape0 struct {
	seen  bool
	bytes int64
	lines int64
	last  byte
}

func (s *shape0) Write(p []byte) (int, error) {
	s.bytes += int64(len(p))
	s.lines += int64(bytes.Count(p, []byte{'\n'}))
	if len(p) > 0 {
		s.last = p[len(p)-1]
	}
	return len(p), nil
}

// header reports whether the frame holds exactly one line.
func (s *shape0) header() bool { return s.lines == 1 && s.last == '\n' }

func newFrameText(r io.ReaderAt, size int64) *frameText {
	return &frameText{r: r, size: size, walk: zframe.NewWalker(r, size), dec: zframe.NewDecoder()}
}

func (t *frameText) Read(p []byte) (int, error) {
	for {
		if len(t.rest) > 0 {
			n := copy(p, t.rest)
			t.rest = t.rest[n:]
			t.at += int64(n)
			return n, nil
		}
		if t.big != nil {
			n, err := t.big.Read(p)
			t.at += int64(n)
			if err == io.EOF {
				t.big = nil
			} else if err != nil {
				// It was verified a moment ago.
				return n, fmt.Errorf("the file changes while it is read: %w", err)
			}
			if n > 0 {
				return n, nil
			}
			continue
		}
		if t.halt != haltNone {
			return 0, io.EOF
		}
		if t.cut {
			t.halt = haltCutEnd
			return 0, io.EOF
		}
		if err := t.step(); err != nil {
			return 0, err
		}
	}
}

// step moves to the next frame: its text is at hand, or halt says why not. An
// error is one of reading the file.
func (t *frameText) step() error {
	n := t.take()
	if n.err != nil && n.halt == haltNone {
		return n.err
	}
	if n.frame != nil {
		t.frame = n.frame
	}
	if n.halt == haltNone && n.large {
		n.halt, n.err = t.loadLarge(n.frame)
		if n.err != nil && n.halt == haltNone {
			return n.err
		}
	}
	t.text = n.text
	if n.halt != haltNone {
		t.halt, t.err = n.halt, n.err
		if n.halt == haltData {
			t.bad = n.frame
		}
		return nil
	}
	f := n.frame
	if !n.large {
		t.show(f)
	}
	if t.sound == f.Offset {
		t.sound = f.End()
	}
	t.stats.Frames++
	if len(t.rest) == 0 && t.big == nil {
		t.stats.Empty++
	}
	if !f.Checksum {
		t.stats.NoChecksum++
	}
	if f.Descriptor != 0x04 || f.Window != 2<<20 {
		t.stats.Foreign++
	}
	return nil
}

// upcoming is the next frame of the file: its text when it is small and sound, or
// why there is none. An error without a halt is one of reading the file.
type upcoming struct {
	frame *zframe.Frame
	text  []byte
	large bool // to be read as a stream
	halt  halt
	err   error
}

// fetch reads the next frame, its text into buf.
func (t *frameText) fetch(buf []byte) (n upcoming) {
	n.text = buf[:0]
	n.frame, n.err = t.walk.Next()
	var bad *zframe.Error
	switch {
	case n.err == io.EOF:
		n.halt = haltEnd
		return n
	case errors.As(n.err, &bad):
		n.halt = haltBad
		return n
	case n.err != nil:
		return n
	}
	f := n.frame
	switch {
	case f.Skippable && f.Cut != zframe.CutMagic:
		n.halt = haltSkip
	case f.Cut != zframe.Whole:
		n.halt = haltCut
	case !f.Small():
		n.large = true
	default:
		n.text, n.err = t.dec.Decode(n.text, t.r, f)
		n.halt = haltFor(n.err)
	}
	return n
}

// haltFor is the halt for an error of decoding, if it is not one of reading.
func haltFor(err error) halt {
	if de := (*zframe.DecodeError)(nil); errors.As(err, &de) {
		return haltData
	}
	return haltNone
}

// take returns the next frame, from the goroutine that decodes ahead if there is
// one. That goroutine ends at everything but a small sound frame; it is started
// again when the frame after that is wanted, so that walker and decoder always
// have one user.
func (t *frameText) take() upcoming {
	if !t.ahead {
		return t.fetch(t.text)
	}
	if t.next == nil {
		t.next = make(chan upcoming, aheadFrames)
		go t.run(t.next)
	} else if cap(t.text) > 0 {
		// The buffer of the frame just read goes back.
		select {
		case t.spare <- t.text:
		default:
		}
	}
	n := <-t.next
	if n.frame == nil || n.halt != haltNone || n.err != nil || n.large {
		t.next = nil
	}
	return n
}

// aheadFrames is how many frames are decoded ahead.
const aheadFrames = 2

func (t *frameText) run(out chan<- upcoming) {
	for {
		var buf []byte
		select {
		case buf = <-t.spare:
		default:
		}
		n := t.fetch(buf)
		select {
		case out <- n:
		case <-t.quit:
			close(out)
			return
		}
		if n.halt != haltNone || n.err != nil || n.large {
			return
		}
	}
}

// decodeAhead lets frames be decoded while others are read. It must be stopped.
func (t *frameText) decodeAhead() {
	t.ahead = true
	// Room for all there are: those ahead, one in work, one being read.
	t.spare = make(chan []byte, aheadFrames+2)
	t.quit = make(chan struct{})
}

// stop ends the goroutine that decodes ahead.
func (t *frameText) stop() {
	if !t.ahead {
		return
	}
	t.ahead = false
	close(t.quit)
	if t.next != nil {
		// It may be sending still, or have ended of itself.
		for n := range t.next {
			if n.halt != haltNone || n.err != nil || n.large {
				break
			}
		}
		t.next = nil
	}
}

// load decodes a frame and makes it the current one.
func (t *frameText) load(f *zframe.Frame) error {
	if !f.Small() {
		_, err := t.loadLarge(f)
		return err
	}
	text, err := t.dec.Decode(t.text[:0], t.r, f)
	t.text = text
	if err != nil {
		return err
	}
	t.show(f)
	return nil
}

// show makes a decoded frame the current one.
func (t *frameText) show(f *zframe.Frame) {
	t.rest = t.text
	if f.Offset == 0 && f.Cut == zframe.Whole {
		var shape shape0
		shape.Write(t.text)
		t.first, t.first.seen = shape, true
	}
	t.mark(f)
}

// loadLarge verifies a frame that is read as a stream, and makes it the current
// one.
func (t *frameText) loadLarge(f *zframe.Frame) (halt, error) {
	t.text = t.text[:0]
	var shape shape0
	w := io.Discard
	if f.Offset == 0 {
		w = &shape
	}
	n, err := io.Copy(w, t.dec.Open(t.r, f))
	if err != nil {
		return haltFor(err), err
	}
	if f.Offset == 0 && f.Cut == zframe.Whole {
		t.first, t.first.seen = shape, true
	}
	if n > 0 {
		t.big = t.dec.Open(t.r, f)
	}
	t.mark(f)
	return haltNone, nil
}

// mark notes that the text from here on belongs to f.
func (t *frameText) mark(f *zframe.Frame) {
	m := mark{t.at, f.Index, f.Offset}
	if n := len(t.marks); n > 0 && t.marks[n-1].text == t.at {
		t.marks[n-1] = m // the frame before is empty
		return
	}
	t.marks = append(t.marks, m)
}

// place completes the position of a record: its frame is the one it begins in.
// Positions are asked for in rising order.
func (t *frameText) place(p *Position) {
	i := 0
	for i+1 < len(t.marks) && t.marks[i+1].text <= p.Offset {
		i++
	}
	if i > 0 {
		t.marks = append(t.marks[:0], t.marks[i:]...)
	}
	if len(t.marks) > 0 {
		p.Frame, p.FrameAt = t.marks[0].frame, t.marks[0].at
	}
}

// zstdSource reads the records of a Zstandard log by the rules of PHYSICAL §3.3.
// Where the harness would stop, it says why and reads on with the next frame
// that is sound.
type zstdSource struct {
	lineSource
	text    *frameText
	queue   []fault
	reading bool
	done    bool
	cutAt   int64 // offset in the text at which the cut frame begins; -1 before it
	cutErr  error // nothing was recovered from it
	lines0  int64 // lines before the cut frame
	waste   int64 // bytes of frames that did not decode
}

// fault is a defect of the container that waits for its turn.
type fault struct {
	d      *Defect
	strict bool
	whole  bool // no record was lost by it
}

func newZstdSource(r io.ReaderAt, size int64, c io.Closer) *zstdSource {
	z := &zstdSource{text: newFrameText(r, size), cutAt: -1}
	z.lines.r = z.text
	z.closer = c
	z.place = func(p Position) (Position, bool) {
		z.text.place(&p)
		return p, z.cutAt < 0 || p.Offset < z.cutAt
	}
	return z
}

// aheadSize is the size of a file from which on it pays to decode ahead. A
// variable for tests.
var aheadSize int64 = 64 << 10

func (z *zstdSource) close() error {
	z.text.stop()
	return z.lineSource.close()
}

// start moves to the first text there is. The faults before it are in the queue.
func (z *zstdSource) start() error {
	t := z.text
	for len(t.rest) == 0 && t.big == nil && !z.done {
		var err error
		switch {
		case t.halt != haltNone:
			err = z.turn(false, nil)
		case t.cut:
			t.halt = haltCutEnd
		default:
			err = t.step()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (z *zstdSource) next(rec *record) error {
	if !z.reading {
		// Only now, so that a log that is opened and left needs no closing.
		z.reading = true
		if z.text.size >= aheadSize && runtime.GOMAXPROCS(0) > 1 {
			z.text.decodeAhead()
		}
	}
	for {
		if len(z.queue) > 0 {
			f := z.queue[0]
			z.queue = z.queue[1:]
			rec.fail(f.d, f.strict, f.whole)
			return nil
		}
		if z.done {
			return io.EOF
		}
		if z.again {
			return z.lineSource.next(rec)
		}
		line, torn, err := z.lines.next()
		if err == nil && !torn {
			var pos Position
			pos, rec.strict = z.place(z.pos())
			rec.parse(line, pos)
			return nil
		}
		var long *longLine
		switch {
		case errors.As(err, &long) && long.torn:
			torn = true
		case long != nil:
			pos, d := z.long(long)
			d.Pos, rec.strict = z.place(pos)
			rec.fail(d, rec.strict, false)
			return nil
		case err != nil && err != io.EOF:
			return err
		case !torn:
			z.lines.line--
		}
		if err := z.turn(torn, long); err != nil {
			return err
		}
	}
}

// turn decides what follows where the text stopped. With torn the current line
// is the beginning of a record whose line feed has not come; with long, one that
// was too long to be held.
func (z *zstdSource) turn(torn bool, long *longLine) error {
	t, l := z.text, &z.lines
	f := t.frame
	pos := z.pos()
	if long != nil {
		pos.Offset, pos.Length = long.off, long.n
	}
	pos, _ = z.place(pos)
	rest := pos.Length
	if !torn {
		pos.Line++
		pos.Offset, pos.Length, rest = t.at, 0, 0
	}
	// at places a fault of the frame f itself.
	at := func(index int, off int64) Position {
		p := pos
		if rest > 0 {
			p.Line++
		}
		p.Offset, p.Length, p.Frame, p.FrameAt = t.at, 0, index, off
		return p
	}
	// join lets the next line begin with the rest of this one.
	join := func() {
		if torn && long == nil {
			l.end = l.start
			l.line--
		}
	}
	why := t.halt
	t.halt = haltNone
	l.err = nil

	switch why {
	case haltEnd:
		if torn {
			z.queue = append(z.queue, z.unended(pos, rest))
		}
		z.done = true

	case haltSkip:
		z.fault(at(f.Index, f.Offset), true, skipDefect(f))
		join()

	case haltCut:
		inner, err := z.inner(f)
		if err != nil {
			return err
		}
		if inner >= 0 {
			z.fault(at(f.Index, f.Offset), false, &Defect{Rule: RuleFrameData, Class: Corrupt,
				Message: fmt.Sprintf("the frame at byte %d runs past the end of the file, but a whole frame begins inside it, at byte %d: a length in it is damaged", f.Offset, inner),
				Hint:    fmt.Sprintf("the harness takes this for a torn tail: it drops everything from here on, and when it continues the log it cuts the file at byte %d; keep a copy", f.Offset)})
			return nil
		}
		if torn {
			u := z.unended(pos, rest)
			u.whole = true
			z.queue = append(z.queue, u)
			join()
		}
		z.cutAt, z.lines0 = t.at, l.line
		t.cut = true
		var de *zframe.DecodeError
		if err := t.load(f); errors.As(err, &de) {
			z.cutErr = de
		} else if err != nil {
			return err
		}

	case haltCutEnd:
		z.fault(at(f.Index, f.Offset), true, z.tornDefect(f, rest))
		z.queue[len(z.queue)-1].strict = false
		z.done = true

	case haltData:
		var de *zframe.DecodeError
		errors.As(t.err, &de)
		d := &Defect{Rule: RuleFrameData, Class: Corrupt, Err: t.err,
			Message: fmt.Sprintf("the frame at byte %d, %d bytes long, does not decode: %s", f.Offset, f.Length, reason(de)),
			Hint:    "its records are lost, those of other frames are sound; the harness refuses the log"}
		p := at(f.Index, f.Offset)
		if errors.Is(de, zframe.ErrChecksum) && plausible(t.text, l.buf[l.start:l.end], torn) {
			d.Message = fmt.Sprintf("the frame at byte %d, %d bytes long, has a wrong checksum: %s", f.Offset, f.Length, de.Detail)
			d.Hint = "its text still reads as records, which are shown but proven by nothing; the harness refuses the log"
			z.fault(p, true, d)
			t.rest = t.text
			t.mark(f)
			join()
			break
		}
		z.fault(p, false, d)
		// Frames that overlap come only from looking for a beginning inside a
		// damaged one; a file made to have many of them must not take for ever.
		if z.waste += f.Length; z.waste > 4*t.size {
			d.Hint += "; too much of the file is damaged to look further"
			z.done = true
		}

	case haltBad:
		var bad *zframe.Error
		errors.As(t.err, &bad)
		from := bad.Start + 1
		if t.bad != nil && t.bad.End() == bad.Start {
			// The frame before did not decode either: its length may be wrong.
			from = t.bad.Offset + 1
		}
		next, err := t.walk.Resync(from)
		if err != nil {
			return err
		}
		d := badDefect(bad)
		if next < 0 {
			d.Message += "; no frame begins behind it"
			d.Hint = "what stands before it is sound; the harness refuses the log"
			z.done = true
		} else {
			d.Message += fmt.Sprintf("; the next frame begins at byte %d", next)
			d.Hint = "the records of the frames around the damage are sound; the harness refuses the log"
		}
		p := at(bad.Frame, bad.Start)
		z.fault(p, false, d)
	}
	return nil
}

func (z *zstdSource) fault(p Position, whole bool, d *Defect) {
	d.Pos = p
	z.queue = append(z.queue, fault{d: d, strict: true, whole: whole})
}

// badDefect describes structural damage.
func badDefect(bad *zframe.Error) *Defect {
	d := &Defect{Rule: RuleFrameReserved, Class: Corrupt, Err: bad}
	switch bad.Fault {
	case zframe.BadMagic:
		d.Rule = RuleFrameMagic
		d.Message = fmt.Sprintf("no frame begins at byte %d: expected 28 b5 2f fd, got % x", bad.Offset, bad.Got)
	case zframe.ReservedBit:
		d.Message = fmt.Sprintf("a reserved bit is set in the descriptor %#02x at byte %d, in the frame at byte %d", bad.Got[0], bad.Offset, bad.Start)
	case zframe.ReservedBlock:
		d.Message = fmt.Sprintf("a block of the reserved type 3 at byte %d, in the frame at byte %d", bad.Offset, bad.Start)
	}
	return d
}

// skipDefect describes a skippable frame.
func skipDefect(f *zframe.Frame) *Defect {
	d := &Defect{Rule: RuleFrameSkip, Class: Corrupt,
		Message: fmt.Sprintf("a skippable frame of %s stands at byte %d, expected a frame with records", count(f.Length, "byte"), f.Offset),
		Hint:    "no harness writes these, and every one refuses a log that holds one; some tool has added it: the records around it are sound"}
	if f.Cut != zframe.Whole {
		d.Message = fmt.Sprintf("a skippable frame stands at byte %d and is cut after %s, expected a frame with records", f.Offset, count(f.Length, "byte"))
	}
	return d
}

// unended is the fault of complete frames that end inside a record, which is
// refused even at the very end (PHYSICAL §3.3 step 5).
func (z *zstdSource) unended(pos Position, rest int64) fault {
	return fault{strict: true, d: &Defect{Rule: RuleFrameLine, Class: Corrupt, Pos: pos, At: rest,
		Message: fmt.Sprintf("the last complete frame ends %s into a record, expected its rest and a line feed", plural.Count(rest, "byte")),
		Hint:    "a frame is written with whole lines: this is no crash; the harness refuses the log"}}
}

// tornDefect describes the frame that the file ends in, after all that is there
// of it was read. The last rest bytes are no whole line.
func (z *zstdSource) tornDefect(f *zframe.Frame, rest int64) *Defect {
	d := &Defect{Rule: RuleFrameTorn, Class: Torn,
		Hint: fmt.Sprintf("the write was cut short; a harness that continues the log cuts the file at byte %d", f.Offset)}
	where := map[zframe.Cut]string{
		zframe.CutMagic:    "in its first four bytes",
		zframe.CutHeader:   "in its header",
		zframe.CutBlock:    "in a block",
		zframe.CutChecksum: "in its checksum",
	}[f.Cut]
	if f.Stray {
		d.Message = fmt.Sprintf("%s behind the last frame are not the beginning of another", count(f.Length, "byte"))
		d.Hint = "the harness takes fewer than four bytes for a frame that was cut, and drops them"
		return d
	}
	got := z.text.at - z.cutAt
	lines := z.lines.line - z.lines0
	if rest > 0 {
		lines--
	}
	d.Message = fmt.Sprintf("the last frame, at byte %d, is cut %s after %s", f.Offset, where, count(f.Length, "byte"))
	switch {
	case z.cutErr != nil:
		var de *zframe.DecodeError
		errors.As(z.cutErr, &de)
		d.Err = z.cutErr
		d.Message += "; nothing of it is recovered: " + reason(de)
	case got == 0:
		d.Message += "; no text of it can be read"
	default:
		d.Message += fmt.Sprintf("; %s of text can be read, %s", count(got, "byte"), count(lines, "whole line"))
		if rest > 0 {
			d.Message += fmt.Sprintf(" and %s of another", count(min(rest, got), "byte"))
		}
	}
	return d
}

func count(n int64, what string) string {
	return plural.Count(n, what)
}

func reason(de *zframe.DecodeError) string {
	s := de.Err.Error()
	if de.Detail != "" {
		s += " (" + de.Detail + ")"
	}
	return s
}

// inner looks for a frame inside a cut one that is whole and proven by its
// checksum, and returns its offset or -1. The plain bytes of a log cannot hold
// the magic, so such a frame means that the cut one is none: a length in it is
// wrong. The walker is moved to the frame.
func (z *zstdSource) inner(f *zframe.Frame) (int64, error) {
	t := z.text
	if f.Skippable {
		return -1, nil
	}
	for from := f.Offset + 1; ; {
		off, err := t.walk.Resync(from)
		if err != nil || off < 0 {
			return -1, err
		}
		g, err := t.walk.Next()
		if err != nil {
			return -1, err
		}
		if g.Cut == zframe.Whole && g.Checksum && !g.Skippable {
			if n, err := t.dec.Verify(t.r, g); err == nil && n > 0 {
				t.walk.Back(g)
				return off, nil
			}
			if z.waste += g.Length; z.waste > 4*t.size {
				return -1, nil
			}
		}
		t.walk.Back(g)
		from = off + 1
	}
}

// plausible reports whether text whose checksum is wrong still consists of whole
// lines of JSON. With torn the first of them begins with rest.
func plausible(text, rest []byte, torn bool) bool {
	if len(text) == 0 || text[len(text)-1] != '\n' {
		return false
	}
	if torn {
		i := bytes.IndexByte(text, '\n')
		line := append(bytes.Clone(rest), text[:i]...)
		if _, err := jsjson.Check(line); err != nil {
			return false
		}
		text = text[i+1:]
	}
	for len(text) > 0 {
		i := bytes.IndexByte(text, '\n')
		if _, err := jsjson.Check(text[:i]); err != nil {
			return false
		}
		text = text[i+1:]
	}
	return true
}

// finish hands over what only the whole file tells.
func (z *zstdSource) finish(l *Log) {
	l.frames = z.text.stats
	if z.done {
		l.scan.committed = z.text.sound
	}
}

// zstdSuffix ends the names of Zstandard logs.
const zstdSuffix = ".zstd"

// isZstd reports whether a file is read as frames. A name that promises them
// decides where the first bytes say nothing, so that a log whose beginning is
// damaged is still read.
func isZstd(name string, head []byte) bool {
	if len(head) >= 4 && (string(head[:4]) == "\x28\xb5\x2f\xfd" || head[0]&0xF0 == 0x50 && string(head[1:4]) == "\x2a\x4d\x18") {
		return true
	}
	if len(head) < 4 && bytes.HasPrefix(head, []byte("\x28\xb5")) {
		return true // all there is of a file
	}
	return strings.HasSuffix(name, zstdSuffix) && !isText(head)
}

// isText reports whether the first bytes are those of a JSON text.
func isText(head []byte) bool {
	t := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n")
	return len(t) > 0 && t[0] == '{'
}

// misnamed notes that a log is stored in another form than its name says: the
// harness goes by the name (PHYSICAL §1.5).
func (l *Log) misnamed(head []byte) {
	d := &Defect{Class: Corrupt, Seq: -1, Pos: Position{Frame: -1, FrameAt: -1, Row: -1, Member: -1}}
	base := filepath.Base(l.Path)
	switch {
	case (l.Container == Plain || l.Container == Golden) && strings.HasSuffix(base, ".jsonl"+zstdSuffix):
		d.Rule = RuleFrameMagic
		d.Message = fmt.Sprintf("plain text under the name of a Zstandard log: expected 28 b5 2f fd, got % x", head[:min(4, len(head))])
		d.Hint = "the harness goes by the name and refuses the log; the text is read as it is"
	case l.Container == Zstd && strings.HasSuffix(base, ".jsonl") && isLogName(base):
		// Of other names nobody promises what they hold.
		d.Rule = RuleHeader
		d.Message = "Zstandard frames under the name of a plain log"
		d.Hint = "the harness goes by the name and refuses the log; the frames are read as they are"
	default:
		return
	}
	l.opening = append([]*Defect{d}, l.opening...)
}

// openZstd opens a file of frames.
func openZstd(l *Log, in *input) error {
	ra, size, err := randomAccess(in)
	if err != nil {
		return err
	}
	z := newZstdSource(ra, size, in.closer)
	if in.file != nil {
		l.reopen = func() (source, error) { return l.reopenZstd(in.path) }
	}
	if err := z.start(); err != nil {
		return err
	}
	var faults []*Defect
	for _, f := range z.queue {
		faults = append(faults, f.d)
	}
	z.queue = nil
	if z.done {
		l.refuse(Corrupt, RuleHeader, "no frame of the file can be read, expected one with the header record", "nothing was ever written, or the content is lost")
		if size == 0 {
			l.opening[0].Message = "the file is empty, expected a frame with the header record"
		}
	} else {
		var at Position
		z.text.place(&at)
		if err := l.openLines(&z.lineSource); err != nil {
			return err
		}
		l.first = z
		for _, d := range l.opening {
			d.Pos.Frame, d.Pos.FrameAt = at.Frame, at.FrameAt
		}
		if l.Header != nil {
			l.Header.Pos.Frame, l.Header.Pos.FrameAt = at.Frame, at.FrameAt
		}
	}
	first := Defect{Rule: RuleFrameHeader, Class: Corrupt, Seq: -1, Pos: Position{Line: 1, Row: -1, Member: -1}}
	switch t := z.text; {
	case t.cut && t.frame.Offset == 0:
		first.Message = fmt.Sprintf("the first frame is cut after %s, expected a complete one with the header record", count(t.frame.Length, "byte"))
		first.Hint = "the harness opens no log without a complete first frame"
		// One cause, one defect.
		faults = append(faults[:0], &first)
		if l.Header == nil {
			l.opening = nil
		}
	case t.first.seen && !t.first.header():
		first.Message = "the first frame is empty, expected exactly the header line"
		if t.first.bytes > 0 {
			first.Message = fmt.Sprintf("the first frame holds %s in %s, expected exactly the header line", count(t.first.lines, "line feed"), count(t.first.bytes, "byte"))
		}
		first.Hint = "the records are read, but the harness refuses the log; some other tool has compressed it"
		faults = append(faults, &first)
	}
	if l.stop {
		// The harness looks at the structure of the whole file before it looks at
		// the version.
		if d := z.structure(); d != nil {
			faults = append(faults, d)
		}
	}
	l.opening = append(faults, l.opening...)
	return nil
}

// structure finds structural damage in frames that are not read.
func (z *zstdSource) structure() *Defect {
	for {
		f, err := z.text.walk.Next()
		var bad *zframe.Error
		switch {
		case errors.As(err, &bad):
			d := badDefect(bad)
			d.Hint = "the harness refuses the log before it looks at the version"
			d.Pos, d.Seq = Position{Frame: bad.Frame, FrameAt: bad.Start, Row: -1, Member: -1}, -1
			return d
		case err != nil:
			return nil
		case f.Skippable && f.Cut != zframe.CutMagic:
			d := skipDefect(f)
			d.Pos, d.Seq = Position{Frame: f.Index, FrameAt: f.Offset, Row: -1, Member: -1}, -1
			return d
		}
	}
}

func (l *Log) reopenZstd(path string) (source, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	z := newZstdSource(f, st.Size(), f)
	if err := z.start(); err != nil {
		f.Close()
		return nil, err
	}
	z.queue = nil // told on opening
	if _, err := l.behindHeader(&z.lineSource); err != nil {
		return nil, err
	}
	return z, nil
}

// randomAccess makes an input readable at any place: a file as it is, a stream by
// way of memory or a temporary file.
func randomAccess(in *input) (io.ReaderAt, int64, error) {
	if in.file != nil {
		st, err := in.file.Stat()
		if err != nil {
			return nil, 0, err
		}
		if st.Mode().IsRegular() {
			return in.file, st.Size(), nil
		}
	}
	var mem bytes.Buffer
	if n, err := io.CopyN(&mem, in.r, spoolMemory); err == io.EOF {
		return bytes.NewReader(mem.Bytes()), n, nil
	} else if err != nil {
		return nil, 0, err
	}
	f, err := os.CreateTemp("", "dsh-audit-*")
	if err != nil {
		return nil, 0, err
	}
	s := &spooled{File: f, source: in.closer}
	if os.Remove(f.Name()) != nil {
		s.remove = f.Name() // not while it is open, on this system
	}
	in.closer = s
	n, err := io.Copy(f, io.MultiReader(&mem, in.r))
	return f, n, err
}

// spooled is a temporary copy of a stream; closing it closes the stream as well.
type spooled struct {
	*os.File
	remove string
	source io.Closer
}

func (s *spooled) Close() error {
	err := s.File.Close()
	if s.remove != "" {
		err = errors.Join(err, os.Remove(s.remove))
	}
	if s.source != nil {
		err = errors.Join(err, s.source.Close())
	}
	return err
}
