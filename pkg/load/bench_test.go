package load

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

func BenchmarkCheck(b *testing.B) {
	dir, ok := corpus.Dir(b)
	if !ok {
		b.Skip("the full corpus is not here")
	}
	path := filepath.Join(dir, "big", "20mb", "session.jsonl")
	st, err := os.Stat(path)
	if err != nil {
		b.Skip(err)
	}
	b.SetBytes(st.Size())
	b.ReportAllocs()
	for b.Loop() {
		log, err := logfmt.OpenFile(path, logfmt.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if o := Check(log, Options{}); o.Refusal != nil || o.Upgraded != 0 {
			b.Fatal(o)
		}
		log.Close()
	}
}
