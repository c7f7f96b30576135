package verify

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dsh-audit/dsh-audit/internal/cli"
)

// An outfile is a file that comes into being when it is complete: it is written
// under another name beside its own and renamed at the end. A run that fails or is
// interrupted leaves what was there before.
type outfile struct {
	path string // as given
	*bufio.Writer
	file *os.File
	temp string // name while it is written; "" for a device or pipe, which is written at once
	done bool   // committed or aborted
	dest string // name in the end: path with links followed
}

// createFile starts a file. One that is a log, or is to be judged, is refused.
func createFile(path string, inputs []string) (*outfile, error) {
	o := &outfile{path: path, dest: path}
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if dest, err := os.Readlink(path); err == nil {
			return nil, o.trouble(fmt.Errorf("a link to %s, which is not there", dest))
		}
	case err != nil:
		return nil, o.trouble(err)
	case st.IsDir():
		return nil, o.trouble(errors.New("is a directory"))
	case !st.Mode().IsRegular():
		if o.file, err = os.OpenFile(path, os.O_WRONLY, 0); err != nil {
			return nil, o.trouble(err)
		}
		o.Writer = bufio.NewWriter(o.file)
		return o, nil
	default:
		for _, in := range inputs {
			if other, err := os.Stat(in); err == nil && os.SameFile(st, other) {
				return nil, cli.Usage(path + ": would be overwritten, and is to be read")
			}
		}
		if isLog(path) {
			return nil, cli.Usage(path + ": would be overwritten, and is a session log, a database or an archive")
		}
		if o.dest, err = filepath.EvalSymlinks(path); err != nil {
			return nil, o.trouble(err)
		}
	}
	// Not os.CreateTemp, which makes files that only their owner can read.
	for i := 0; ; i++ {
		o.temp = filepath.Join(filepath.Dir(o.dest), fmt.Sprintf(".%s.%d-%d.tmp", filepath.Base(o.dest), os.Getpid(), i))
		o.file, err = os.OpenFile(o.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) || i == 100 {
			return nil, o.trouble(err)
		}
	}
	o.Writer = bufio.NewWriter(o.file)
	if st != nil {
		if err := o.file.Chmod(st.Mode().Perm()); err != nil {
			o.abort()
			return nil, o.trouble(err)
		}
	}
	return o, nil
}

// isLog reports whether a file begins like something the harness keeps sessions
// in.
func isLog(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 64)
	n, _ := io.ReadFull(f, head)
	for _, magic := range []string{`{"type":"session"`, "\x28\xb5\x2f\xfd", "SQLite format 3\x00", "PK\x03\x04"} {
		if bytes.HasPrefix(head[:n], []byte(magic)) {
			return true
		}
	}
	return false
}

// commit makes the file complete and gives it its name.
func (o *outfile) commit() error {
	o.done = true
	err := o.Flush()
	if err == nil && o.temp != "" {
		err = o.file.Sync()
	}
	if cerr := o.file.Close(); err == nil {
		err = cerr
	}
	if err == nil && o.temp != "" {
		err = os.Rename(o.temp, o.dest)
	}
	if err != nil {
		if o.temp != "" {
			os.Remove(o.temp)
		}
		return o.trouble(err)
	}
	return nil
}

// abort leaves everything as it was. After commit it does nothing.
func (o *outfile) abort() {
	if o.done {
		return
	}
	o.done = true
	o.file.Close()
	if o.temp != "" {
		os.Remove(o.temp)
	}
}

func (o *outfile) trouble(err error) error {
	var pe *fs.PathError
	var le *os.LinkError
	switch {
	case errors.As(err, &pe):
		err = pe.Err
	case errors.As(err, &le):
		err = le.Err
	}
	return cli.Fail(cli.Trouble, fmt.Errorf("%s: %w", o.path, err))
}
