package logfmt

import (
	"bytes"
	"fmt"
	"io"
)

// lineReader cuts a stream at line feeds. It keeps one growing buffer and holds
// no more of the stream than the longest line, the line after it when peeked at,
// and one read.
//
// Invariant: 0 <= start <= end <= len(buf) and scanned <= len(buf).
// buf[start:end] is the current line with its line feed, buf[end:scanned] holds no
// line feed that was not found yet, buf[end:] is what was read ahead.
type lineReader struct {
	r       io.Reader
	buf     []byte
	start   int
	end     int
	scanned int
	off     int64 // offset of buf[0] in the stream
	line    int64 // number of the current line, from 1
	err     error // of the last read: io.EOF or worse
}

const readSize = 64 << 10

// MaxLine is the longest line that is read, in bytes: a record is held in memory.
// The harness has no such limit below that of a JavaScript string.
const MaxLine = 128 << 20

// longLine stands for a line of more than MaxLine bytes, which was passed over.
type longLine struct {
	off  int64 // of the line in the stream
	n    int64 // its length with its line feed
	torn bool  // it has none: the stream ends inside it
}

func (e *longLine) Error() string {
	return fmt.Sprintf("a line of %d bytes, at most %d are read", e.n, MaxLine)
}

// next moves to the next line and returns it without its line feed. At the end
// of the stream the rest comes with torn set; then io.EOF. A read error comes in
// place of the line it cut, a *longLine in place of one that is too long. The line
// is valid until the next call of next.
func (l *lineReader) next() (line []byte, torn bool, err error) {
	l.start = l.end
	nl := l.find(false)
	l.line++
	if nl < 0 {
		if nl == tooLong {
			return nil, false, l.skipLong()
		}
		if l.err != io.EOF {
			return nil, false, l.err
		}
		if l.start == len(l.buf) {
			return nil, false, io.EOF
		}
		l.end, l.scanned = len(l.buf), len(l.buf)
		return l.buf[l.start:l.end:l.end], true, nil
	}
	l.end = nl + 1
	return l.buf[l.start:nl:nl], false, nil
}

// ahead is what was read of the stream behind the current line.
func (l *lineReader) ahead() []byte { return l.buf[l.end:] }

// lookAhead returns what stands behind the current line, which stays valid: so many
// lines, or most bytes, or all there is. It does not depend on how much a read gives.
func (l *lineReader) lookAhead(lines, most int) []byte {
	for l.err == nil && len(l.ahead()) < most && bytes.Count(l.ahead(), []byte{'\n'}) < lines {
		l.fill(true)
	}
	return l.ahead()[:min(len(l.ahead()), most)]
}

// take moves to the next line, whose length with its line feed is n.
func (l *lineReader) take(n int) {
	l.start = l.end
	l.end += n
	l.line++
}

// peek returns the line after the current one, without moving to it, and false
// when there is no complete one. The current line stays valid.
func (l *lineReader) peek() ([]byte, bool) {
	nl := l.find(true)
	if nl < 0 {
		return nil, false
	}
	return l.buf[l.end:nl:nl], true
}

// find returns the place of the first line feed at or after end, reading as
// needed, or -1 when the stream ends before one, or tooLong. With keep the bytes of the
// current line stay where they are.
func (l *lineReader) find(keep bool) int {
	if l.scanned < l.end {
		l.scanned = l.end
	}
	for {
		if i := bytes.IndexByte(l.buf[l.scanned:], '\n'); i >= 0 {
			// Left at the line feed, so that a peek costs no second search.
			l.scanned += i
			return l.scanned
		}
		l.scanned = len(l.buf)
		if l.err != nil {
			return -1
		}
		if len(l.buf)-l.end > MaxLine {
			return tooLong
		}
		l.fill(keep)
	}
}

const tooLong = -2

// skipLong passes over the rest of a line that is too long. The buffer, grown by
// it, is given up.
func (l *lineReader) skipLong() error {
	long := &longLine{off: l.offset()}
	long.n = int64(len(l.buf) - l.start)
	l.off += int64(len(l.buf))
	l.buf, l.start, l.end, l.scanned = nil, 0, 0, 0
	for {
		if l.err != nil {
			if l.err != io.EOF {
				return l.err
			}
			long.torn = true
			return long
		}
		l.fill(false)
		if i := bytes.IndexByte(l.buf, '\n'); i >= 0 {
			long.n += int64(i + 1)
			l.start, l.end, l.scanned = i+1, i+1, i+1
			return long
		}
		long.n += int64(len(l.buf))
		l.off += int64(len(l.buf))
		l.buf = l.buf[:0]
	}
}

// fill reads once. Bytes before the current line are dropped first; when they
// may not be moved because the line is in use, the rest moves to a new buffer.
func (l *lineReader) fill(keep bool) {
	if cap(l.buf)-len(l.buf) < readSize/2 {
		live := len(l.buf) - l.start
		if !keep && l.start >= live+readSize/2 {
			copy(l.buf, l.buf[l.start:])
			l.buf = l.buf[:live]
		} else {
			// A line that is too long shows itself before the buffer doubles again.
			nb := make([]byte, live, max(min(2*live, MaxLine), live)+readSize)
			copy(nb, l.buf[l.start:])
			l.buf = nb
		}
		l.off += int64(l.start)
		l.end -= l.start
		l.scanned -= l.start
		l.start = 0
	}
	// A reader may return nothing for a while, but not for ever.
	for range 100 {
		n, err := l.r.Read(l.buf[len(l.buf):cap(l.buf)])
		if n < 0 || n > cap(l.buf)-len(l.buf) {
			l.err = io.ErrNoProgress
			return
		}
		l.buf = l.buf[:len(l.buf)+n]
		if err != nil {
			l.err = err
			return
		}
		if n > 0 {
			return
		}
	}
	l.err = io.ErrNoProgress
}

// current returns the current line, which is a complete one, without its line
// feed.
func (l *lineReader) current() []byte { return l.buf[l.start : l.end-1 : l.end-1] }

// offset is where the current line starts in the stream.
func (l *lineReader) offset() int64 { return l.off + int64(l.start) }
