package logfmt

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
)

// pathVectors were made by running the harness's own code.
type pathVectors struct {
	Encode []struct {
		In  []uint16 `json:"in_utf16"`
		Out string
	} `json:"encodeSegment"`
	Project []struct{ In, Out string } `json:"projectKey"`
	Bucket  []struct{ In, Out string } `json:"cwdBucketFlatEra"`
}

// wtf8 is the id of UTF-16 code units.
func wtf8(units []uint16) string {
	var b []byte
	for i := 0; i < len(units); i++ {
		u := rune(units[i])
		if u >= 0xD800 && u < 0xDC00 && i+1 < len(units) && units[i+1] >= 0xDC00 && units[i+1] < 0xE000 {
			b = append(b, string((u-0xD800)<<10+rune(units[i+1])-0xDC00+0x10000)...)
			i++
			continue
		}
		b = appendWTF8(b, u)
	}
	return string(b)
}

func TestPathVectors(t *testing.T) {
	raw, err := os.ReadFile("testdata/paths.json")
	if err != nil {
		t.Fatal(err)
	}
	var v pathVectors
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Encode) != 17 || len(v.Project) != 18 || len(v.Bucket) != 3 {
		t.Fatalf("%d, %d and %d vectors, want 17, 18 and 3", len(v.Encode), len(v.Project), len(v.Bucket))
	}
	for _, c := range v.Encode {
		id := wtf8(c.In)
		got, err := EncodeSegment(id)
		if err != nil || got != c.Out {
			t.Errorf("EncodeSegment(%q) = %q, %v, want %q", id, got, err, c.Out)
		}
		back, err := DecodeSegment(c.Out)
		if err != nil || back != id {
			t.Errorf("DecodeSegment(%q) = %q, %v, want %q", c.Out, back, err, id)
		}
	}
	for _, c := range v.Project {
		if got, err := ProjectKey(c.In); err != nil || got != c.Out {
			t.Errorf("ProjectKey(%q) = %q, %v, want %q", c.In, got, err, c.Out)
		}
		if !isProjectName(c.Out) {
			t.Errorf("isProjectName(%q) = false", c.Out)
		}
	}
	for _, c := range v.Bucket {
		if got := CwdBucket(c.In); got != c.Out {
			t.Errorf("CwdBucket(%q) = %q, want %q", c.In, got, c.Out)
		}
		if !isBucketName(c.Out) {
			t.Errorf("isBucketName(%q) = false", c.Out)
		}
	}
}

func TestSegmentRefused(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"", "an empty name has no path segment"},
		{".", `byte 0: "." is no encoded name`},
		{"..", `byte 0: ".." is no encoded name`},
		{"a~", "byte 1: ~ without four upper-case hex digits"},
		{"~00e9", "byte 0: ~ without four upper-case hex digits"},
		{"~00E", "byte 0: ~ without four upper-case hex digits"},
		{"x~0041", `byte 1: ~0041 stands for 'A', which is never escaped there`},
		{"a~002E", `byte 1: ~002E stands for '.', which is never escaped there`},
		{"~002E~002E~002E", `byte 0: ~002E stands for '.', which is never escaped there`},
		{"a b", "byte 1: a name holds only A-Z a-z 0-9 . _ - and escapes, got byte 0x20"},
		{"é", "byte 0: a name holds only A-Z a-z 0-9 . _ - and escapes, got byte 0xc3"},
		{"a/b", "byte 1: a name holds only A-Z a-z 0-9 . _ - and escapes, got byte 0x2f"},
	} {
		if got, err := DecodeSegment(c.name); err == nil || err.Error() != c.want {
			t.Errorf("DecodeSegment(%q) = %q, %v, want the error %s", c.name, got, err, c.want)
		}
	}
	if _, err := EncodeSegment(""); !errors.Is(err, ErrEmptySegment) {
		t.Errorf(`EncodeSegment("") = %v, want %v`, err, ErrEmptySegment)
	}
	if _, err := ProjectKey(""); !errors.Is(err, ErrEmptySegment) {
		t.Errorf(`ProjectKey("") = %v, want %v`, err, ErrEmptySegment)
	}
}

// TestBucketSurrogates: the harness hashes UTF-8, in which a lone surrogate is
// the replacement character.
func TestBucketSurrogates(t *testing.T) {
	if got, want := CwdBucket("/x\xed\xa0\x80y"), CwdBucket("/x\ufffdy"); got != want {
		t.Errorf("bucket of a lone surrogate %s, want %s", got, want)
	}
	if got, want := CwdBucket("/😀"), "cwd-ec596ca1927a"; got != want {
		t.Errorf("bucket of /😀 %s, want %s", got, want)
	}
}

func TestRootNames(t *testing.T) {
	for _, c := range []struct {
		name       string
		generation int64
		zstd, ok   bool
	}{
		{"session.jsonl", 0, false, true},
		{"session.jsonl.zstd", 0, true, true},
		{"session.v3.jsonl", 3, false, true},
		{"session.v12.jsonl.zstd", 12, true, true},
		{"session.v0.jsonl", 0, false, false},
		{"session.v01.jsonl", 0, false, false},
		{"session.V1.jsonl", 0, false, false},
		{"session.1.jsonl", 0, false, false},
		{"session.v.jsonl", 0, false, false},
		{"session.v1x.jsonl", 0, false, false},
		{"session.v99999999999999999999.jsonl", 0, false, false},
		{"Session.jsonl", 0, false, false},
		{"session.jsonl.gz", 0, false, false},
		{"session", 0, false, false},
	} {
		g, z, ok := logName(c.name)
		if ok != c.ok || ok && (g != c.generation || z != c.zstd) {
			t.Errorf("logName(%q) = %d, %t, %t, want %d, %t, %t", c.name, g, z, ok, c.generation, c.zstd, c.ok)
		}
	}
	for name, want := range map[string]bool{
		"session.jsonl.0123456789ab.tmp":                    true,
		"session.jsonl.zstd.0123456789ab.tmp":               true,
		"session.migration.0123456789abcdef.jsonl.tmp":      true,
		"session.migration.0123456789abcdef.jsonl.zstd.tmp": true,
		"session.jsonl.0123456789AB.tmp":                    false,
		"session.jsonl.tmp":                                 false,
		".0123456789ab.tmp":                                 false,
	} {
		if got := isTempName(name); got != want {
			t.Errorf("isTempName(%q) = %t, want %t", name, got, want)
		}
	}
	for name, want := range map[string]bool{
		"--srv-app--": true, "_no-cwd": true, "--root--": true, "--~00E9--": true, "-----": false, "----": false,
		"--": false, "--a": false, "a--": false, "--a b--": false, "--" + strings.Repeat("x", 251) + "--": true,
		"--" + strings.Repeat("x", 252) + "--": false, "---a--": false,
	} {
		if got := isProjectName(name); got != want {
			t.Errorf("isProjectName(%q) = %t, want %t", name, got, want)
		}
	}
	for name, want := range map[string]bool{
		"cwd-0123456789ab": true, "cwd-0123456789AB": false, "cwd-0123456789abc": false, "cwd-": false, "_no-cwd": false,
	} {
		if got := isBucketName(name); got != want {
			t.Errorf("isBucketName(%q) = %t, want %t", name, got, want)
		}
	}
	for id, want := range map[string]string{"a.b/c": "a_b_c", "ok_-9": "ok_-9", "😀": "__", "\xed\xa0\x80": "_", "": ""} {
		if got := exportName(id); got != want {
			t.Errorf("exportName(%q) = %q, want %q", id, got, want)
		}
	}
}

func FuzzSegment(f *testing.F) {
	for _, s := range []string{"", ".", "..", "a/b", "é", "😀", "~", "~002E", "~D83D~DE00", "~D83D", "\xed\xa0\x80", "\xed\xa0\xbd\xed\xb8\x80", "\xff", "~0041"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		// A name that decodes is the one that is encoded again.
		if id, err := DecodeSegment(s); err == nil {
			if back, err := EncodeSegment(id); err != nil || back != s {
				t.Fatalf("%q decodes to %q, which encodes to %q, %v", s, id, back, err)
			}
		}
		name, err := EncodeSegment(s)
		if err != nil {
			if s != "" {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		for i := range len(name) {
			if !keptUnit(name[i]) && name[i] != '~' {
				t.Fatalf("%q encodes to %q", s, name)
			}
		}
		id, err := DecodeSegment(name)
		if err != nil {
			t.Fatalf("%q encodes to %q, which does not decode: %v", s, name, err)
		}
		if again, _ := EncodeSegment(id); again != name {
			t.Fatalf("%q encodes to %q, which stands for %q", s, name, id)
		}
		if key, err := ProjectKey(s); err == nil && !isProjectName(key) {
			t.Fatalf("project key %q of %q", key, s)
		}
		if b := CwdBucket(s); !isBucketName(b) {
			t.Fatalf("bucket %q of %q", b, s)
		}
	})
}
