package logfmt

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// zentry is an entry of an archive that a test makes. raw entries are written
// with the sizes, sum and flags that they say.
type zentry struct {
	name, data string
	store      bool
	raw        *zip.FileHeader
}

func archiveOf(t testing.TB, entries ...zentry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, e := range entries {
		var w io.Writer
		var err error
		switch {
		case e.raw != nil:
			e.raw.Name = e.name
			w, err = z.CreateRaw(e.raw)
		case e.store:
			w, err = z.CreateHeader(&zip.FileHeader{Name: e.name, Method: zip.Store})
		default:
			w, err = z.CreateHeader(&zip.FileHeader{Name: e.name, Method: zip.Deflate})
		}
		if err == nil {
			_, err = io.WriteString(w, e.data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func deflated(t testing.TB, r io.Reader) string {
	t.Helper()
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestCompression)
	if err == nil {
		_, err = io.Copy(w, r)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// medium is the entry name of an attachment.
func medium(data, ext string) string {
	return fmt.Sprintf("media/sha256:%x%s", sha256.Sum256([]byte(data)), ext)
}

func writeFile(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestArchive(t *testing.T) {
	log, child := quietLog(0, "root", "/srv/app"), quietLog(0, "kid.1", "/srv/app")
	kid := zentry{name: "subagents/kid_1/session.jsonl", data: child}
	main := zentry{name: "session.jsonl", data: log}
	const sound = "log !session.jsonl: zip, 2 events, intact"
	bomb := deflated(t, io.LimitReader(zeros{}, 80<<20))
	lying := deflated(t, strings.NewReader(log+strings.Repeat("x", 1<<20)))
	for _, c := range []struct {
		name string
		zip  []byte
		want []string
	}{
		{"sound", archiveOf(t, kid, zentry{name: "media/", store: true}, zentry{name: medium("picture", ".png"), data: "picture"}, main,
			zentry{name: "subagents/a/session.jsonl", data: quietLog(0, "a", "")}), []string{
			sound,
			"log !subagents/a/session.jsonl: zip, 2 events, intact",
			"log !subagents/kid_1/session.jsonl: zip, 2 events, intact",
		}},
		{"stored", archiveOf(t, zentry{name: "session.jsonl", data: log, store: true}), []string{sound}},
		{"torn tail included", archiveOf(t, zentry{name: "session.jsonl", data: log + `{"type":"turn/`}), []string{
			"log !session.jsonl: zip, 2 events, torn",
			"  LINE-TORN the last line is cut after 14 bytes: expected the rest of a record and a line feed",
		}},
		{"names", archiveOf(t, main, zentry{name: "../evil"}, zentry{name: "/etc/passwd"}, zentry{name: `C:\x`}, zentry{name: "c:x"},
			zentry{name: "subagents/../session.jsonl"}, zentry{name: "media//x.png"}, zentry{name: "a\x1b[2J"}, zentry{name: "\xff"},
			zentry{name: ""}, zentry{name: "../"}, zentry{name: "notes.txt"}, zentry{name: "media/x.svg"}, zentry{name: "subagents/a/b/session.jsonl"}), []string{
			`ZIP-NAME : : entry 1 is named "../evil": it leads out of the archive`,
			`ZIP-NAME : : entry 2 is named "/etc/passwd": an absolute path`,
			`ZIP-NAME : : entry 3 is named "C:\\x": a backslash, which is a separator on one platform`,
			`ZIP-NAME : : entry 4 is named "c:x": a path with a drive`,
			`ZIP-NAME : : entry 5 is named "subagents/../session.jsonl": it leads out of the archive`,
			`ZIP-NAME : : entry 6 is named "media//x.png": an empty part`,
			`ZIP-NAME : : entry 7 is named "a\x1b[2J": control characters, or bytes that are no UTF-8`,
			`ZIP-NAME : : entry 8 is named "\xff": control characters, or bytes that are no UTF-8`,
			`ZIP-NAME : : entry 9 is named "": an empty name`,
			`ZIP-NAME : : entry 10 is named "../": it leads out of the archive`,
			"ZIP-ENTRY : !notes.txt: no export has an entry of this name",
			"ZIP-ENTRY : !media/x.svg: no export has an entry of this name",
			"ZIP-ENTRY : !subagents/a/b/session.jsonl: no export has an entry of this name",
			sound,
		}},
		{"twice", archiveOf(t, main, zentry{name: "session.jsonl", data: child}, zentry{name: "media/x.png", data: "x"}, zentry{name: "media/x.gif", data: "y"}), []string{
			"ZIP-DUPLICATE : !session.jsonl: entry 1 has the name of an earlier one",
			"ZIP-DUPLICATE : !media/x.gif: the attachment is there twice, under two extensions",
			sound,
		}},
		{"identity", archiveOf(t, main, zentry{name: "subagents/other/session.jsonl", data: child}), []string{
			sound,
			"log !subagents/other/session.jsonl: zip, 2 events, intact",
			`  ZIP-IDENTITY the log lies under the name "other", its header has id "kid.1", which an export puts under "kid_1"`,
		}},
		{"attachments", archiveOf(t, main, zentry{name: medium("a", ".png"), data: "b"}, zentry{name: "media/att-1.png", data: "b"},
			zentry{name: "media/sha256:00.png", data: "b"}), []string{
			sound,
			"ZIP-HASH : !" + medium("a", ".png") + ": the attachment has the digest 3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d, not the one in its name",
			"ZIP-HASH : !media/sha256:00.png: the attachment has the digest 3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d, not the one in its name",
		}},
		{"bomb", archiveOf(t,
			zentry{name: "session.jsonl", data: bomb, raw: &zip.FileHeader{Method: zip.Deflate, CompressedSize64: uint64(len(bomb)), UncompressedSize64: 80 << 20}},
			zentry{name: "media/x.png", data: bomb, raw: &zip.FileHeader{Method: zip.Deflate, CompressedSize64: uint64(len(bomb)), UncompressedSize64: 80 << 20}}), []string{
			"log !session.jsonl: zip, 0 events, unsupported",
			fmt.Sprintf("  ZIP-BOMB %d bytes unfold into %d: no log and no picture is that dense", len(bomb), 80<<20),
			fmt.Sprintf("ZIP-BOMB : !media/x.png: %d bytes unfold into %d: no log and no picture is that dense", len(bomb), 80<<20),
		}},
		{"more than it says", archiveOf(t, zentry{name: "session.jsonl", data: lying,
			raw: &zip.FileHeader{Method: zip.Deflate, CompressedSize64: uint64(len(lying)), UncompressedSize64: uint64(len(log))}}), []string{
			"log !session.jsonl: zip, 0 events, corrupt",
			fmt.Sprintf("  ZIP-DATA the entry unfolds into more than the %d bytes that the archive says, or its header is damaged", len(log)),
		}},
		{"less than it says", archiveOf(t, zentry{name: "session.jsonl", data: log,
			raw: &zip.FileHeader{Method: zip.Store, CompressedSize64: uint64(len(log)), UncompressedSize64: uint64(len(log) + 1)}},
			zentry{name: "media/x.png", data: lying, raw: &zip.FileHeader{Method: zip.Deflate, CompressedSize64: uint64(len(lying)), UncompressedSize64: 2 << 20}}), []string{
			"log !session.jsonl: zip, 0 events, corrupt",
			fmt.Sprintf("  ZIP-DIRECTORY the entry is stored, but takes %d bytes for %d", len(log), len(log)+1),
			"ZIP-DATA : !media/x.png: the entry ends before the 2097152 bytes that the archive says",
		}},
		{"wrong sum", archiveOf(t, zentry{name: "session.jsonl", data: log,
			raw: &zip.FileHeader{Method: zip.Store, CRC32: 1, CompressedSize64: uint64(len(log)), UncompressedSize64: uint64(len(log))}}), []string{
			"log !session.jsonl: zip, 2 events, corrupt",
			"  ZIP-DATA the checksum of the entry is wrong: some of its bytes are not those that were exported",
		}},
		{"damaged data", archiveOf(t, zentry{name: "session.jsonl", data: "\xff\xff\xff\xff",
			raw: &zip.FileHeader{Method: zip.Deflate, CompressedSize64: 4, UncompressedSize64: 100}}), []string{
			"log !session.jsonl: zip, 0 events, corrupt",
			"  ZIP-DATA the compressed data of the entry is damaged near its byte 1",
		}},
		{"encrypted, unknown method", archiveOf(t,
			zentry{name: "session.jsonl", data: log, raw: &zip.FileHeader{Method: zip.Store, Flags: 1, CompressedSize64: uint64(len(log)), UncompressedSize64: uint64(len(log))}},
			zentry{name: "subagents/a/session.jsonl", data: log, raw: &zip.FileHeader{Method: 93, CompressedSize64: uint64(len(log)), UncompressedSize64: 9}}), []string{
			"log !session.jsonl: zip, 0 events, unsupported",
			"  ZIP-METHOD the entry is encrypted",
			"log !subagents/a/session.jsonl: zip, 0 events, unsupported",
			"  ZIP-METHOD the entry is compressed by method 93, this build reads stored (0) and deflated (8) ones",
		}},
		{"shared bytes", shared(t, main, zentry{name: "subagents/kid_1/session.jsonl", data: log}), []string{
			sound,
			"log !subagents/kid_1/session.jsonl: zip, 0 events, unsupported",
			"  ZIP-BOMB the entry shares its bytes with session.jsonl",
		}},
		{"no log", archiveOf(t, zentry{name: "readme.txt"}), []string{
			"ZIP-ENTRY : !readme.txt: no export has an entry of this name",
			"log : zip, 0 events, unreadable",
			"  ZIP-ENTRY the archive holds no log",
		}},
		{"no session", archiveOf(t, kid), []string{
			"log !subagents/kid_1/session.jsonl: zip, 2 events, intact",
			"ZIP-ENTRY : : the archive holds logs of subagents, but not the one of their session",
		}},
		{"empty", archiveOf(t), []string{"log : zip, 0 events, unreadable", "  ZIP-ENTRY the archive holds no log"}},
		{"not a log", archiveOf(t, zentry{name: "session.jsonl", data: "hello\n"}), []string{
			"log !session.jsonl: zip, 0 events, unreadable",
			"  LOG-HEADER not a session log: not valid JSON: expected value, got 'h'",
		}},
		{"nothing in the log", archiveOf(t, zentry{name: "session.jsonl"}), []string{
			"log !session.jsonl: zip, 0 events, corrupt",
			"  LOG-HEADER the file is empty, expected a header record",
		}},
		{"only its beginning", []byte("PK\x03\x04 and no more"), []string{
			"log : zip, 0 events, corrupt",
			"  ZIP-DIRECTORY the file ends after 16 bytes without the list of its entries; nothing found without it",
		}},
		{"a list too long", longList(t, main), []string{
			"log : zip, 0 events, unsupported",
			fmt.Sprintf("  ZIP-DIRECTORY the list of entries takes %d bytes, this build reads at most %d", 9<<20+22, maxDirectory),
		}},
		{"a list out of place", outOfPlace(t, main), []string{
			"ZIP-DIRECTORY : : the list of entries is said to lie behind the end of the file; 1 entry found without it",
			sound,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := writeFile(t, "x.zip", c.zip)
			unchanged(t, filepath.Dir(path))
			var got []string
			for _, l := range survey(t, path) {
				l = strings.ReplaceAll(l, path, "")
				got = append(got, strings.Replace(strings.Replace(strings.Replace(l, " .: .: ", " : : ", 1), " .: ", " : ", 1), "log .:", "log :", 1))
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// shared makes every entry of an archive lie where the first does.
func shared(t testing.TB, entries ...zentry) []byte {
	b := archiveOf(t, entries...)
	at := int(binary.LittleEndian.Uint32(b[len(b)-6:]))
	first := true
	for string(b[at:at+4]) == "PK\x01\x02" {
		if !first {
			binary.LittleEndian.PutUint32(b[at+42:], 0)
		}
		first = false
		at += 46 + int(binary.LittleEndian.Uint16(b[at+28:])) + int(binary.LittleEndian.Uint16(b[at+30:])) + int(binary.LittleEndian.Uint16(b[at+32:]))
	}
	return b
}

// longList makes the list of entries nine megabytes long.
func longList(t testing.TB, e zentry) []byte {
	b := archiveOf(t, e)
	end := bytes.Clone(b[len(b)-22:])
	out := append(bytes.Clone(b[:len(b)-22]), make([]byte, 9<<20)...)
	out = out[:int(binary.LittleEndian.Uint32(end[16:]))+9<<20]
	binary.LittleEndian.PutUint32(end[12:], 9<<20)
	return append(out, end...)
}

func outOfPlace(t testing.TB, e zentry) []byte {
	b := archiveOf(t, e)
	binary.LittleEndian.PutUint32(b[len(b)-6:], 1<<30)
	return b
}

// TestArchiveCuts: whatever is left of an archive that was cut, the logs are read
// as far as they go, and that something is missing is said.
func TestArchiveCuts(t *testing.T) {
	log := quietLog(0, "root", "/srv/app")
	for _, store := range []bool{false, true} {
		whole := archiveOf(t, zentry{name: "session.jsonl", data: log, store: store}, zentry{name: "subagents/a/session.jsonl", data: quietLog(0, "a", ""), store: store},
			zentry{name: medium("x", ".png"), data: "x"})
		classes := map[string]int{}
		for n := 4; n < len(whole); n++ {
			path := writeFile(t, "x.zip", whole[:n])
			got := survey(t, path)
			said, logs := false, 0
			for _, l := range got {
				said = said || strings.Contains(l, RuleZipDirectory+" ")
				if strings.HasPrefix(l, "log ") {
					logs++
					classes[l[strings.LastIndex(l, ", ")+2:]]++
				}
			}
			if !said || logs == 0 {
				t.Fatalf("cut at %d of %d: %q", n, len(whole), got)
			}
		}
		t.Logf("store %t: %d cuts, logs by class: %v", store, len(whole)-4, classes)
		if classes["intact"] == 0 || classes["torn"] == 0 || classes["corrupt"] == 0 {
			t.Errorf("store %t: logs by class: %v, want some of each kind", store, classes)
		}
	}
}

// TestArchiveCutLog: a log within which the archive ends is torn, and what is
// there of it is read.
func TestArchiveCutLog(t *testing.T) {
	var long strings.Builder
	long.WriteString(`{"type":"session","version":0,"id":"root","createdAt":1,"delegationDepth":0}` + "\n")
	for i := range 20000 {
		fmt.Fprintf(&long, `{"type":"session/title","seq":%d,"time":%d,"data":{"title":"%x"}}`+"\n", i, i, sha256.Sum256([]byte{byte(i), byte(i >> 8)}))
	}
	whole := archiveOf(t, zentry{name: "session.jsonl", data: long.String()})
	path := writeFile(t, "x.zip", whole[:len(whole)/2])
	l, err := OpenFile(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 2 { // the second time from the file again
		n := 0
		for range l.Events() {
			n++
		}
		d := l.Defects()
		if l.Class() != Torn || l.Kept() < 9000 || l.Kept() > 11000 || len(d) != 1 || d[0].Rule != RuleZipData || int64(n) != l.Kept()+1 || d[0].Pos.Line != l.Kept()+2 {
			t.Fatalf("class %s, %d events kept of %d steps, defects %v", l.Class(), l.Kept(), n, d)
		}
	}
}

// TestArchivePaths: one log of an archive is named by the archive, !, and its
// entry; without an entry it is the session itself.
func TestArchivePaths(t *testing.T) {
	path := writeFile(t, "a!b.zip", archiveOf(t, zentry{name: "session.jsonl", data: quietLog(0, "root", "")},
		zentry{name: "subagents/kid/session.jsonl", data: quietLog(0, "kid", "")}))
	for _, c := range []struct {
		path, session, want string
	}{
		{path, "", "root"},
		{path + "!session.jsonl", "", "root"},
		{path + "!subagents/kid/session.jsonl", "", "kid"},
		{path, "kid", "kid"},
		{path, "none", `no session "none" in this archive`},
		{path + "!nothing", "", `no log "nothing" in this archive`},
		{path + ".none!x", "", "no such file or directory"},
	} {
		got := ""
		l, err := OpenFile(c.path, Options{Session: c.session})
		if err != nil {
			got = err.Error()[strings.LastIndex(err.Error(), ": ")+2:]
		} else {
			got = l.Header.ID
			n := 0
			for range 2 {
				for _, d := range l.Events() {
					if d == nil {
						n++
					}
				}
			}
			if n != 4 {
				t.Errorf("%s: %d events in two readings, want 4", c.path, n)
			}
			l.Close()
		}
		if got != c.want {
			t.Errorf("%s, session %q: got %q, want %q", strings.TrimPrefix(c.path, path), c.session, got, c.want)
		}
	}
	raw, _ := os.ReadFile(path)
	l, err := NewReader(bytes.NewReader(raw), "-", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Defects(); l.Class() != Unsupported || len(got) != 1 || got[0].Message != "an archive cannot be read from a stream" {
		t.Errorf("from a stream: %s, %v", l.Class(), got)
	}
}

// TestArchiveInRoot: exports in a directory are found, other archives passed over.
func TestArchiveInRoot(t *testing.T) {
	dir := tree(t, map[string]string{
		"dsh-session-root.zip": string(archiveOf(t, zentry{name: "session.jsonl", data: quietLog(0, "root", "")})),
		"dsh-session-bad.zip":  "PK\x03\x04",
		"photos.zip":           string(archiveOf(t, zentry{name: "photo.png"})),
		"text.zip":             "text",
		"old.ZIP":              string(archiveOf(t, zentry{name: "session.jsonl", data: quietLog(0, "old", "")})),
	})
	want := []string{
		"log dsh-session-bad.zip: zip, 0 events, corrupt",
		"  ZIP-DIRECTORY the file ends after 4 bytes without the list of its entries; nothing found without it",
		"log dsh-session-root.zip!session.jsonl: zip, 2 events, intact",
		"log old.ZIP!session.jsonl: zip, 2 events, intact",
		"skip photos.zip: a ZIP archive that is no export of a session",
		"skip text.zip: not a ZIP archive",
	}
	if d := cmp.Diff(want, survey(t, dir)); d != "" {
		t.Error(d)
	}
}

// TestArchiveMemory: an entry that unfolds into a gigabyte, in a measure that
// passes for dense, takes the memory of its longest line.
func TestArchiveMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("unfolds a gigabyte")
	}
	var fresh strings.Builder
	for i := range 500 {
		fmt.Fprintf(&fresh, "%x", sha256.Sum256([]byte{byte(i), byte(i >> 8)}))
	}
	line := []byte(`{"type":"session/title","seq":0,"time":1,"data":{"title":"` + strings.Repeat("x", 1<<20) + fresh.String() + "\"}}\n")
	var packed bytes.Buffer
	w, _ := flate.NewWriter(&packed, flate.BestSpeed)
	sum, size := crc32.NewIEEE(), 0
	both := io.MultiWriter(w, sum)
	head := `{"type":"session","version":0,"id":"root","createdAt":1,"delegationDepth":0}` + "\n"
	io.WriteString(both, head)
	for size = len(head); size < 1<<30; size += len(line) {
		both.Write(line)
	}
	w.Close()
	if size/bombRatio > packed.Len() {
		t.Fatalf("%d bytes pack into %d: that is a bomb", size, packed.Len())
	}
	path := writeFile(t, "x.zip", archiveOf(t, zentry{name: "session.jsonl", data: packed.String(),
		raw: &zip.FileHeader{Method: zip.Deflate, CRC32: sum.Sum32(), CompressedSize64: uint64(packed.Len()), UncompressedSize64: uint64(size)}}))
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	base, peak, n := m.HeapSys-m.HeapReleased, uint64(0), 0
	for l, err := range Open(path, Options{}) {
		if err != nil {
			t.Fatal(err)
		}
		for range l.Events() {
			if n++; n%32 == 0 {
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapSys-m.HeapReleased)
			}
		}
		t.Logf("%d steps, class %s, %d KiB more memory", n, l.Class(), (int64(peak)-int64(base))>>10)
	}
	if n < 1000 || int64(peak)-int64(base) > 64<<20 {
		t.Errorf("%d steps, memory grew by %d bytes, want at most %d", n, int64(peak)-int64(base), 64<<20)
	}
}

func FuzzArchive(f *testing.F) {
	log := quietLog(0, "root", "/srv/app")
	f.Add(archiveOf(f, zentry{name: "session.jsonl", data: log}, zentry{name: "subagents/a/session.jsonl", data: log}, zentry{name: medium("x", ".png"), data: "x"}))
	f.Add(archiveOf(f, zentry{name: "session.jsonl", data: log, store: true}, zentry{name: "../x", data: "y"}))
	f.Add(archiveOf(f, zentry{name: "session.jsonl", data: "", store: true}))
	f.Add(shared(f, zentry{name: "session.jsonl", data: log}, zentry{name: "subagents/a/session.jsonl", data: log}))
	f.Add([]byte("PK\x05\x06"))
	whole := archiveOf(f, zentry{name: "session.jsonl", data: log})
	f.Add(whole[:len(whole)-30])
	f.Fuzz(func(t *testing.T, data []byte) {
		if !isZip(data) {
			data = append([]byte("PK\x03\x04"), data...)
		}
		path := writeFile(t, "x.zip", data)
		unchanged(t, filepath.Dir(path))
		first := survey(t, path)
		logs := 0
		for _, l := range first {
			if strings.HasPrefix(l, "log ") {
				logs++
			}
		}
		if logs == 0 {
			t.Fatalf("no log, and no word: %q", first)
		}
		if d := cmp.Diff(first, survey(t, path)); d != "" {
			t.Fatalf("a second reading differs: %s", d)
		}
		es, err := scanEntries(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range es {
			if e.at < 0 || e.at+e.packed > int64(len(data)) {
				t.Fatalf("entry %q of %d bytes at %d, the archive has %d", e.name, e.packed, e.at, len(data))
			}
		}
	})
}
