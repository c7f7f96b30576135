package drift

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
)

// tokenCounts compares the estimator with the counts that the harness logged
// with what compaction and pruning took away.
func tokenCounts(t *testing.T, logs []string) (n int) {
	for _, path := range logs {
		log := openLog(t, path)
		f := fold.New(log.Header, fold.Options{})
		for e, d := range log.Events() {
			if d != nil {
				t.Fatal(d)
			}
			if want, ok := jsjson.SafeInt(jsjson.Get(e.Data, "shadowedTokenCount")); ok && strings.HasPrefix(e.Type, "compact") && !f.Eras().Before(fold.E5) {
				// Compaction before E5 counted by a rule of its own.
				var seqs []int64
				for v := range jsjson.Elements(jsjson.Get(e.Data, "shadowedSeqs")) {
					s, _ := jsjson.SafeInt(v)
					seqs = append(seqs, s)
				}
				got := int64(0)
				for node, m := range f.Messages() {
					if slices.Contains(seqs, node.Seq) {
						got += MessageTokens(m)
					}
				}
				if got != want {
					t.Errorf("%s: seq %d: %d tokens estimated, the harness counted %d", path, e.Seq, got, want)
				}
				n++
			}
			f.Add(e)
		}
	}
	return n
}

func TestTokens(t *testing.T) {
	if got, want := tokenCounts(t, plainLogs(t, filepath.Join(corpus.Root(t), "goldens", "sound"), filepath.Join(corpus.Root(t), "goldens", "drift"))), 1; got != want {
		t.Errorf("%d counts compared, want %d", got, want)
	}
	for in, want := range map[string]int64{
		`{"content":[]}`: 4,
		`{"content":[{"type":"text","text":""}]}`:                                                                   8,
		`{"content":[{"type":"text","text":"12345"}]}`:                                                              10,
		`{"content":[{"type":"reasoning","text":"🙂🙂x"}]}`:                                                           10, // surrogate pairs count two
		`{"content":[{"type":"tool-call","id":"x","name":"abcde","arguments":"{}"}]}`:                               11,
		`{"content":[{"type":"tool-result","content":[{"type":"text","text":"1234"},{"type":"text","text":"1"}]}]}`: 18,
		`{"content":[{"type":"image","url":"x"}]}`:                                                                  15,
		`{"content":"text"}`: 4,
	} {
		if got := MessageTokens([]byte(in)); got != want {
			t.Errorf("MessageTokens(%s) = %d, want %d", in, got, want)
		}
	}
	if got := SystemTokens(nil); got != 0 {
		t.Errorf("no system prompt: %d", got)
	}
	if got := SystemTokens([]byte(`"12345"`)); got != 6 {
		t.Errorf("system prompt: %d, want 6", got)
	}
	if got := ToolsTokens([][]byte{[]byte(`{"name":"a"}`), []byte(`{"name":"b"}`)}); got != 11 { // 27 units
		t.Errorf("tools: %d, want 11", got)
	}
}

func TestCorpusTokens(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("no corpus")
	}
	n := tokenCounts(t, plainLogs(t, filepath.Join(dir, "head"), filepath.Join(dir, "july")))
	t.Logf("%d counts of the harness compared", n)
}

func briefRow(r *CacheRow) string {
	w := r.Request.String() + " " + string(r.Verdict)
	if r.Unit != nil {
		w += fmt.Sprintf(" %d..%d from %s", r.Low, r.High, r.Unit)
	}
	if r.Break != "" {
		w += " break " + r.Break + " " + briefCause(r.Cause)
	}
	if r.Collapse {
		w += " collapse"
	}
	if r.Effort {
		w += " effort"
	}
	if r.Point != nil {
		w += " process"
	}
	return w
}

func cacheRows(t *testing.T, s *script) (rows []*CacheRow) {
	t.Helper()
	log := s.log(t)
	tr := NewTracker(log.Header, fold.Options{})
	for r, err := range tr.Cache(log) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	return rows
}

func usage(input, output, read int) string {
	return fmt.Sprintf(`{"inputTokens":%d,"outputTokens":%d,"cacheReadTokens":%d}`, input, output, read)
}

func TestCache(t *testing.T) {
	tests := []struct {
		name  string
		write func(s *script)
		want  []string
	}{
		{"grows", func(s *script) {
			s.open("one")
			s.header("initial", plainHeader)
			s.say("1", usage(2000, 100, 0))
			s.next()
			s.say("2", usage(100, 100, 2048)) // 2100 are 16 units and a rest
			s.next()
			s.say("3", usage(400, 10, 1920))
			s.next()
			s.say("4", usage(1300, 10, 1024))
			s.next()
			s.say("5", usage(100, 10, 4096))
		}, []string{"1.1 as expected", "1.2 as expected 1920..2048 from 1.1", "1.3 short 2048..2176 from 1.2",
			"1.4 short 2304..2304 from 1.3 collapse", "1.5 more 2304..2304 from 1.4"}},
		{"not reported", func(s *script) {
			s.open("one")
			s.header("initial", plainHeader)
			s.say("1", "")
			s.next()
			s.say("2", `{"inputTokens":500,"outputTokens":10}`)
			s.next()
			s.say("3", usage(10, 10, 384))
		}, []string{"1.1 not reported", "1.2 not reported", "1.3 as expected 384..384 from 1.2"}},
		{"first segment that breaks", func(s *script) {
			s.open("one")
			s.header("initial", plainHeader)
			s.say("1", usage(1280, 10, 0))
			for _, change := range [][2]string{{`"name":"bell"`, `"name":"gong"`}, {"Keep", "Read"}, {"mocha-1", "mocha-2"}, {`"model":`, `"reasoningEffort":"high","model":`}, {"mocha-1", "mocha-1"}} {
				s.next()
				s.header("change", strings.Replace(plainHeader, change[0], change[1], 1))
				s.say("x", usage(1280, 10, 0))
			}
		}, []string{"1.1 as expected", "1.2 as expected break tools header(change)@9 collapse", "1.3 as expected break tools header(change)@15 collapse",
			"1.4 as expected break route header(change)@21 collapse", "1.5 as expected 0..1280 from 1.1 break route header(change)@27 collapse effort",
			"1.6 as expected 0..1280 from 1.5 collapse effort"}},
		{"compaction and prune", func(s *script) {
			one := s.open("one")
			s.header("initial", plainHeader)
			a := s.say("1", usage(1280, 10, 0))
			s.next()
			r := s.call("c1", "long long")
			s.next()
			s.say("3", usage(1280, 10, 0))
			s.result("c1", "long", "", fmt.Sprintf(`,"sourceEventSeqs":[%d],"surfaceOp":{"op":"replace","start":%d,"end":%d}`, r, r, r), "m4")
			s.next()
			s.say("4", usage(1280, 10, 1280))
			s.compact(one, a)
			s.next()
			s.say("5", usage(1280, 10, 0))
		}, []string{"1.1 as expected", "1.2 not reported 1280..1280 from 1.1", "1.3 short 1280..1280 from 1.1",
			"1.4 as expected 1280..1280 from 1.1 break messages[3] prune@19[13]",
			"1.5 as expected break messages[0] compaction@27[2 7]+25+26+28 collapse"}},
		{"answers that come back otherwise", func(s *script) {
			s.open("one")
			s.header("initial", plainHeader)
			s.answer(`{"type":"text","text":"long"}`, usage(1000, 500, 0), "max-tokens", "")
			s.next()
			s.say("2", usage(1000, 500, 896))
			s.close()
			s.ev("session/end-seed", "{}", "")
			s.open("two")
			s.header("resume", plainHeader)
			s.say("3", usage(1000, 500, 1408))
		}, []string{"1.1 as expected", "1.2 as expected 896..896 from 1.1", "2.1 short 1792..2304 from 1.2 process"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newScript("cache", "")
			tt.write(s)
			var got []string
			for _, r := range cacheRows(t, s) {
				got = append(got, briefRow(r))
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestCacheShares holds the shared prefix to plain byte comparisons and sums.
func TestCacheShares(t *testing.T) {
	for _, r := range shipped(t) {
		log := openLog(t, r.log)
		tr := NewTracker(log.Header, fold.Options{})
		src := r.sources(t)
		i := 0
		for row, err := range tr.Cache(log) {
			if err != nil {
				t.Fatal(err)
			}
			for i < len(src) && src[i].Candidate != "" {
				i++
			}
			if i >= len(src) {
				t.Fatalf("%s: more rows than requests", r.name)
			}
			cur := src[i].AppendBody(nil)
			if row.Bytes != int64(len(cur)) {
				t.Errorf("%s %s: %d bytes, want %d", r.name, row.Request, row.Bytes, len(cur))
			}
			if i > 0 && src[i-1].Candidate == "" {
				want := firstDifference(src[i-1].AppendBody(nil), cur)
				if want < 0 {
					want = int64(len(cur))
				}
				if row.SharedBytes != want {
					t.Errorf("%s %s: %d bytes shared, want %d", r.name, row.Request, row.SharedBytes, want)
				}
			}
			tokens := ToolsTokens(src[i].Tools) + SystemTokens(src[i].System)
			for _, m := range src[i].Messages {
				tokens += MessageTokens(m)
			}
			if row.Tokens != tokens || row.Reusable > tokens || row.ReusedBytes > row.Bytes {
				t.Errorf("%s %s: %d tokens, %d reusable, want %d", r.name, row.Request, row.Tokens, row.Reusable, tokens)
			}
			i++
		}
	}
}
