package verify

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/report"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/invariants"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
	"github.com/dsh-audit/dsh-audit/pkg/migrate"
)

// An outcome is what the pipeline gives, in the order of the arguments and of the
// logs in them, whatever was ready first.
type outcome struct {
	res    *report.Result // nil when the log belongs to another shard
	err    error          // ends the run
	report bool           // res, or the place of one in another shard

	// At the end of an argument.
	end     bool
	path    string
	logs    int64 // it gave, in all shards
	skipped int64 // files that were passed over, in this shard
}

// A pipeline judges logs side by side.
//
// One goroutine goes through the arguments and queues a unit for each log of a
// directory, or for each file. A unit has its own channel, so that the reader of
// the queue gets everything in order. Queue, channels and the number of units at
// work are bounded; the oldest unit is always among those at work, so that none
// waits for ever.
type pipeline struct {
	c     *cli.Call
	plan  *plan
	shard *report.Shard
	cwd   string          // absolute, "" when unknown
	own   map[string]bool // files this run writes
	ahead bool            // fewer files than are judged at a time: each is read ahead

	recording io.Reader // of --requests; nil when not given
	compared  bool      // the recording was read
	parents   parents
	queue     chan chan outcome
	work      chan struct{} // one token for each unit at work
	floor     []byte        // see directory
	wait      sync.WaitGroup
}

// run judges the paths. The channels in the queue end with the queue, or early
// when the context does.
func (p *pipeline) run(ctx context.Context, paths []string) <-chan chan outcome {
	p.parents.paths = paths
	p.ahead = len(paths) < p.plan.jobs
	p.queue = make(chan chan outcome, 4*p.plan.jobs)
	p.work = make(chan struct{}, p.plan.jobs)
	if wd, err := os.Getwd(); err == nil {
		p.cwd = wd
	}
	go func() {
		defer close(p.queue)
		for _, path := range paths {
			if !p.operand(ctx, path) {
				break
			}
		}
		p.wait.Wait()
	}()
	return p.queue
}

// unit queues a unit and, when f is there, starts it. It reports false when the
// run is over.
func (p *pipeline) unit(ctx context.Context, f func(emit func(outcome) bool)) bool {
	out := make(chan outcome, 1)
	select {
	case p.queue <- out:
	case <-ctx.Done():
		return false
	}
	select {
	case p.work <- struct{}{}:
	case <-ctx.Done():
		close(out)
		return false
	}
	p.wait.Add(1)
	go func() {
		defer p.wait.Done()
		defer func() { <-p.work }()
		defer close(out)
		defer func() {
			if r := recover(); r != nil {
				sendPanic(ctx, out, r)
			}
		}()
		f(func(o outcome) bool { return send(ctx, out, o) })
	}()
	return true
}

func send(ctx context.Context, out chan<- outcome, o outcome) bool {
	select {
	case out <- o:
		return true
	case <-ctx.Done():
		return false
	}
}

// sendPanic makes a defect of the program an error of the run: nothing else would
// see it here.
func sendPanic(ctx context.Context, out chan<- outcome, r any) {
	send(ctx, out, outcome{err: cli.Fail(cli.Trouble, fmt.Errorf("internal error: %v", r),
		"this is a defect of dsh-verify; please report it with these lines: "+string(debug.Stack()))})
}

// operand queues everything about one argument.
func (p *pipeline) operand(ctx context.Context, path string) bool {
	if st, err := os.Stat(path); path == "-" || err != nil || !st.IsDir() {
		return p.unit(ctx, func(emit func(outcome) bool) {
			w := p.walk(ctx, path, emit)
			w.inline()
		})
	}
	w := p.walk(ctx, path, nil)
	return w.directory()
}

// A walk goes through the logs of one argument.
type walk struct {
	*pipeline
	ctx     context.Context
	path    string
	dir     bool
	emit    func(outcome) bool
	places  places
	logs    int64
	skipped int64
}

func (p *pipeline) walk(ctx context.Context, path string, emit func(outcome) bool) *walk {
	return &walk{pipeline: p, ctx: ctx, path: path, emit: emit}
}

func (w *walk) options() logfmt.Options {
	return logfmt.Options{
		Session: w.plan.session,
		Skip: func(path, _ string) {
			if w.mine(w.key(path, "")) && !w.own[filepath.Clean(path)] {
				w.skipped++
			}
		},
		Finding: func(place string, c logfmt.Container, d *logfmt.Defect) {
			w.places.at(place, c, w.plan.opts).Add(d)
		},
	}
}

// inline judges the logs of a file one after the other.
func (w *walk) inline() {
	if w.path == "-" {
		// Standard input is not ours to close.
		log, err := logfmt.NewReader(struct{ io.Reader }{w.c.Stdin}, "-", w.options())
		if w.one(log, err, w.emit) {
			w.finish(w.emit)
		}
		return
	}
	for log, err := range logfmt.Open(w.path, w.options()) {
		if !w.one(log, err, w.emit) {
			return
		}
	}
	w.finish(w.emit)
}

// one judges a log, or says why there is none.
func (w *walk) one(log *logfmt.Log, err error, emit func(outcome) bool) bool {
	w.logs++
	if w.ctx.Err() != nil {
		return false
	}
	o := outcome{report: true}
	switch {
	case err != nil:
		res := unreadable(w.path, err)
		if w.mine(w.key(res.Path, "")) {
			o.res = w.convert(res, nil)
		}
	case w.mine(w.logKey(log)):
		o.res, o.err = w.judge(w.ctx, log, w.ahead && !w.dir)
	}
	return emit(o)
}

// directory queues a unit for each log of a directory. A log in a file of its own
// can be judged beside the others: it is opened again when its turn comes. What
// lies in a database or an archive is judged where it is met.
func (w *walk) directory() bool {
	w.dir = true
	if w.floor == nil {
		// Small logs leave a heap of a few MB, which is collected again and again:
		// half the time on two processors. A block that is never touched, and so takes
		// no memory, puts that off until there is as much garbage.
		w.floor = make([]byte, heapFloor)
	}
	var next func() bool // starts the unit of the log before
	flush := func() bool {
		f := next
		next = nil
		return f == nil || f()
	}
	for log, err := range logfmt.Open(w.path, w.options()) {
		if !flush() {
			return false
		}
		if err == nil && alone(log) {
			next = func() bool {
				return w.unit(w.ctx, func(emit func(outcome) bool) {
					w := &walk{pipeline: w.pipeline, ctx: w.ctx, path: w.path, dir: true}
					w.one(log, nil, emit)
				})
			}
			w.logs++
			continue
		}
		if !w.here(func(emit func(outcome) bool) bool { return w.one(log, err, emit) }) {
			return false
		}
	}
	return flush() && w.unit(w.ctx, func(emit func(outcome) bool) { w.finish(emit) })
}

const heapFloor = 48 << 20

// here queues a unit and works on it in this goroutine.
func (w *walk) here(f func(emit func(outcome) bool) bool) bool {
	done := make(chan bool, 1)
	return w.unit(w.ctx, func(emit func(outcome) bool) {
		defer close(done)
		done <- f(emit)
	}) && <-done
}

// alone reports whether a log is all that is in its file, which can be opened
// again.
func alone(log *logfmt.Log) bool {
	if log.Container != logfmt.Plain && log.Container != logfmt.Zstd {
		return false
	}
	st, err := os.Stat(log.Path)
	return err == nil && st.Mode().IsRegular()
}

// finish says what there is to say about the argument as a whole.
func (w *walk) finish(emit func(outcome) bool) bool {
	for _, pl := range w.places {
		o := outcome{report: true}
		if w.mine(w.key(pl.path, "")) {
			o.res = w.convert(pl.root.Result(), nil)
			o.res.Whole = true
		}
		if !emit(o) {
			return false
		}
	}
	return emit(outcome{end: true, path: w.path, logs: w.logs, skipped: w.skipped})
}

// places are the directories and archives of one operand about which something
// is to be said, in order of appearance.
type places []struct {
	path string
	root *invariants.Root
}

func (p *places) at(path string, c logfmt.Container, opts invariants.Options) *invariants.Root {
	for i := len(*p) - 1; i >= 0; i-- {
		if (*p)[i].path == path {
			return (*p)[i].root
		}
	}
	r := invariants.NewRoot(path, c, opts)
	*p = append(*p, struct {
		path string
		root *invariants.Root
	}{path, r})
	return r
}

// key is what decides the shard of a log: its path relative to the argument, if
// that is a directory, else as it is known everywhere; of a database also the
// session.
func (w *walk) key(path, session string) string {
	name := w.relative(path)
	if w.dir {
		if rel, err := filepath.Rel(w.path, path); err == nil {
			name = filepath.ToSlash(rel)
		}
	}
	return name + "\x00" + session
}

// logKey is the key of a log. What is to be said about an archive depends on all
// logs in it, so they are not parted.
func (w *walk) logKey(log *logfmt.Log) string {
	if log.Archive != nil {
		return w.key(log.Archive.Path, "")
	}
	return w.key(log.Path, log.Session)
}

// mine reports whether a key falls into the shard of this run.
func (p *pipeline) mine(key string) bool {
	if p.shard == nil {
		return true
	}
	sum := sha256.Sum256([]byte(key))
	return int(binary.BigEndian.Uint64(sum[:8])%uint64(p.shard.Count)) == p.shard.Index-1
}

// relative is a path in the form that does not depend on the machine: relative to
// the working directory where it lies in that, with slashes.
func (p *pipeline) relative(path string) string {
	if path == "-" {
		return path
	}
	clean := filepath.Clean(path)
	if filepath.IsAbs(clean) {
		if rel, err := filepath.Rel(p.cwd, clean); p.cwd != "" && err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
			clean = rel
		} else {
			clean = strings.TrimLeft(strings.TrimPrefix(clean, filepath.VolumeName(clean)), `/\`)
		}
	}
	return filepath.ToSlash(clean)
}

// parseShard reads I/N.
func parseShard(s string) (*report.Shard, error) {
	i, n, ok := strings.Cut(s, "/")
	index, err1 := strconv.Atoi(i)
	count, err2 := strconv.Atoi(n)
	if !ok || err1 != nil || err2 != nil || index < 1 || index > count || count > 1<<20 {
		return nil, cli.Usage(fmt.Sprintf("--shard: %q is not a part like 1/3", s))
	}
	return &report.Shard{Index: index, Count: count}, nil
}

// judge checks one log, and whether it can be migrated.
func (p *pipeline) judge(ctx context.Context, log *logfmt.Log, ahead bool) (*report.Result, error) {
	r, err := p.check(ctx, log, ahead)
	if err != nil || p.plan.migrate == 0 {
		return r, err
	}
	m, err := migrate.Check(ctx, log, p.plan.migrate)
	if err != nil {
		return nil, err
	}
	r.Migration = &report.Migration{
		To: fmt.Sprintf("v%d", m.To), Accepted: m.Accepted, Stage: m.Stage, Rule: m.Rule, Line: m.Line,
		Message: report.Text(m.Message), Advice: report.Text(m.Advice), Unverified: m.Unverified,
	}
	if m.Seq >= 0 {
		r.Migration.Seq = &m.Seq
	}
	return r, nil
}

// check judges one log.
func (p *pipeline) check(ctx context.Context, log *logfmt.Log, ahead bool) (*report.Result, error) {
	opts := p.plan.opts
	opts.Ahead = ahead
	opts.Parent = func(id string) *logfmt.Log { return p.parents.find(ctx, log, id) }
	opts.Fold.Ancestor = func(id string) *logfmt.Header {
		parent := p.parents.find(ctx, log, id)
		if parent == nil {
			return nil
		}
		defer parent.Close()
		return parent.Header
	}
	if p.recording == nil {
		res, err := invariants.Check(ctx, log, opts)
		if err != nil {
			return nil, err
		}
		return p.convert(res, nil), nil
	}
	// The requests come while the log is judged, in one pass.
	name := p.c.Text("requests")
	if p.compared {
		return nil, cli.Usage("--requests compares one log, and "+log.Path+" is one of several", "name one: its file, or its session with --session ID")
	}
	p.compared = true
	comparer := invariants.NewComparer(p.recording)
	var failed error
	opts.Request = func(r *fold.Request) {
		if failed == nil {
			failed = comparer.Add(r)
		}
	}
	res, err := invariants.Check(ctx, log, opts)
	if err != nil {
		return nil, err
	}
	var cmp *invariants.Comparison
	if why := p.notCompared(res); why != "" {
		// Nothing was rebuilt: every recorded request would count as extra.
		return p.convert(res, &report.Compared{Path: report.Text(name), NotCompared: report.Text(why)}), nil
	}
	if failed == nil {
		cmp, failed = comparer.End()
	}
	if failed != nil {
		return nil, cli.Fail(cli.Trouble, fmt.Errorf("%s: %w", name, failed))
	}
	add(res, cmp)
	return p.convert(res, &report.Compared{
		Path: report.Text(name), Recorded: cmp.Recorded, Matched: cmp.Matched, KeyOrder: cmp.KeyOrder, Misplaced: cmp.Misplaced,
		Differing: cmp.Differing, Missing: cmp.Missing, Extra: cmp.Extra, Auxiliary: cmp.Auxiliary,
		Unsent: cmp.Skipped,
	}), nil
}

// notCompared tells why no requests of a log can be held against a recording, ""
// when they can: an event type that no build knows leaves those before it.
func (p *pipeline) notCompared(res *invariants.Result) string {
	switch {
	case res.Class == logfmt.Unsupported:
		return "this build does not read this kind of log"
	case res.Class == logfmt.Unreadable:
		return "the log could not be read"
	case p.plan.opts.AsLoaded && res.Load != nil && res.Load.Refusal != nil:
		return "the harness refuses the log"
	}
	return ""
}

// unreadable is the verdict on what could not be opened.
func unreadable(path string, err error) *invariants.Result {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		path, err = pe.Path, pe.Err
	}
	return &invariants.Result{
		Path: path, Generation: -1, Verdict: invariants.Unreadable, Errors: 1,
		Findings: []*invariants.Finding{{
			Rule: logfmt.RuleRead, Severity: invariants.Error, Class: logfmt.Unreadable,
			Pos: logfmt.Position{Offset: -1, Frame: -1, FrameAt: -1, Row: -1, Member: -1},
			Seq: -1, Turn: -1, Step: -1, Message: err.Error(),
		}},
	}
}
