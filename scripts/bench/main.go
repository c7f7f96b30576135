// Command bench measures dsh-verify as a whole command against programs that only
// read, hash or decode the same bytes, in the same run.
//
//	go run ./scripts/bench [-runs N] [-size BYTES] [-linear] [CORPUS]
//
// The input is CORPUS/big/20mb, with CORPUS from the command line or DSH_CORPUS;
// without it, a log of -size bytes that scripts/biglog writes. Commands take turns,
// so that a machine that slows down slows all of them. Every figure is a median of
// the processor time (user and system) that the operating system charged to the
// process: on a busy machine it moves less than the time on the clock. Ratios are
// taken run by run against sha256sum of the plain log. A baseline whose program is
// not installed is left out. MB are 10^6 bytes of the plain text of the log,
// whatever its form; memory is the peak of the resident set.
//
// With -linear, logs of three sizes follow, and the exponent of time against size:
// 1 is linear.
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
	linear := flag.Bool("linear", false, "measure growth as well")
	reader := flag.String("read", "", "")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: bench [-runs N] [-size BYTES] [-linear] [CORPUS]")
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
	err = b.all(corpus, *size, *linear)
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
}

// A job is one command and what it cost.
type job struct {
	name string
	args []string
	cpu  []float64 // seconds, by run
	peak int64     // bytes
}

func (b *bench) all(corpus string, size int64, linear bool) error {
	tool := func(pkg string) (string, error) {
		bin := filepath.Join(b.dir, filepath.Base(pkg))
		cmd := exec.Command("go", "build", "-o", bin, pkg)
		cmd.Stderr = os.Stderr
		return bin, cmd.Run()
	}
	verify, err := tool("./cmd/dsh-verify")
	if err != nil {
		return err
	}
	replay, err := tool("./cmd/dsh-replay")
	if err != nil {
		return err
	}
	biglog, err := tool("./scripts/biglog")
	if err != nil {
		return err
	}
	b.machine()

	in := filepath.Join(corpus, "big", "20mb")
	if st, err := os.Stat(filepath.Join(in, "session.jsonl")); corpus == "" || err != nil {
		in = b.dir
		for form, name := range forms {
			if err := exec.Command(biglog, "-bytes", fmt.Sprint(size), "-form", form, "-o", filepath.Join(in, name)).Run(); err != nil {
				return fmt.Errorf("biglog: %w", err)
			}
		}
		fmt.Fprintf(b.out, "log: scripts/biglog -bytes %d\n", size)
	} else {
		fmt.Fprintf(b.out, "log: the corpus, big/20mb, %d bytes\n", st.Size())
	}
	if err := b.compare(in, verify, replay); err != nil {
		return err
	}
	if linear {
		return b.growth(biglog, verify)
	}
	return nil
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

func (b *bench) compare(in, verify, replay string) error {
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
		{name: "zstd -dc, zstd", args: []string{"zstd", "-dc", file("zstd")}},
		{name: "sqlite3 .dump, sqlite", args: []string{"sqlite3", "-readonly", file("sqlite"), ".dump"}},
	}
	for _, form := range []string{"plain", "packed", "zstd", "sqlite"} {
		jobs = append(jobs, &job{name: "dsh-verify, " + form, args: []string{verify, "--jobs", "1", file(form)}})
	}
	jobs = append(jobs, &job{name: "dsh-replay requests, plain", args: []string{replay, "requests", plain}})
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
	fmt.Fprintf(b.out, "\n| command | processor s | MB/s | × sha256sum | peak MB |\n|---|--:|--:|--:|--:|\n")
	for _, j := range jobs {
		ratio := "-"
		if base != nil {
			rs := make([]float64, b.runs)
			for i := range rs {
				rs[i] = j.cpu[i] / base[i]
			}
			ratio = fmt.Sprintf("%.2f", median(rs))
		}
		m := median(j.cpu)
		fmt.Fprintf(b.out, "| %s | %.3f | %.0f | %s | %.0f |\n", j.name, m, float64(st.Size())/1e6/m, ratio, float64(j.peak)/1e6)
	}
	return nil
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
		j.cpu = j.cpu[:0] // that was to warm up
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
	if err := cmd.Run(); err != nil {
		return err
	}
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
func (b *bench) growth(biglog, verify string) error {
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
			if err := exec.Command(biglog, args...).Run(); err != nil {
				return fmt.Errorf("biglog: %w", err)
			}
			st, err := os.Stat(path)
			if err != nil {
				return err
			}
			size = append(size, float64(st.Size()))
			jobs = append(jobs, &job{name: path, args: []string{verify, "--jobs", "1", path}})
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
			if err := os.Remove(j.name); err != nil {
				return err
			}
		}
	}
	return nil
}
