package logfmt

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// vectors were made by running the harness's own code.
type vectors struct {
	Pack []struct {
		Name       string
		Events     []json.RawMessage
		JSONLLines []string `json:"jsonlLines"`
	} `json:"pack"`
	Unpack []struct {
		Row json.RawMessage
		OK  []string
		Err string
	} `json:"unpackJsonl"`
	Scan []struct {
		Name string
		Text string
		OK   *struct {
			Events         int64
			CommittedBytes int64
			FileBytes      int
		}
		Err string
	} `json:"scanRawJsonl"`
}

func loadVectors(t *testing.T) vectors {
	t.Helper()
	b, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVectorsPack(t *testing.T) {
	v := loadVectors(t)
	if len(v.Pack) != 9 {
		t.Fatalf("%d vectors, want 9", len(v.Pack))
	}
	for _, c := range v.Pack {
		t.Run(c.Name, func(t *testing.T) {
			var batch [][]byte
			for _, e := range c.Events {
				canon, _, err := jsjson.Stringify(e)
				if err != nil {
					t.Fatal(err)
				}
				batch = append(batch, canon)
			}
			got := string(AppendPacked(nil, batch...))
			want := strings.Join(c.JSONLLines, "\n") + "\n"
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestVectorsUnpack(t *testing.T) {
	v := loadVectors(t)
	if len(v.Unpack) != 19 {
		t.Fatalf("%d vectors, want 19", len(v.Unpack))
	}
	for i, c := range v.Unpack {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			var rec record
			rec.parse(c.Row, Position{})
			if c.Err != "" {
				if rec.defect == nil || rec.defect.Rule != RuleRow || rec.defect.Message != c.Err {
					t.Fatalf("got %v, want %q", rec.defect, c.Err)
				}
				return
			}
			if rec.defect != nil {
				t.Fatal(rec.defect)
			}
			var got []string
			r := newRecord(&rec)
			for i := range r.Len() {
				got = append(got, string(r.Event(i).JSON))
			}
			if diff := cmp.Diff(c.OK, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// scanErrors says what is reported where the harness refuses: the class, the
// rule and the message. Where an older build accepted the header, nothing is.
var scanErrors = map[string]string{
	"headerNoNewline":          "corrupt LOG-HEADER header record: no line feed behind it",
	"empty":                    "corrupt LOG-HEADER the file is empty, expected a header record",
	"bom":                      "corrupt LOG-HEADER header record: not valid JSON: a byte order mark stands before it",
	"blankLineCommitted":       "corrupt LINE-BLANK blank line, expected a record",
	"gapThenEnd":               "corrupt LOG-SEQ expected seq 1, got 9: seq 1 stands in the record behind it, the order is wrong",
	"duplicateTurnEnd":         "corrupt LOG-SEQ expected seq 2, got 1: the seq of the record before it, at line 3, is used again",
	"nullLine":                 "corrupt LINE-VALUE the line is null, expected the event with seq 2",
	"header_noDelegationDepth": "intact",
	"header_version1":          "intact", // a later generation by now
	"header_versionNeg":        "unsupported LOG-FORMAT format version -1: this build reads generations 0 to 4",
	"header_versionString":     `corrupt LOG-HEADER header record: expected a number as version, got "0"`,
	"header_createdAtFrac":     "intact",
	"header_createdAtNegZero":  "intact",
	"header_originOther":       `corrupt LOG-HEADER header record: origin must be absent or "subagent", got "x"`,
	"header_retiredField":      "unsupported LOG-FORMAT the header holds approvalPolicy, which only a development build wrote and no release reads",
	"header_idNumber":          "corrupt LOG-HEADER header record: expected a string as id, got 5",
	"header_typeOther":         `corrupt LOG-HEADER header record: expected type "session", got "sess"`,
	"header_agentPresetNumber": "corrupt LOG-HEADER header record: agentPreset must be absent or a string, got 7",
}

func TestVectorsScan(t *testing.T) {
	v := loadVectors(t)
	if len(v.Scan) != 28 {
		t.Fatalf("%d vectors, want 28", len(v.Scan))
	}
	for _, c := range v.Scan {
		t.Run(c.Name, func(t *testing.T) {
			l, err := NewReader(strings.NewReader(c.Text), c.Name, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for range l.Events() {
			}
			if c.OK != nil {
				if l.Kept() != c.OK.Events || l.Committed() != c.OK.CommittedBytes {
					t.Errorf("kept %d events, %d bytes, want %d and %d", l.Kept(), l.Committed(), c.OK.Events, c.OK.CommittedBytes)
				}
				want := Intact
				if c.OK.CommittedBytes != int64(c.OK.FileBytes) {
					want = Torn
				}
				if l.Class() != want {
					t.Errorf("class %s, want %s: %v", l.Class(), want, l.Defects())
				}
				return
			}
			got := string(l.Class())
			if d := l.Defects(); len(d) > 0 {
				got += " " + d[0].Rule + " " + d[0].Message
			}
			if got != scanErrors[c.Name] {
				t.Errorf("got  %s\nwant %s", got, scanErrors[c.Name])
			}
			// Damage among the events is told with the harness's own numbers.
			if strings.Contains(c.Err, "at line") {
				if h := harnessError(l.Defects()[0]); h != c.Err {
					t.Errorf("the harness says %q, the defect amounts to %q", c.Err, h)
				}
			}
		})
	}
}

// harnessError is what the harness says to a defect in the committed region.
func harnessError(d *Defect) string {
	if d.Rule == RuleSeq {
		_, got, _ := strings.Cut(d.Message, "got ")
		got, _, _ = strings.Cut(got, ":")
		return fmt.Sprintf("corrupt session log: seq gap in committed region at line %d (expected %d, got %s)", d.Pos.EventLine(), d.Seq, got)
	}
	return fmt.Sprintf("corrupt session log: unparsable committed event at line %d", d.Pos.EventLine())
}
