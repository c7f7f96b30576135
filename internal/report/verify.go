package report

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/plural"
)

// VerifySchema names the JSON format of dsh-verify. It changes only when a
// reader of the old format could misread the new one; members may be added.
const VerifySchema = "dsh-audit/verify/1"

// Verdicts in the order of the summary, the best first.
var Verdicts = []string{"ok", "warn", "open", "torn", "violations", "corrupt", "unsupported", "unreadable"}

// meanings completes each verdict for a reader who has not seen one before.
var meanings = map[string]string{
	"ok":          "nothing wrong was found",
	"warn":        "sound, but something is unusual",
	"open":        "sound, but it ends inside a turn: the process was killed, or still runs",
	"torn":        "the last write was cut off; everything before it is sound",
	"violations":  "it can be read, but it breaks rules the harness enforces",
	"corrupt":     "bytes that were already committed are damaged",
	"unsupported": "this build does not judge this kind of log",
	"unreadable":  "it could not be read as a session log",
}

// A Result is the verdict on one log.
type Result struct {
	Path Text `json:"path"`
	// File is Path relative to the working directory, with slashes, where that is
	// another name. It is what stays the same on another machine.
	File       Text       `json:"file,omitempty"`
	Session    Text       `json:"session"`    // id of the header, "" when there is none
	Container  string     `json:"container"`  // jsonl, zstd, sqlite, zip, golden; "" when unknown
	Generation *int64     `json:"generation"` // format version of the header
	Eras       []string   `json:"eras"`       // one range a process, like "E5" or "E10-E13"
	Mode       string     `json:"mode"`       // surface or linear
	Events     int64      `json:"events"`
	Requests   Requests   `json:"requests"`
	Verdict    string     `json:"verdict"`
	Errors     int64      `json:"errors"`
	Warnings   int64      `json:"warnings"`
	Notes      int64      `json:"notes"`
	Findings   []Finding  `json:"findings"`
	Omitted    []Omitted  `json:"omitted,omitempty"` // findings beyond the limit of one rule
	Damage     *Damage    `json:"damage,omitempty"`
	Usage      *Usage     `json:"usage,omitempty"`
	Resumes    *Resumes   `json:"resumes,omitempty"`
	Lineage    *Lineage   `json:"lineage,omitempty"`
	Extended   int64      `json:"extended,omitempty"` // requests that extend the one before, as they must
	Paranoid   *Paranoid  `json:"paranoid,omitempty"`
	Recording  *Compared  `json:"recording,omitempty"`
	Migration  *Migration `json:"migration,omitempty"`
	// Whole marks a result about a directory or an archive, whose logs have results
	// of their own.
	Whole bool `json:"whole,omitempty"`
	// Known counts the findings that a baseline accepts; they are counted nowhere
	// else and not listed.
	Known *Known `json:"known,omitempty"`
	// At is the place of the result in the whole run, of which a shard is a part.
	At *int64 `json:"at,omitempty"`

	// Fails tells that the result makes the run end with something else than
	// success. A writer of a format with passed and failed needs it.
	Fails bool `json:"-"`
}

// Known counts accepted findings by severity.
type Known struct {
	Errors   int64 `json:"errors"`
	Warnings int64 `json:"warnings"`
	Notes    int64 `json:"notes"`
}

func (k *Known) total() int64 {
	if k == nil {
		return 0
	}
	return k.Errors + k.Warnings + k.Notes
}

// inDatabase reports whether the session has to be named beside the path. A database
// that cannot be read, or a header that is lost, has none.
func (r *Result) inDatabase() bool { return r.Container == "sqlite" && !r.Whole && r.Session != "" }

// name is the log for a reader: its path and, of a database, the session in it.
func (r *Result) name() string {
	if r.inDatabase() {
		return string(r.Path) + " (session " + string(r.Session) + ")" // a database may hold several
	}
	return string(r.Path)
}

// Relative is the path that does not depend on the machine.
func (r *Result) Relative() string {
	if r.File != "" {
		return string(r.File)
	}
	return string(r.Path)
}

// openRule is the note that makes a log open. A verdict is not left without its
// reason, so it is listed like a warning.
const openRule = "TAIL-OPEN"

// listed reports whether a finding is shown to people who did not ask for notes.
func (r *Result) listed(f *Finding) bool {
	return f.Severity != "note" || r.Verdict == "open" && f.Rule == openRule
}

// A Key says which finding is meant whatever the words of its message and the
// place of the log on a machine.
type Key struct {
	Rule    string `json:"rule"`
	File    Text   `json:"file"`
	Session Text   `json:"session,omitempty"` // of a database, which may hold several
	Seq     *int64 `json:"seq,omitempty"`
	Path    Text   `json:"path,omitempty"`
}

// Key returns the key of a finding of r.
func (r *Result) Key(f *Finding) Key {
	k := Key{Rule: f.Rule, File: Text(showBadBytes(r.Relative())), Seq: f.Seq, Path: f.Path}
	if r.Container == "sqlite" {
		k.Session = r.Session
	}
	return k
}

// String is unique for a key.
func (k Key) String() string {
	seq := "-"
	if k.Seq != nil {
		seq = fmt.Sprint(*k.Seq)
	}
	return strings.Join([]string{k.Rule, string(k.File), string(k.Session), seq, string(k.Path)}, "\x00")
}

// fingerprint is a digest of a key and of how many of the same came before.
func (k Key) fingerprint(n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d", k, n))
	return hex.EncodeToString(sum[:16])
}

// A RuleInfo is what a report tells about a rule.
type RuleInfo struct {
	ID       string `json:"id"`
	Severity string `json:"severity"`
	Title    string `json:"title"`
	Text     string `json:"-"`
	How      string `json:"-"`
	Advice   string `json:"advice"`
	When     string `json:"-"`
}

// Rules looks a rule up. It returns nil for one that is not known.
type Rules func(id string) *RuleInfo

// A Shard is a part of a run that several machines share.
type Shard struct {
	Index int `json:"index"` // from 1
	Count int `json:"count"`
}

// Requests counts the log's own loop requests by grade.
type Requests struct {
	Exact      int64 `json:"exact"`
	Messages   int64 `json:"messages"`
	Ambiguous  int64 `json:"ambiguous"`
	Candidates int64 `json:"candidates"`
	Inherited  int64 `json:"inherited"`
	// SHA256 is that of the SHA-256 sums of the exact ones.
	SHA256 string `json:"sha256,omitempty"`
}

// Usage is what providers reported for the log's own requests.
type Usage struct {
	Requests     Tokens  `json:"requests"`
	Silent       int64   `json:"silent"`                // requests without a report
	Compactions  *Tokens `json:"compactions,omitempty"` // of the calls that summed up the history
	Inherited    int64   `json:"inherited"`             // reports of inherited requests, not added
	CacheChecked int64   `json:"cacheChecked"`          // requests whose reads from the cache were judged
}

// Tokens are sums of reports.
type Tokens struct {
	Reports    int64 `json:"reports"`
	Input      int64 `json:"input"` // neither read from nor written to a cache
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cacheRead"`
	CacheWrite int64 `json:"cacheWrite"`
	Reasoning  int64 `json:"reasoning"` // part of output
}

// Resumes counts the header snapshots of later processes.
type Resumes struct {
	Clean   int64 `json:"clean"`
	Drifted int64 `json:"drifted"`
}

// Lineage says how a log was held against its parent's.
type Lineage struct {
	Parent    Text  `json:"parent"`
	Inherited int64 `json:"inherited"` // events
	Own       int64 `json:"own"`
	Compared  int64 `json:"compared"` // inherited events that were held against the parent's
	Upgraded  int64 `json:"upgraded"` // of these, equal only after an upgrade
	Missing   bool  `json:"missing,omitempty"`
}

// Paranoid counts the requests that were rebuilt a second time.
type Paranoid struct {
	Checked int64 `json:"checked"`
	Of      int64 `json:"of"`
	Skipped Text  `json:"skipped,omitempty"` // why none was
}

// A Finding is one breach of one rule. Absent places are left out.
type Finding struct {
	Rule     string    `json:"rule"`
	Severity string    `json:"severity"`
	Line     int64     `json:"line,omitempty"` // physical line, from 1
	Offset   *int64    `json:"offset,omitempty"`
	Frame    *int      `json:"frame,omitempty"` // Zstandard frame, from 0
	Row      *int64    `json:"row,omitempty"`   // seq column of an SQLite row
	Seq      *int64    `json:"seq,omitempty"`
	Turn     *int64    `json:"turn,omitempty"`
	Step     *int64    `json:"step,omitempty"`
	Path     Text      `json:"path,omitempty"` // of the value within the event
	Message  Text      `json:"message"`
	Hint     Text      `json:"hint,omitempty"`
	More     int64     `json:"more,omitempty"` // further events of the same packed row
	Related  []Related `json:"related,omitempty"`
}

// Related is another place a finding refers to.
type Related struct {
	Line    int64  `json:"line,omitempty"`
	Seq     *int64 `json:"seq,omitempty"`
	Message Text   `json:"message"`
}

// Omitted counts findings that are not listed.
type Omitted struct {
	Rule  string `json:"rule"`
	Count int64  `json:"count"`
}

// omitted is how many findings of a severity are counted but not listed.
func (r *Result) omitted(severity string) int64 {
	n := map[string]int64{"error": r.Errors, "warning": r.Warnings, "note": r.Notes}[severity]
	for i := range r.Findings {
		if r.Findings[i].Severity == severity {
			n--
		}
	}
	return n
}

// Migration says whether the harness's own migrations would take the log to a later
// format generation.
type Migration struct {
	To         string `json:"to"` // v1 to v4
	Accepted   bool   `json:"accepted"`
	Stage      string `json:"stage,omitempty"` // the step that refuses the log, like "v1-to-v2"
	Rule       string `json:"rule,omitempty"`
	Line       int64  `json:"line,omitempty"`
	Seq        *int64 `json:"seq,omitempty"`
	Message    Text   `json:"message,omitempty"`
	Advice     Text   `json:"advice,omitempty"`
	Unverified bool   `json:"unverified,omitempty"` // the last step was never run with the harness's own code
}

// Compared counts what became of the requests of a recording.
type Compared struct {
	Path      Text  `json:"path"`
	Recorded  int64 `json:"recorded"`
	Matched   int64 `json:"matched"`
	KeyOrder  int64 `json:"keyOrder"`
	Misplaced int64 `json:"misplaced"` // recorded under another turn or step
	Differing int64 `json:"differing"`
	Missing   int64 `json:"missing"` // rebuilt from the log, not in the recording
	Extra     int64 `json:"extra"`   // in the recording, not in the log
	Auxiliary int64 `json:"auxiliary"`
	Unsent    int64 `json:"unsent"` // of the log, may or may not have been sent, not recorded
	// NotCompared tells why the recording was not compared at all. Such a run never
	// ends with success.
	NotCompared Text `json:"notCompared,omitempty"`
}

// Summary counts the logs of a run.
type Summary struct {
	Logs     int64            `json:"logs"`
	Places   int64            `json:"places,omitempty"` // directories and archives with a result of their own
	Skipped  int64            `json:"skipped"`          // files of directories that are not taken for logs
	Verdicts map[string]int64 `json:"verdicts"`
	Errors   int64            `json:"errors"`
	Warnings int64            `json:"warnings"`
	Notes    int64            `json:"notes"`
	Known    int64            `json:"known,omitempty"`  // findings that the baseline accepts
	Empty    []Text           `json:"empty,omitempty"`  // arguments that gave no log
	NotRun   []string         `json:"notRun,omitempty"` // rules that were switched off
	Total    int64            `json:"total,omitempty"`  // of a part of a run: results of the whole
	Config   Text             `json:"config,omitempty"` // file whose settings were used
}

// A VerifyWriter prints results as they come.
type VerifyWriter interface {
	Result(*Result) error
	// Close prints the summary. next is the command a reader may want to run.
	Close(s *Summary, next string) error
}

// Tally adds a result to the summary.
func (s *Summary) Tally(r *Result) {
	if s.Verdicts == nil {
		s.Verdicts = make(map[string]int64)
	}
	if r.Whole {
		s.Places++
	} else {
		s.Logs++
	}
	s.Verdicts[r.Verdict]++
	s.Errors += r.Errors
	s.Warnings += r.Warnings
	s.Notes += r.Notes
	s.Known += r.Known.total()
}

// count writes a number with its noun.
func count(n int64, noun string) string {
	return plural.Count(n, noun)
}
