package sqlitedb

import (
	"io"
	"sort"
)

// overlay shows a database file with the committed pages of its WAL on top, as
// an immutable database in rollback mode. It is safe for concurrent use.
type overlay struct {
	file     io.ReaderAt
	fileSize int64
	wal      io.ReaderAt
	frames   []frame // of the WAL, one a page, by page number
	pageSize int64
	pages    int64 // of the database shown
}

// Size implements ioutil.SizeReaderAt.
func (o *overlay) Size() (int64, error) { return o.pages * o.pageSize, nil }

// ReadAt implements io.ReaderAt.
func (o *overlay) ReadAt(b []byte, off int64) (int, error) {
	total := 0
	end := o.pages * o.pageSize
	for total < len(b) {
		if off < 0 || off >= end {
			return total, io.EOF
		}
		page := off / o.pageSize
		in := off % o.pageSize
		part := b[total:]
		if max := o.pageSize - in; int64(len(part)) > max {
			part = part[:max]
		}
		var err error
		if at, ok := o.find(uint32(page + 1)); ok {
			err = fill(o.wal, part, at+in)
		} else {
			err = o.fromFile(part, off)
		}
		if err != nil {
			return total, err
		}
		if page == 0 {
			// Write and read version: 2 would send SQLite looking for a WAL.
			for i := int64(18); i <= 19; i++ {
				if k := i - in; k >= 0 && k < int64(len(part)) {
					part[k] = 1
				}
			}
		}
		total += len(part)
		off += int64(len(part))
	}
	return total, nil
}

// fromFile reads from the file; what lies beyond its end is zero.
func (o *overlay) fromFile(b []byte, off int64) error {
	n := 0
	if off < o.fileSize {
		n = len(b)
		if rest := o.fileSize - off; int64(n) > rest {
			n = int(rest)
		}
		if err := fill(o.file, b[:n], off); err != nil {
			return err
		}
	}
	clear(b[n:])
	return nil
}

// fill reads all of b. A file that has become shorter is an error.
func fill(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// find returns where the WAL holds the content of a page.
func (o *overlay) find(page uint32) (int64, bool) {
	i := sort.Search(len(o.frames), func(i int) bool { return o.frames[i].page >= page })
	if i == len(o.frames) || o.frames[i].page != page {
		return 0, false
	}
	return walHeaderSize + int64(o.frames[i].n)*(frameHeaderSize+o.pageSize) + frameHeaderSize, true
}

// missing counts the pages that are neither in the WAL nor whole in the file.
func (o *overlay) missing(filePages int64) int64 {
	if o.pages <= filePages {
		return 0
	}
	n := o.pages - filePages
	for i := len(o.frames) - 1; i >= 0 && int64(o.frames[i].page) > filePages; i-- {
		n--
	}
	return n
}
