// Command bench measures dsh-verify as a whole command against programs that only
// read, hash, decode or parse the same bytes, in the same run.
//
//	go run ./scripts/bench [-runs N] [-size BYTES] [-root N] [-linear] [-huge BYTES] [CORPUS]
//
// The inputs are big/20mb and big/200mb of CORPUS, from the command line or
// DSH_CORPUS; without it, a log of -size bytes that scripts/biglog writes. Commands
// take turns, so that a machine that slows down slows all of them. Every figure is a
// median: of the processor time (user and system) that the operating system charged
// to the process, and of the time on the clock. On a busy machine the first moves
// less. Ratios are of processor time, taken run by run against sha256sum of the plain
// log. "one processor" is a run with --jobs 1 and GOMAXPROCS=1, the others are as a
// user starts them. A baseline whose program is not installed is left out. MB are
// 10^6 bytes of the plain text of the log, whatever its form; memory is the peak of
// the resident set.
//
// -root N judges N sessions of 300 kB in files of their own, and a root of N small
// ones in all containers that scripts/genroot writes, on one processor and on all. With -linear, logs of three sizes follow, and the exponent of time
// against size: 1 is linear. -huge BYTES adds a log of that size, for the memory.
//
// Unix only: elsewhere the peak of memory is not known.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	runs := flag.Int("runs", 5, "counted runs of each command, after one that is not")
	size := flag.Int64("size", 20_000_000, "bytes of the log that is written when there is no corpus")
	root := flag.Int("root", 0, "sessions of a directory to judge on one processor and on all")
	linear := flag.Bool("linear", false, "measure growth as well")
	huge := flag.Int64("huge", 0, "bytes of one more log, for its memory")
	reader := flag.String("read", "", "")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: bench [-runs N] [-size BYTES] [-root N] [-linear] [-huge BYTES] [CORPUS]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *reader != "" {
		if err := decode(*reader); err != nil {
			fail(err)
		}
		return
	}
	dir, err := os.MkdirTemp("", "dsh-bench-")
	if err != nil {
		fail(err)
	}
	b := &bench{runs: max(*runs, 1), dir: dir, out: os.Stdout}
	corpus := os.Getenv("DSH_CORPUS")
	if flag.NArg() > 0 {
		corpus = flag.Arg(0)
	}
	err = b.all(corpus, *size, *root, *linear, *huge)
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(2)
}

// decode is the baseline of the standard library: every line into a map.
func decode(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	d := json.NewDecoder(bufio.NewReaderSize(f, 1<<20))
	for {
		var v map[string]any
		if err := d.Decode(&v); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

type bench struct {
	runs int
	dir  string
	out  io.Writer

	verify, replay, biglog, genroot string // programs
}

// A job is one command and what it cost.
type job struct {
	name  string
	args  []string
	env   []string
	cpu   []float64 // seconds, by run
	clock []float64 // likewise
	peak  int64     // bytes
}

func (b *bench) all(corpus string, size int64, root int, linear bool, huge int64) error {
	for bin, pkg := range map[*string]string{
		&b.verify: "./cmd/dsh-verify", &b.replay: "./cmd/dsh-replay", &b.biglog: "./scripts/biglog", &b.genroot: "./scripts/genroot",
	} {
		*bin = filepath.Join(b.dir, filepath.Base(pkg))
		if err := command("go", "build", "-o", *bin, pkg); err != nil {
			return err
		}
	}
	b.machine()
	logs := 0
	for _, name := range []string{"20mb", "200mb"} {
		in, err := b.fromCorpus(filepath.Join(corpus, "big", name))
		if err != nil {
			return err
		}
		if corpus == "" || in == "" {
			continue
		}
		logs++
		fmt.Fprintf(b.out, "\nlog: the corpus, big/%s\n", name)
		if err := b.compare(in); err != nil {
			return err
		}
	}
	if logs == 0 {
		for form, name := range forms {
			if err := command(b.biglog, "-bytes", fmt.Sprint(size), "-form", form, "-o", filepath.Join(b.dir, name)); err != nil {
				return err
			}
		}
		fmt.Fprintf(b.out, "\nlog: scripts/biglog -bytes %d\n", size)
		if err := b.compare(b.dir); err != nil {
			return err
		}
	}
	if root > 0 {
		if err := b.root(root); err != nil {
			return err
		}
	}
	if linear {
		if err := b.growth(); err != nil {
			return err
		}
	}
	if huge > 0 {
		return b.huge(huge)
	}
	return nil
}

// command runs a program that is to succeed.
func command(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return nil
}

// fromCorpus returns a directory with all forms of a log of the corpus, of which the
// corpus need only have the Zstandard one; "" when it does not.
func (b *bench) fromCorpus(dir string) (string, error) {
	zstd := filepath.Join(dir, forms["zstd"])
	if _, err := os.Stat(zstd); err != nil {
		return "", nil
	}
	missing := false
	for _, name := range forms {
		_, err := os.Stat(filepath.Join(dir, name))
		missing = missing || err != nil
	}
	if !missing {
		return dir, nil
	}
	to := filepath.Join(b.dir, filepath.Base(dir))
	if err := os.Mkdir(to, 0o700); err != nil {
		return "", err
	}
	for form, name := range forms {
		if err := command(b.replay, "export", "--to", form, "-o", filepath.Join(to, name), zstd); err != nil {
			return "", err
		}
	}
	return to, nil
}

var forms = map[string]string{
	"plain": "session.jsonl", "packed": "session.packed.jsonl", "zstd": "session.jsonl.zstd", "sqlite": "session.sqlite",
}

func (b *bench) machine() {
	model := ""
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(data)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				model = ", " + strings.TrimSpace(v)
				break
			}
		}
	}
	fmt.Fprintf(b.out, "machine: %s/%s, %d processors%s, %s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), model, runtime.Version())
}

// onOne makes a job run on one processor.
func onOne(j *job) *job {
	j.name += ", one processor"
	j.args = slices.Insert(j.args, 1, "--jobs", "1")
	j.env = append(os.Environ(), "GOMAXPROCS=1")
	return j
}

// parse is what a reader in JavaScript does at the least.
const parse = `const fs=require("fs"),rl=require("readline");let n=0;` +
	`rl.createInterface({input:fs.createReadStream(process.argv[1])}).on("line",l=>{n+=Object.keys(JSON.parse(l)).length})`

func (b *bench) compare(in string) error {
	file := func(form string) string { return filepath.Join(in, forms[form]) }
	self, err := os.Executable()
	if err != nil {
		return err
	}
	plain := file("plain")
	jobs := []*job{
		{name: "sha256sum, plain", args: []string{"sha256sum", plain}},
		{name: "wc -l, plain", args: []string{"wc", "-l", plain}},
		{name: "jq -c .type, plain", args: []string{"jq", "-c", ".type", plain}},
		{name: "encoding/json, plain", args: []string{self, "-read", plain}},
		{name: "node JSON.parse by line, plain", args: []string{"node", "-e", parse, plain}},
		{name: "zstd -dc, zstd", args: []string{"zstd", "-dc", file("zstd")}},
		{name: "sqlite3 .dump, sqlite", args: []string{"sqlite3", "-readonly", file("sqlite"), ".dump"}},
	}
	for _, form := range []string{"plain", "packed", "zstd", "sqlite"} {
		jobs = append(jobs, onOne(&job{name: "dsh-verify, " + form, args: []string{b.verify, file(form)}}))
	}
	for _, form := range []string{"plain", "packed", "zstd", "sqlite"} {
		jobs = append(jobs, &job{name: "dsh-verify, " + form, args: []string{b.verify, file(form)}})
	}
	jobs = append(jobs, &job{name: "dsh-replay requests, plain", args: []string{b.replay, "requests", plain}})
	if jobs, err = b.measure(jobs); err != nil {
		return err
	}
	st, err := os.Stat(plain)
	if err != nil {
		return err
	}
	var base []float64
	if jobs[0].args[0] == "sha256sum" {
		base = jobs[0].cpu
	}
	fmt.Fprintf(b.out, "\n| command | processor s | clock s | MB/s by the clock | × sha256sum | peak MB |\n|---|--:|--:|--:|--:|--:|\n")
	for _, j := range jobs {
		ratio := "-"
		if base != nil {
			rs := make([]float64, b.runs)
			for i := range rs {
				rs[i] = j.cpu[i] / base[i]
			}
			ratio = fmt.Sprintf("%.2f", median(rs))
		}
		m := median(j.clock)
		fmt.Fprintf(b.out, "| %s | %.3f | %.3f | %.0f | %s | %.0f |\n", j.name, median(j.cpu), m, float64(st.Size())/1e6/m, ratio, float64(j.peak)/1e6)
	}
	return nil
}

// root judges many sessions, on one processor and on all.
func (b *bench) root(sessions int) error {
	files := filepath.Join(b.dir, "files")
	for i := range sessions {
		dir := filepath.Join(files, fmt.Sprintf("%04d", i))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := command(b.biglog, "-bytes", "300000", "-seed", fmt.Sprint(i+1), "-o", filepath.Join(dir, forms["plain"])); err != nil {
			return err
		}
	}
	mixed := filepath.Join(b.dir, "mixed")
	if err := command(b.genroot, "-n", fmt.Sprint(sessions), "-damaged", "0", mixed); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "\n| %d sessions | processor s | clock s | peak MB | %d processors against one |\n|---|--:|--:|--:|--:|\n", sessions, runtime.NumCPU())
	for _, k := range []struct{ name, dir string }{{"of 300 kB, files", files}, {"small, in all containers", mixed}} {
		one := onOne(&job{name: k.name, args: []string{b.verify, k.dir}})
		all := &job{name: k.name, args: []string{b.verify, k.dir}}
		jobs, err := b.measure([]*job{one, all})
		if err != nil {
			return err
		}
		if len(jobs) != 2 {
			return fmt.Errorf("%s: not every session was judged", k.name)
		}
		rs := make([]float64, b.runs)
		for i := range rs {
			rs[i] = one.clock[i] / all.clock[i]
		}
		for _, j := range jobs {
			times := ""
			if j == all {
				times = fmt.Sprintf("%.2f ×", median(rs))
			}
			fmt.Fprintf(b.out, "| %s | %.2f | %.2f | %.0f | %s |\n", j.name, median(j.cpu), median(j.clock), float64(j.peak)/1e6, times)
		}
	}
	return nil
}

// huge judges one log, once, for the memory it takes.
func (b *bench) huge(size int64) error {
	path := filepath.Join(b.dir, "huge.jsonl")
	if err := command(b.biglog, "-bytes", fmt.Sprint(size), "-o", path); err != nil {
		return err
	}
	j := &job{name: "dsh-verify", args: []string{b.verify, path}}
	if err := j.run(); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "\na log of %d MB, once: %.2f s of processor, %.2f s on the clock, peak %.0f MB\n", size/1e6, j.cpu[0], j.clock[0], float64(j.peak)/1e6)
	return os.Remove(path)
}

// measure runs the jobs in turn and leaves out those whose program is missing or
// fails on the log, saying so.
func (b *bench) measure(jobs []*job) ([]*job, error) {
	var ready []*job
	for _, j := range jobs {
		if _, err := exec.LookPath(j.args[0]); err != nil {
			fmt.Fprintf(b.out, "left out: %s: not installed\n", j.name)
			continue
		}
		if err := j.run(); err != nil {
			fmt.Fprintf(b.out, "left out: %s: %v\n", j.name, err)
			continue
		}
		j.cpu, j.clock = j.cpu[:0], j.clock[:0] // that was to warm up
		ready = append(ready, j)
	}
	if len(ready) == 0 {
		return nil, errors.New("nothing to measure")
	}
	for range b.runs {
		for _, j := range ready {
			if err := j.run(); err != nil {
				return nil, fmt.Errorf("%s: %w", j.name, err)
			}
		}
	}
	return ready, nil
}

func (j *job) run() error {
	cmd := exec.Command(j.args[0], j.args[1:]...)
	cmd.Env = j.env
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return err
	}
	j.clock = append(j.clock, time.Since(start).Seconds())
	s := cmd.ProcessState
	// A process too short for the clock counts as one tick of it.
	j.cpu = append(j.cpu, max(s.UserTime()+s.SystemTime(), time.Millisecond).Seconds())
	j.peak = max(j.peak, peak(s))
	return nil
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// growth measures logs that differ in length only.
func (b *bench) growth() error {
	fmt.Fprintf(b.out, "\n| dsh-verify, growing | processor s, at 1×, 2×, 4× | exponent of time | peak MB |\n|---|--:|--:|--:|\n")
	for _, k := range []struct {
		name string
		most int64
		args []string
	}{
		{"bytes, to 80 MB", 80_000_000, []string{"-bytes"}},
		{"steps, to 100,000", 100_000, []string{"-context", "200", "-chunks", "2", "-steps"}},
		{"replaces, to 10,000", 10_000, []string{"-context", "10", "-chunks", "2", "-replaces"}},
		{"steps that all stay on the surface, to 20,000", 20_000, []string{"-context", "0", "-chunks", "2", "-steps"}},
	} {
		var jobs []*job
		var size []float64
		for _, part := range []int64{4, 2, 1} {
			path := filepath.Join(b.dir, "grown-"+strconv.FormatInt(part, 10))
			args := append(slices.Clone(k.args), strconv.FormatInt(k.most/part, 10), "-o", path)
			if err := command(b.biglog, args...); err != nil {
				return err
			}
			st, err := os.Stat(path)
			if err != nil {
				return err
			}
			size = append(size, float64(st.Size()))
			jobs = append(jobs, onOne(&job{name: path, args: []string{b.verify, path}}))
		}
		done, err := b.measure(jobs)
		if err != nil {
			return err
		}
		if len(done) != len(jobs) {
			return fmt.Errorf("%s: not every log was judged", k.name)
		}
		cell := func(f func(*job) string) string {
			return f(jobs[0]) + ", " + f(jobs[1]) + ", " + f(jobs[2])
		}
		exponent := math.Log(median(jobs[2].cpu)/median(jobs[0].cpu)) / math.Log(size[2]/size[0])
		fmt.Fprintf(b.out, "| %s | %s | %.2f | %s |\n", k.name,
			cell(func(j *job) string { return fmt.Sprintf("%.2f", median(j.cpu)) }), exponent,
			cell(func(j *job) string { return fmt.Sprintf("%.0f", float64(j.peak)/1e6) }))
		for _, j := range jobs {
			if err := os.Remove(j.args[len(j.args)-1]); err != nil {
				return err
			}
		}
	}
	return nil
}
