package report

import (
	"cmp"
	"io"
	"slices"
)

type verifyJSON struct {
	w     io.Writer
	rules Rules
	shard *Shard
	begun bool
	seen  map[string]bool // rules with findings
}

// NewVerifyJSON writes one JSON object, one result a line.
func NewVerifyJSON(w io.Writer, rules Rules, shard *Shard) VerifyWriter {
	return &verifyJSON{w: w, rules: rules, shard: shard, seen: map[string]bool{}}
}

func (v *verifyJSON) begin() error {
	if v.begun {
		return writeString(v.w, ",\n")
	}
	v.begun = true
	if err := writeString(v.w, `{"schema":"`, VerifySchema, `",`); err != nil {
		return err
	}
	if v.shard != nil {
		b, err := Marshal(v.shard)
		if err != nil {
			return err
		}
		if err := writeString(v.w, `"shard":`, string(b), ","); err != nil {
			return err
		}
	}
	return writeString(v.w, `"results":[`, "\n")
}

func (v *verifyJSON) Result(r *Result) error {
	if err := v.begin(); err != nil {
		return err
	}
	for i := range r.Findings {
		v.seen[r.Findings[i].Rule] = true
	}
	b, err := Marshal(r.filled())
	if err != nil {
		return err
	}
	_, err = v.w.Write(b)
	return err
}

func (v *verifyJSON) Close(s *Summary, _ string) error {
	if !v.begun {
		if err := v.begin(); err != nil {
			return err
		}
	}
	rules, err := Marshal(ruleList(v.rules, v.seen))
	if err != nil {
		return err
	}
	sum, err := Marshal(s.filled())
	if err != nil {
		return err
	}
	return writeString(v.w, "\n", `],"rules":`, string(rules), `,"summary":`, string(sum), "}\n")
}

// filled has empty lists where a reader would meet null.
func (r *Result) filled() *Result {
	c := *r
	if c.Findings == nil {
		c.Findings = []Finding{}
	}
	if c.Eras == nil {
		c.Eras = []string{}
	}
	return &c
}

func (s *Summary) filled() *Summary {
	c := *s
	if c.Verdicts == nil {
		c.Verdicts = map[string]int64{}
	}
	return &c
}

// ruleList explains the rules that have findings, by id.
func ruleList(rules Rules, seen map[string]bool) []*RuleInfo {
	list := []*RuleInfo{}
	for id := range seen {
		if r := rules(id); r != nil {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *RuleInfo) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// VerifyLinesSchema names the format of one JSON object a line.
const VerifyLinesSchema = "dsh-audit/verify-lines/1"

type verifyLines struct {
	w     io.Writer
	rules Rules
	shard *Shard
	begun bool
}

// NewVerifyLines writes JSON objects, one a line, told apart by their kind. What
// stands in one line does not need another one to be understood.
func NewVerifyLines(w io.Writer, rules Rules, shard *Shard) VerifyWriter {
	return &verifyLines{w: w, rules: rules, shard: shard}
}

func (v *verifyLines) line(x any) error {
	b, err := Marshal(x)
	if err != nil {
		return err
	}
	return writeString(v.w, string(b), "\n")
}

func (v *verifyLines) begin() error {
	if v.begun {
		return nil
	}
	v.begun = true
	return v.line(struct {
		Kind   string `json:"kind"`
		Schema string `json:"schema"`
		Shard  *Shard `json:"shard,omitempty"`
	}{"run", VerifyLinesSchema, v.shard})
}

func (v *verifyLines) Result(r *Result) error {
	if err := v.begin(); err != nil {
		return err
	}
	type result struct {
		Kind string `json:"kind"`
		*Result
		Findings *[]Finding `json:"findings,omitempty"` // in lines of their own
	}
	if err := v.line(result{Kind: "result", Result: r.filled()}); err != nil {
		return err
	}
	type finding struct {
		Kind    string `json:"kind"`
		Log     Text   `json:"log"`
		File    Text   `json:"file,omitempty"`
		Session Text   `json:"session,omitempty"`
		Verdict string `json:"verdict"`
		*Finding
		Title  string `json:"title,omitempty"`
		Advice string `json:"advice,omitempty"`
	}
	for i := range r.Findings {
		f := finding{Kind: "finding", Log: r.Path, File: r.File, Session: r.Session, Verdict: r.Verdict, Finding: &r.Findings[i]}
		if rule := v.rules(f.Rule); rule != nil {
			f.Title, f.Advice = rule.Title, rule.Advice
		}
		if err := v.line(f); err != nil {
			return err
		}
	}
	return nil
}

func (v *verifyLines) Close(s *Summary, _ string) error {
	if err := v.begin(); err != nil {
		return err
	}
	return v.line(struct {
		Kind string `json:"kind"`
		*Summary
	}{"summary", s.filled()})
}
