package report

import (
	"encoding/hex"
	"io"

	goldens "github.com/dsh-audit/dsh-audit/pkg/golden"
)

// GoldenSchema names the JSON format of dsh-replay golden.
const GoldenSchema = "dsh-audit/goldens/1"

// A GoldenStream writes what became of goldens, one after the other: text, or one
// JSON object.
type GoldenStream struct {
	DiffStream
	sum jsonGoldens
}

type jsonGoldens struct {
	Goldens  int            `json:"goldens"`
	Outcomes map[string]int `json:"outcomes"`
}

// A GoldenFailure is a golden of which nothing came.
type GoldenFailure struct {
	Dir, Log string // Log may be ""
	Status   int    // exit status that it leads to
	Error    string
	Hints    []string
}

// NewGoldenStream starts the output of a command: write, check or update.
func NewGoldenStream(out io.Writer, asJSON bool, o DiffOptions, command string) (*GoldenStream, error) {
	w := &GoldenStream{DiffStream{out: out, o: o, json: asJSON}, jsonGoldens{Outcomes: map[string]int{}}}
	if !asJSON {
		return w, nil
	}
	return w, writeString(out, `{"schema":"`+GoldenSchema+`","command":"`+command+`","results":[`)
}

type jsonGolden struct {
	Golden    Text               `json:"golden"`
	Log       *Text              `json:"log,omitempty"`
	Outcome   string             `json:"outcome"`
	Verdict   string             `json:"verdict"`
	Requests  int                `json:"requests"`
	Normalize []goldens.Volatile `json:"normalize"`
	Paths     []jsonGoldenPath   `json:"paths"`
	Files     []jsonGoldenFile   `json:"files"`
	Diff      *jsonGoldenDiff    `json:"diff,omitempty"`
}

type jsonGoldenPath struct {
	Tool  Text  `json:"tool"`
	Path  Text  `json:"path"`
	Count int64 `json:"count"`
}

type jsonGoldenFile struct {
	Name   string `json:"name"`
	Change string `json:"change"` // new, changed, removed
}

type jsonGoldenDiff struct {
	Verdict  *jsonGoldenVerdict  `json:"verdict,omitempty"`
	Findings []jsonGoldenFinding `json:"findings"`
	Header   bool                `json:"headerDiffers"`
	Same     int                 `json:"requestsSame"`
	Requests []jsonGoldenRequest `json:"requests"`
	Kept     int                 `json:"eventsSame"`
	Events   []jsonGoldenEvent   `json:"events"`
	Stale    bool                `json:"stale"`
}

type jsonGoldenVerdict struct {
	Before Text   `json:"before"`
	Now    string `json:"now"`
}

type jsonGoldenFinding struct {
	Rule     Text  `json:"rule"`
	Severity Text  `json:"severity"`
	Before   int64 `json:"before"`
	Now      int64 `json:"now"`
}

type jsonGoldenEvent struct {
	Kind   string `json:"kind"` // added, removed, changed
	Before *int   `json:"before,omitempty"`
	Now    *int   `json:"now,omitempty"`
	Type   Text   `json:"type"`
}

// A jsonGoldenRequest is a request that is not as it was.
type jsonGoldenRequest struct {
	Request Text          `json:"request"`
	Kind    string        `json:"kind"` // added, removed, changed, grade
	Before  *jsonStanding `json:"before"`
	Now     *jsonStanding `json:"now"`
	*jsonComparison
}

type jsonStanding struct {
	Grade   Text   `json:"grade"`
	Reasons []Text `json:"reasons,omitempty"`
	State   Text   `json:"state,omitempty"`
	Bytes   int64  `json:"bytes"`
	SHA256  string `json:"sha256"`
}

func standingJSON(r *goldens.Request) *jsonStanding {
	if r == nil {
		return nil
	}
	return &jsonStanding{Text(r.Grade), textsJSON(r.Reasons), Text(r.State), r.Bytes, hex.EncodeToString(r.SHA256[:])}
}

func goldenDiffJSON(d *goldens.Diff) *jsonGoldenDiff {
	out := &jsonGoldenDiff{Findings: []jsonGoldenFinding{}, Header: d.Header, Requests: []jsonGoldenRequest{}, Kept: d.Kept, Events: []jsonGoldenEvent{}, Stale: d.Stale}
	if d.Verdict[0] != d.Verdict[1] {
		out.Verdict = &jsonGoldenVerdict{Text(d.Verdict[0]), d.Verdict[1]}
	}
	for _, f := range d.Findings {
		out.Findings = append(out.Findings, jsonGoldenFinding{Text(f.Rule), Text(f.Severity), f.Before, f.Now})
	}
	for _, r := range d.Requests {
		j := jsonGoldenRequest{Request: Text(r.Name), Kind: string(r.State), Before: standingJSON(r.Before), Now: standingJSON(r.Now)}
		switch r.State {
		case goldens.Same:
			out.Same++
			continue
		case goldens.Gone:
			j.Kind = "removed"
		case goldens.Changed:
			untimed(r.Diff)
			c := comparisonJSON(r.Diff)
			j.jsonComparison = &c
		}
		out.Requests = append(out.Requests, j)
	}
	for _, e := range d.Changed {
		j := jsonGoldenEvent{"changed", indexJSON(e.Before), indexJSON(e.Now), Text(e.Type)}
		switch {
		case e.Before < 0:
			j.Kind = "added"
		case e.Now < 0:
			j.Kind = "removed"
		}
		out.Events = append(out.Events, j)
	}
	return out
}

// Golden writes what became of one golden.
func (w *GoldenStream) Golden(g *Golden) error {
	w.count(g.Word)
	if !w.json {
		return WriteGolden(w.out, w.o, g)
	}
	log := Text(g.Log)
	j := &jsonGolden{Golden: Text(g.Dir), Log: &log, Outcome: g.Word, Verdict: g.Now.Verdict, Requests: len(g.Now.Requests),
		Normalize: append([]goldens.Volatile{}, g.Now.Normalize...), Paths: []jsonGoldenPath{}, Files: []jsonGoldenFile{}}
	for _, p := range g.Now.Paths {
		j.Paths = append(j.Paths, jsonGoldenPath{Text(p.Tool), Text(p.Path), p.Count})
	}
	for _, f := range g.Files {
		j.Files = append(j.Files, jsonGoldenFile{f.Name, f.Word})
	}
	if g.Diff != nil && len(g.Files) > 0 {
		j.Diff = goldenDiffJSON(g.Diff)
	}
	return w.result(j, nil)
}

// Failed writes that nothing came of a golden. Text leaves that to standard error.
func (w *GoldenStream) Failed(f *GoldenFailure) error {
	w.count("failed")
	if !w.json {
		return nil
	}
	var log *Text
	if f.Log != "" {
		t := Text(f.Log)
		log = &t
	}
	return w.result(&struct {
		Golden  Text   `json:"golden"`
		Log     *Text  `json:"log,omitempty"`
		Outcome string `json:"outcome"`
		Status  int    `json:"status"`
		Error   Text   `json:"error"`
		Hints   []Text `json:"hints,omitempty"`
	}{Text(f.Dir), log, "failed", f.Status, Text(f.Error), textsJSON(f.Hints)}, nil)
}

func (w *GoldenStream) count(outcome string) {
	w.sum.Goldens++
	w.sum.Outcomes[outcome]++
}

// Close writes the summary, which only JSON has.
func (w *GoldenStream) Close() error {
	if !w.json {
		return nil
	}
	return w.close(&w.sum, nil)
}
