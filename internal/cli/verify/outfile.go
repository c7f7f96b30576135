package verify

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/dsh-audit/dsh-audit/internal/cli"
)

// An outfile is a file that comes into being when it is complete: it is written
// under another name beside its own and renamed at the end. A run that fails or is
// interrupted leaves what was there before, even one that hangs in a write to a pipe
// that nobody reads and never sees the signal.
type outfile struct {
	path string // as given
	*bufio.Writer
	file *os.File
	temp string // name while it is written; "" for a device or pipe, which is written at once
	dest string // name in the end: path with links followed

	mu      sync.Mutex
	done    bool // committed or aborted
	release func() bool
}

// createFile starts a file. One that is a log, or is to be judged, is refused.
func createFile(ctx context.Context, path string, inputs []string) (*outfile, error) {
	o := &outfile{path: path, dest: path, release: func() bool { return true }}
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
	o.mu.Lock() // abort may run at once
	o.release = context.AfterFunc(ctx, o.abort)
	o.mu.Unlock()
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
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done {
		return context.Canceled // nothing else aborts a file that is to be committed
	}
	o.done = true
	o.release()
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

// abort leaves everything as it was. After commit it does nothing. It may be called
// at any time.
func (o *outfile) abort() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done {
		return
	}
	o.done = true
	o.release()
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
