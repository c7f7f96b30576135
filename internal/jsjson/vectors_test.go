package jsjson

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
)

// latin1 turns a string of code units below 256 into bytes.
func latin1(t *testing.T, s string) []byte {
	t.Helper()
	b := make([]byte, 0, len(s))
	for _, r := range s {
		if r > 0xFF {
			t.Fatalf("vector holds U+%04X, want bytes only", r)
		}
		b = append(b, byte(r))
	}
	return b
}

// TestVectors compares with JSON.stringify(JSON.parse(x)) as Node gave it. To
// compare with fresh cases:
//
//	node testdata/vectors.mjs 200000 42 > /tmp/more.jsonl
//	JSJSON_VECTORS=/tmp/more.jsonl go test -run TestVectors -v
func TestVectors(t *testing.T) {
	files := []string{"testdata/vectors.jsonl"}
	if more := os.Getenv("JSJSON_VECTORS"); more != "" {
		files = append(files, more)
	}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 16<<20)
		var accepted, refused, canonical, wrong int
		for n := 1; lines.Scan() && wrong < 20; n++ {
			var v struct {
				In  string
				Out *string
			}
			if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
				t.Fatalf("%s:%d: %v", name, n, err)
			}
			in := latin1(t, v.In)
			got, facts, err := Stringify(in)
			if v.Out == nil {
				refused++
				if err == nil {
					t.Errorf("%s:%d: Stringify(%q) = %q, want an error", name, n, in, got)
					wrong++
				}
				continue
			}
			accepted++
			want := latin1(t, *v.Out)
			if err != nil || string(got) != string(want) {
				t.Errorf("%s:%d: Stringify(%q)\n got %q, %v\nwant %q", name, n, in, got, err, want)
				wrong++
				continue
			}
			same := string(in) == string(want)
			if facts.Canonical() != same {
				t.Errorf("%s:%d: %q: Facts.Canonical() = %v (%b), want %v", name, n, in, facts.Canonical(), facts, same)
				wrong++
			}
			if Canonical(in) != same {
				t.Errorf("%s:%d: Canonical(%q) = %v, want %v", name, n, in, !same, same)
				wrong++
			}
			if same {
				canonical++
			}
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
		if accepted == 0 || refused == 0 || canonical == 0 {
			t.Errorf("%s: %d accepted, %d refused, %d canonical: want some of each", name, accepted, refused, canonical)
		}
		t.Logf("%s: %d accepted (%d canonical), %d refused, %d wrong", name, accepted, canonical, refused, wrong)
	}
}
