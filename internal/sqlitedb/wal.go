package sqlitedb

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

const (
	walHeaderSize   = 32
	frameHeaderSize = 24
	walMagicLE      = 0x377f0682 // checksums over little-endian words
	walMagicBE      = 0x377f0683 // checksums over big-endian words
	walVersion      = 3007000
)

// A WAL describes a write-ahead log.
type WAL struct {
	Path     string
	Size     int64
	PageSize int
	// Fault says why the whole file is of no use; SQLite ignores such a WAL.
	// Empty if the header is good.
	Fault string
	// BigEndian is the byte order of its checksums.
	BigEndian bool

	Frames      int64 // whole frames in the file
	Committed   int64 // frames up to the last commit: what is shown
	Commits     int64 // transactions in them
	Pages       int64 // distinct pages in them
	Uncommitted int64 // sound frames after the last commit, of a transaction that never ended
	// Rest counts the frames after the sound ones. RestFault says what is wrong
	// with the first of them, which begins at RestOffset.
	Rest       int64
	RestFault  RestFault
	RestOffset int64
	// LostCommits counts commit marks in the rest that carry the salts of this
	// WAL: transactions that were written and can no longer be reached.
	LostCommits int64
	PartialEnd  int64 // bytes after the last whole frame

	dbPages uint32 // size of the database after the last commit
}

// RestFault is why a WAL ends before its file does.
type RestFault string

const (
	RestNone     RestFault = ""
	RestSalt     RestFault = "salt"     // left over from before a reset: normal
	RestChecksum RestFault = "checksum" // overwritten or never completely written
	RestPage     RestFault = "page"     // page number 0
)

// frame says which frame of a WAL holds a page.
type frame struct {
	page uint32
	n    uint32 // from 0
}

// scanWAL reads a WAL as SQLite does when it recovers one, and returns the
// frames to be shown, by page.
func scanWAL(r io.ReaderAt, size int64) (*WAL, []frame, error) {
	w := &WAL{Size: size}
	if size < walHeaderSize {
		if size > 0 {
			w.Fault = fmt.Sprintf("ends after %d bytes, inside its header of 32", size)
		}
		return w, nil, nil
	}
	in := bufio.NewReaderSize(io.NewSectionReader(r, 0, size), 1<<17)
	var head [walHeaderSize]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, nil, err
	}
	magic := binary.BigEndian.Uint32(head[0:])
	if magic != walMagicLE && magic != walMagicBE {
		w.Fault = fmt.Sprintf("begins with %#08x, not the mark of a WAL", magic)
		return w, nil, nil
	}
	w.BigEndian = magic == walMagicBE
	ps := binary.BigEndian.Uint32(head[8:])
	if ps < 512 || ps > 65536 || ps&(ps-1) != 0 {
		w.Fault = fmt.Sprintf("page size %d is not a power of two from 512 to 65536", ps)
		return w, nil, nil
	}
	w.PageSize = int(ps)
	sum := checksum(w.BigEndian, [2]uint32{}, head[:24])
	if sum[0] != binary.BigEndian.Uint32(head[24:]) || sum[1] != binary.BigEndian.Uint32(head[28:]) {
		w.Fault = "wrong checksum of the header"
		return w, nil, nil
	}
	if v := binary.BigEndian.Uint32(head[4:]); v != walVersion {
		return nil, nil, &Error{Offset: 4, Err: ErrUnsupported,
			Message: fmt.Sprintf("WAL format %d, SQLite reads only %d", v, walVersion)}
	}
	salts := [8]byte(head[16:24])

	step := frameHeaderSize + int64(ps)
	w.Frames = (size - walHeaderSize) / step
	w.PartialEnd = (size - walHeaderSize) % step
	if w.Frames > 1<<31 {
		return nil, nil, &Error{Offset: -1, Err: ErrUnsupported, Message: fmt.Sprintf("%d frames are more than SQLite can index", w.Frames)}
	}

	buf := make([]byte, step)
	var frames []frame
	sound := true
	for n := int64(0); n < w.Frames; n++ {
		var page, commit uint32
		if !sound {
			// Only the marks matter now.
			if _, err := io.ReadFull(in, buf[:frameHeaderSize]); err != nil {
				return nil, nil, err
			}
			if _, err := in.Discard(int(ps)); err != nil {
				return nil, nil, err
			}
		} else if _, err := io.ReadFull(in, buf); err != nil {
			return nil, nil, err
		}
		page, commit = binary.BigEndian.Uint32(buf[0:]), binary.BigEndian.Uint32(buf[4:])
		same := [8]byte(buf[8:16]) == salts
		if sound {
			sum = checksum(w.BigEndian, sum, buf[:8])
			sum = checksum(w.BigEndian, sum, buf[frameHeaderSize:])
			switch {
			case !same:
				w.RestFault = RestSalt
			case page == 0:
				w.RestFault = RestPage
			case sum[0] != binary.BigEndian.Uint32(buf[16:]) || sum[1] != binary.BigEndian.Uint32(buf[20:]):
				w.RestFault = RestChecksum
			}
			if w.RestFault != RestNone {
				sound = false
				w.Rest = w.Frames - n
				w.RestOffset = walHeaderSize + n*step
			}
		}
		if !sound {
			if same && commit != 0 {
				w.LostCommits++
			}
			continue
		}
		frames = append(frames, frame{page, uint32(n)})
		if commit != 0 {
			w.Committed = n + 1
			w.Commits++
			w.dbPages = commit
		}
	}
	w.Uncommitted = int64(len(frames)) - w.Committed

	// Keep the last frame of each page that still exists.
	frames = frames[:w.Committed]
	slices.SortFunc(frames, func(a, b frame) int {
		return cmp.Or(cmp.Compare(a.page, b.page), cmp.Compare(a.n, b.n))
	})
	out := frames[:0]
	for i, f := range frames {
		if i+1 < len(frames) && frames[i+1].page == f.page || f.page > w.dbPages {
			continue
		}
		out = append(out, f)
	}
	w.Pages = int64(len(out))
	return w, slices.Clip(out), nil
}

// checksum continues the running sum of a WAL over b, a multiple of 8 bytes.
func checksum(big bool, s [2]uint32, b []byte) [2]uint32 {
	s0, s1 := s[0], s[1]
	if big {
		for ; len(b) >= 8; b = b[8:] {
			s0 += binary.BigEndian.Uint32(b) + s1
			s1 += binary.BigEndian.Uint32(b[4:]) + s0
		}
	} else {
		for ; len(b) >= 8; b = b[8:] {
			s0 += binary.LittleEndian.Uint32(b) + s1
			s1 += binary.LittleEndian.Uint32(b[4:]) + s0
		}
	}
	return [2]uint32{s0, s1}
}
