package invariants

import (
	"bytes"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/plural"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Rules about export archives (PHYSICAL §1.7), which hold the log of a session,
// those of its subagents, and their attachments.
var zipRules = []*Rule{
	{
		ID: logfmt.RuleZipDirectory, Severity: Error, Spec: "PHYSICAL §1.7",
		Title:  "the list of entries of an archive is whole",
		Text:   "A ZIP archive ends with a list of its entries. Without it the entries are found by the headers before their data, the last one as far as it goes, and what was behind it is unknown.",
		How:    "The download was interrupted, the copy was cut short, or the archive was made to deceive.",
		Advice: "Get the archive again. What could be read of it is judged.",
	},
	{
		ID: logfmt.RuleZipName, Severity: Error, Spec: "PHYSICAL §1.7",
		Title:  "an entry has a name inside the archive",
		Text:   "No export has a name with .., an absolute path, a drive, a backslash or control characters. A program that unpacks such an entry writes outside its folder. Here nothing is ever unpacked, and the entry is not read.",
		How:    "The archive was not made by the harness.",
		Advice: "Do not unpack it with anything else.",
	},
	{
		ID: logfmt.RuleZipTwice, Severity: Error, Spec: "PHYSICAL §1.7",
		Title:  "an entry has a name of its own",
		Text:   "Of two entries with one name different programs take different ones, so that what is checked need not be what is seen.",
		How:    "An entry was added to an archive that had it already, or the archive was made to deceive.",
		Advice: "Export the session again. The first entry is the one that is judged.",
	},
	{
		ID: logfmt.RuleZipMethod, Severity: Error, Spec: "PHYSICAL §1.7",
		Title:  "an entry is stored or deflated",
		Text:   "An entry that is encrypted, or compressed in a way this build does not know, is not read.",
		How:    "The archive was packed again by another program.",
		Advice: "Unpack it with that program, and judge the files.",
	},
	{
		ID: logfmt.RuleZipBomb, Severity: Error, Spec: "PHYSICAL §1.7",
		Title:  "an entry unfolds into a measure that a log can have",
		Text:   "A few bytes may unfold into many gigabytes, and entries that share their bytes into more than any disk holds. Numbers and times that count up keep a log from being that dense. Such an entry is not read.",
		How:    "The archive was made to exhaust the program that opens it.",
		Advice: "Do not unpack it. If you trust its origin, unpack it with a limit, and judge the files.",
	},
	{
		ID: logfmt.RuleZipData, Severity: Error, Spec: "PHYSICAL §1.7",
		Title:  "the bytes of an entry are those that were packed",
		Text:   "Each entry has its size and a checksum. Where they do not fit, bytes were lost or changed after the export; which ones, the checksum does not tell.",
		How:    "A failing disk, an interrupted download, or a change by hand.",
		Advice: "Get the archive again, or export the session once more.",
	},
	{
		ID: logfmt.RuleZipEntry, Severity: Note, Spec: "PHYSICAL §1.7",
		Title:  "an archive holds what an export holds",
		Text:   "An export has session.jsonl, the logs of subagents, and the attachments that the logs refer to. Anything else is passed over.",
		How:    "The archive was packed again, or is no export.",
		Advice: "Nothing to do.",
	},
	{
		ID: logfmt.RuleZipIdentity, Severity: Error, Spec: "PHYSICAL §1.7",
		Title:  "the log of a subagent lies under its id",
		Text:   "An export puts the log of a subagent into a directory named after its id. A log that lies elsewhere is not the one that the parent speaks of.",
		How:    "Entries were exchanged, or the header was changed.",
		Advice: "Trust the header, and export the session again.",
	},
	{
		ID: logfmt.RuleZipHash, Severity: Error, Spec: "PHYSICAL §1.7; SEMANTICS §2.1",
		Title:  "an attachment has the digest in its name",
		Text:   "Attachments are named by the SHA-256 of their bytes. One with another digest is not what the model was shown.",
		How:    "The picture was replaced or damaged.",
		Advice: "Get the attachment from the store of the harness, where it lies under the same digest.",
	},
	{
		ID: logfmt.RuleZipMedia, Severity: Warning, Spec: "PHYSICAL §1.7; SEMANTICS §2.1",
		Title:  "an attachment that a log refers to is in the archive",
		Text:   "Messages refer to pictures by id. An export brings them along, with the size and type that the message says. Without it the request can be rebuilt, but not what the model saw.",
		How:    "The attachment had been deleted when the session was exported, or was taken out of the archive.",
		Advice: "Look for it in the store of the harness, under its digest.",
		New:    func() Checker { return &mediaChecker{seen: map[string]bool{}} },
	},
}

// mediaChecker compares the attachments that events refer to with those in the
// archive.
type mediaChecker struct {
	seen map[string]bool
}

// maxMedia bounds the ids that are remembered; of more a finding may repeat.
const maxMedia = 1 << 14

func (m *mediaChecker) Event(c *Context, e *logfmt.Event) {
	a := c.log.Archive
	if a == nil {
		return
	}
	for obj := range attachments(e.Data) {
		id, ok := jsjson.Str(jsjson.Get(obj, "attachmentId"))
		if !ok {
			continue
		}
		a.Refer(id)
		if m.seen[id] {
			continue
		}
		if len(m.seen) < maxMedia {
			m.seen[id] = true
		}
		ext, size, ok := a.Medium(id)
		switch {
		case !ok && a.Complete:
			c.Report(e, "data", "attachment %s is not in the archive: expected media/%s%s", quoted(id), printable(id), extension(obj))
		case !ok:
		default:
			if want := extension(obj); want != ".*" && want != "."+ext {
				c.Report(e, "data", "attachment %s is of type %s, and lies in the archive as .%s", quoted(id), show(jsjson.Get(obj, "mediaType")), ext)
			}
			if n, ok := jsjson.SafeInt(jsjson.Get(obj, "bytes")); ok && size >= 0 && n != size {
				c.Report(e, "data", "attachment %s has %s in the message, and %d in the archive", quoted(id), plural.Count(n, "byte"), size)
			}
		}
	}
}

func (m *mediaChecker) End(c *Context) {
	if c.log.Archive != nil && c.log.Class() == logfmt.Intact {
		c.log.Archive.Judged()
	}
}

// extension is the end of the name under which an export keeps an attachment.
func extension(obj []byte) string {
	t, _ := jsjson.Str(jsjson.Get(obj, "mediaType"))
	switch t {
	case "image/png":
		return ".png"
	case "image/jpeg":
		return ".jpg"
	case "image/webp":
		return ".webp"
	case "image/gif":
		return ".gif"
	}
	return ".*"
}

// attachments yields the objects under a key attachment anywhere in a canonical
// value. Within a string the quotes of such a key would be escaped.
func attachments(v []byte) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		key := []byte(`"attachment":{`)
		for at := 0; ; {
			i := bytes.Index(v[at:], key)
			if i < 0 {
				return
			}
			i += at
			at = i + len(key)
			if i == 0 || v[i-1] != '{' && v[i-1] != ',' {
				continue
			}
			from := at - 1
			if !yield(v[from:jsjson.Skip(v, from)]) {
				return
			}
		}
	}
}
