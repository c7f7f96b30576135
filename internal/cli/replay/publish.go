package replay

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/dsh-audit/dsh-audit/internal/cli"
)

// A publication is a new file that appears under its name only when it is
// complete. It is written aside, in the same directory, and never takes the place
// of another. Interrupting the run removes what was written.
type publication struct {
	name string // as it will be called
	temp string

	mu      sync.Mutex
	gone    bool // nothing is to be published any more
	release func() bool
}

// newPublication reserves a name that no file has.
func newPublication(ctx context.Context, name string) (*publication, error) {
	if err := unused(name); err != nil {
		return nil, err
	}
	dir := filepath.Dir(name)
	st, err := os.Stat(dir)
	switch {
	case err != nil:
		return nil, cli.Fail(cli.Trouble, fmt.Errorf("%s: %w", dir, cause(err)), "the directory has to exist")
	case !st.IsDir():
		return nil, cli.Fail(cli.Trouble, fmt.Errorf("%s: not a directory", dir))
	}
	var random [6]byte
	rand.Read(random[:]) // never fails
	p := &publication{name: name, temp: filepath.Join(dir, ".dsh-export-"+hex.EncodeToString(random[:])+".tmp")}
	p.release = context.AfterFunc(ctx, p.abandon)
	return p, nil
}

func unused(name string) error {
	_, err := os.Lstat(name)
	switch {
	case err == nil:
		return cli.Fail(cli.Trouble, fmt.Errorf("%s: the file exists, and export never replaces one", name), "choose another name")
	case !errors.Is(err, fs.ErrNotExist):
		return cli.Fail(cli.Trouble, fmt.Errorf("%s: %w", name, cause(err)))
	}
	return nil
}

// cause drops the path that an error of the system repeats.
func cause(err error) error {
	var pe *fs.PathError
	var le *os.LinkError
	switch {
	case errors.As(err, &pe):
		return pe.Err
	case errors.As(err, &le):
		return le.Err
	}
	return err
}

// abandon removes what was written so far. It may be called at any time, and
// more than once.
func (p *publication) abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		p.gone = true
		p.release()
	}
	os.Remove(p.temp) // a file that is not there is what is wanted
}

// publish gives the finished and durable file its name.
func (p *publication) publish() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return context.Canceled
	}
	if err := os.Link(p.temp, p.name); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return unused(p.name)
		}
		return cli.Fail(cli.Trouble, fmt.Errorf("%s: %w", p.name, cause(err)),
			"the file gets its name by a hard link, which never replaces another; choose a directory that allows them")
	}
	p.gone = true
	p.release()
	if err := os.Remove(p.temp); err != nil {
		return cli.Fail(cli.Trouble, fmt.Errorf("%s: %w", p.temp, cause(err)), "the export is complete; remove this file")
	}
	return syncDir(filepath.Dir(p.name))
}

// syncDir makes the names in a directory durable, where the system can.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return nil // it may be written and not read: the name is there all the same
	}
	defer d.Close()
	err = d.Sync()
	if err == nil || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrInvalid) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return cli.Fail(cli.Trouble, fmt.Errorf("%s: %w", dir, cause(err)), "the export is complete, but may be lost when the power fails now")
}
