package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/dsh-audit/dsh-audit/internal/ui"
)

// A VerifyReader reads a report of NewVerifyJSON, one result at a time.
type VerifyReader struct {
	d     *json.Decoder
	shard *Shard
	sum   *Summary
	total int64 // results read
}

// NewVerifyReader reads up to the first result.
func NewVerifyReader(r io.Reader) (*VerifyReader, error) {
	v := &VerifyReader{d: json.NewDecoder(r)}
	if err := v.begin(); err != nil {
		return nil, v.problem(err)
	}
	return v, nil
}

// Shard is the part of a run that the report is; nil when it is a whole one.
func (v *VerifyReader) Shard() *Shard { return v.shard }

// Summary is that of the report, after Next returned io.EOF.
func (v *VerifyReader) Summary() *Summary { return v.sum }

func (v *VerifyReader) problem(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the report ends before it is complete: the run that wrote it did not end")
	}
	return fmt.Errorf("not a report of dsh-verify --format json: byte %d: %w", v.d.InputOffset(), err)
}

func (v *VerifyReader) delim(want json.Delim) error {
	tok, err := v.d.Token()
	if err == nil && tok != want {
		err = fmt.Errorf("expected %v", want)
	}
	return err
}

func (v *VerifyReader) key(want string) error {
	tok, err := v.d.Token()
	if err == nil && tok != want {
		err = fmt.Errorf("expected the member %q", want)
	}
	return err
}

func (v *VerifyReader) begin() error {
	if err := v.delim('{'); err != nil {
		return err
	}
	if err := v.key("schema"); err != nil {
		return err
	}
	var schema string
	if err := v.d.Decode(&schema); err != nil {
		return err
	}
	if schema != VerifySchema {
		return fmt.Errorf("schema %q, expected %q", schema, VerifySchema)
	}
	for {
		tok, err := v.d.Token()
		if err != nil {
			return err
		}
		switch tok {
		case "shard":
			v.shard = new(Shard)
			if err := v.d.Decode(v.shard); err != nil {
				return err
			}
		case "results":
			return v.delim('[')
		default:
			return errors.New(`expected the member "results"`)
		}
	}
}

// Next returns the next result, or io.EOF after the last one.
func (v *VerifyReader) Next() (*Result, error) {
	r, err := v.next()
	if err != nil && err != io.EOF || err == io.EOF && v.sum == nil {
		return nil, v.problem(err)
	}
	return r, err
}

func (v *VerifyReader) next() (*Result, error) {
	if v.sum != nil {
		return nil, io.EOF
	}
	if v.d.More() {
		r := new(Result)
		if err := v.d.Decode(r); err != nil {
			return nil, err
		}
		if meanings[r.Verdict] == "" {
			return nil, fmt.Errorf("unknown verdict %q", r.Verdict)
		}
		if err := r.words(); err != nil {
			return nil, err
		}
		v.total++
		return r, nil
	}
	if err := v.delim(']'); err != nil {
		return nil, err
	}
	var rest json.RawMessage
	var sum Summary
	for v.d.More() {
		tok, err := v.d.Token()
		if err != nil {
			return nil, err
		}
		to := any(&rest)
		if tok == "summary" {
			to, v.sum = &sum, &sum
		}
		if err := v.d.Decode(to); err != nil {
			v.sum = nil
			return nil, err
		}
	}
	if err := v.delim('}'); err != nil {
		v.sum = nil
		return nil, err
	}
	switch {
	case v.sum == nil:
		return nil, errors.New(`expected the member "summary"`)
	case sum.Logs+sum.Places != v.total:
		v.sum = nil
		return nil, fmt.Errorf("the summary counts %s, the report holds %d", count(sum.Logs+sum.Places, "result"), v.total)
	}
	if _, err := v.d.Token(); err != io.EOF {
		v.sum = nil
		return nil, errors.New("expected the end of the file")
	}
	for _, id := range sum.NotRun {
		if !isRule(id) {
			v.sum = nil
			return nil, fmt.Errorf("%q is not the id of a rule", id)
		}
	}
	return nil, io.EOF
}

// words checks what reports print as it is: a report that is read may come from
// anywhere, and only texts are made safe when they are printed.
func (r *Result) words() error {
	rules := []string{}
	for i := range r.Findings {
		switch r.Findings[i].Severity {
		case "error", "warning", "note":
		default:
			return fmt.Errorf("unknown severity %q", r.Findings[i].Severity)
		}
		rules = append(rules, r.Findings[i].Rule)
	}
	for _, o := range r.Omitted {
		rules = append(rules, o.Rule)
	}
	if d := r.Damage; d != nil {
		if d.Kind != "torn" && d.Kind != "corrupt" {
			return fmt.Errorf("unknown kind of damage %q", d.Kind)
		}
		rules = append(rules, d.Rule)
	}
	if m := r.Migration; m != nil {
		for _, word := range []string{m.To, m.Stage, m.Rule} {
			if ui.Escape(word) != word {
				return fmt.Errorf("unknown stage or rule of a migration %q", word)
			}
		}
	}
	for _, id := range rules {
		if !isRule(id) {
			return fmt.Errorf("%q is not the id of a rule", id)
		}
	}
	return nil
}

// isRule reports whether a string can be the id of a rule, of this version or of
// another.
func isRule(id string) bool {
	for i := range len(id) {
		c := id[i]
		if !('A' <= c && c <= 'Z' || i > 0 && (c == '-' || '0' <= c && c <= '9')) {
			return false
		}
	}
	return id != ""
}

// BaselineSchema names the format of baselines.
const BaselineSchema = "dsh-audit/baseline/1"

// A Baseline is a list of findings that are known.
type Baseline struct {
	Schema   string       `json:"schema"`
	Findings []KnownEntry `json:"findings"`
}

// A KnownEntry is a finding, and how many of the same key there are.
type KnownEntry struct {
	Key
	Count int64 `json:"count"`
}

// ReadBaseline reads a baseline. Members that are not known are an error: they may
// limit what is accepted.
func ReadBaseline(r io.Reader) (*Baseline, error) {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	var b Baseline
	if err := d.Decode(&b); err != nil {
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errors.New("not a baseline: the file ends before it is complete")
		}
		return nil, fmt.Errorf("not a baseline: byte %d: %w", d.InputOffset(), err)
	}
	if b.Schema != BaselineSchema {
		return nil, fmt.Errorf("not a baseline: schema %q, expected %q", b.Schema, BaselineSchema)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("not a baseline: byte %d: expected the end of the file", d.InputOffset())
	}
	for i, e := range b.Findings {
		if e.Rule == "" || e.File == "" || e.Count < 1 {
			return nil, fmt.Errorf("not a baseline: finding %d has no rule, no file or no count", i+1)
		}
	}
	return &b, nil
}

// Write writes the baseline, one finding a line.
func (b *Baseline) Write(w io.Writer) error {
	if err := writeString(w, `{"schema":"`, BaselineSchema, `","findings":[`); err != nil {
		return err
	}
	for i := range b.Findings {
		line, err := Marshal(&b.Findings[i])
		if err != nil {
			return err
		}
		sep := ",\n"
		if i == 0 {
			sep = "\n"
		}
		if err := writeString(w, sep, string(line)); err != nil {
			return err
		}
	}
	return writeString(w, "\n]}\n")
}
