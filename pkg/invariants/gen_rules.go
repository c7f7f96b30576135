package invariants

// Rules that only later generations have. Those that other generations share are
// in the files of generation 0.
var genRules = []*Rule{
	{
		ID: "LOG-GENERATION", Severity: Error, Spec: "FORMATS §2.1",
		Title:  "the name of a log and its header say the same generation",
		Text:   "A log is named after its format generation, session.jsonl for the first and session.vN.jsonl for the others. The harness picks the file with the highest number by name, and refuses it when the header says another one.",
		How:    "The file was renamed or copied under another name, or its header was edited.",
		Advice: "Rename the file after the version in its header. Nothing in the log itself is wrong.",
	},
}

var (
	rules1 = []genRule{
		{id: "LOG-TYPE", alone: true, new: stateless(genType)},
	}
	rules2 = []genRule{
		{id: "LOG-TYPE", alone: true, new: stateless(genType)},
	}
	rules3 = rules2
	rules4 = rules3
)
