package cli_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
)

const module = "github.com/dsh-audit/dsh-audit/"

// mayImport says which packages of the module a package may depend on, directly
// or not. Data flows one way; nothing imports what stands to its right.
var mayImport = map[string][]string{
	"internal/jsjson":     {},
	"internal/plural":     {},
	"internal/ui":         {},
	"internal/corpus":     {},
	"internal/zframe":     {},
	"internal/sqlitedb":   {},
	"pkg/logfmt":          {"internal/plural", "internal/jsjson", "internal/zframe", "internal/sqlitedb"},
	"pkg/fold":            {"pkg/logfmt"},
	"pkg/load":            {"pkg/fold"},
	"pkg/invariants":      {"internal/plural", "pkg/load"},
	"pkg/migrate":         {"pkg/invariants"},
	"pkg/drift":           {"pkg/load"},
	"pkg/golden":          {"pkg/invariants", "pkg/drift"},
	"internal/report":     {"internal/plural", "internal/ui", "internal/jsjson", "pkg/drift", "pkg/golden"},
	"internal/cli":        {"internal/ui"},
	"internal/cli/source": {"internal/plural", "internal/cli", "pkg/fold"},
	"internal/cli/replay": {"internal/plural", "internal/cli/source", "internal/report", "pkg/load", "pkg/drift", "pkg/golden"},
	"internal/cli/verify": {"internal/plural", "internal/cli/source", "internal/report", "pkg/invariants", "pkg/migrate"},
	"internal/cli/diff":   {"internal/cli/source", "internal/report", "pkg/drift", "pkg/migrate"},
	"cmd/dsh-replay":      {"internal/cli/replay"},
	"cmd/dsh-verify":      {"internal/cli/verify"},
	"cmd/dsh-diff":        {"internal/cli/diff"},
}

// onlyIn says where a library may be imported.
var onlyIn = map[string]string{
	"github.com/urfave/cli/v2":              "internal/cli",
	"github.com/olekukonko/tablewriter":     "internal/report",
	"github.com/sergi/go-diff":              "pkg/drift",
	"github.com/fatih/color":                "internal/ui",
	"github.com/schollz/progressbar":        "internal/ui",
	"github.com/jstemmer/go-junit-report":   "internal/report",
	"github.com/owenrumney/go-sarif":        "internal/report",
	"go.yaml.in/yaml":                       "internal/cli/verify",
	"github.com/santhosh-tekuri/jsonschema": "nowhere but tests",
	"github.com/ncruces/go-sqlite3":         "internal/sqlitedb",
	"github.com/klauspost/compress/zstd":    "internal/zframe",
	"github.com/go-json-experiment/json":    "nowhere but tests",
	"github.com/google/go-cmp":              "nowhere but tests",
	"github.com/rogpeppe/go-internal":       "nowhere but tests",
	"pgregory.net/rapid":                    "nowhere but tests",
	"testing":                               "internal/corpus",
	"net":                                   "nowhere but tests",
	"net/http":                              "nowhere but tests",
}

type listed struct {
	ImportPath string
	Dir        string
	Imports    []string
	Deps       []string
}

func goList(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,Deps", "./...")
	cmd.Dir = corpus.Root(t)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, errs.Bytes())
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestLayers(t *testing.T) {
	// allowed is mayImport with everything that follows.
	var allowed func(pkg string, into map[string]bool)
	allowed = func(pkg string, into map[string]bool) {
		for _, p := range mayImport[pkg] {
			if !into[p] {
				into[p] = true
				allowed(p, into)
			}
		}
	}
	seen := 0
	for _, p := range goList(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if strings.HasPrefix(name, "scripts/") {
			continue // tools of a maintainer stand to the right of everything
		}
		if _, ok := mayImport[name]; !ok {
			t.Errorf("%s has no place in the layout", name)
			continue
		}
		seen++
		ok := map[string]bool{}
		allowed(name, ok)
		for _, d := range p.Deps {
			if dep, ours := strings.CutPrefix(d, module); ours && !ok[dep] {
				t.Errorf("%s depends on %s, which stands to its right", name, dep)
			}
		}
		for _, d := range p.Imports {
			for lib, place := range onlyIn {
				inside := d == lib || strings.HasPrefix(d, lib+"/") && strings.Contains(lib, ".")
				if inside && name != place && !strings.HasPrefix(name, place+"/") {
					t.Errorf("%s imports %s, which belongs into %s", name, d, place)
				}
			}
		}
	}
	if seen < 12 {
		t.Errorf("only %d packages were checked", seen)
	}
}

// TestMainsAreThin holds the commands to a table and a call.
func TestMainsAreThin(t *testing.T) {
	mains, err := filepath.Glob(filepath.Join(corpus.Root(t), "cmd", "*", "main.go"))
	if err != nil || len(mains) != 3 {
		t.Fatalf("found %d commands, %v; want 3", len(mains), err)
	}
	for _, m := range mains {
		b, err := os.ReadFile(m)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(b, []byte("\n")); n > 40 {
			t.Errorf("%s has %d lines, want at most 40", m, n)
		}
	}
}

// TestForbiddenCalls keeps os.Exit and log.Fatal in main functions: everything
// else returns. The encoder of encoding/json is kept out of what handles logs: it
// would change their bytes.
func TestForbiddenCalls(t *testing.T) {
	for _, p := range goList(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if strings.HasPrefix(name, "cmd/") || strings.HasPrefix(name, "scripts/") {
			continue
		}
		forbidden := []string{"os.Exit(", "log.Fatal"}
		if name != "internal/report" && name != "internal/corpus" {
			forbidden = append(forbidden, "json.Marshal", "json.Unmarshal", "json.NewEncoder", "json.NewDecoder", "json.Compact", "json.Indent")
		}
		files, err := filepath.Glob(filepath.Join(p.Dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		files = slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_test.go") })
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, call := range forbidden {
				if bytes.Contains(b, []byte(call)) {
					t.Errorf("%s calls %s", f, call)
				}
			}
		}
	}
}
