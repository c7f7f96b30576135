package invariants

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Rules about goals.
var goalRules = []*Rule{
	{
		ID: "GOAL", Severity: Error, Since: buildCompanions, Spec: "SEMANTICS §8.2, §1.2; PHYSICAL §7.5",
		Title:  "a goal goes through its stages one revision at a time",
		Text:   "From 08-05: a goal is created as revision 1, active, without rounds, under a fresh id, when no other is unfinished. Every later operation names the same id and the next revision, keeps createdAt and the rounds started, and fits the stage the goal is in: only an active goal is paused or blocked, only one that is not complete is completed or taken up again. Each round is a message of kind goal that names the active revision and the next number. Operations have exactly their members. What earlier builds said about goals on messages is not followed. Goals changed in generation 3, and how they go on in generation 2 is not known: nothing is said of them in generations after 1.",
		How:    "An event of the goal was lost or edited, or two processes share the log.",
		Advice: "Look for the revision that is missing. The rounds that were sent are in the log in any case.",
		Types:  []string{"goal/change", "user/message"},
		New:    func() Checker { return new(goalChecker) },
	},
	{
		ID: "GOAL-ROUND", Severity: Error, Since: buildCompanions, Spec: "SEMANTICS §8.2",
		Title:  "the message of a round is what the harness makes of the goal",
		Text:   "It is one text in a goal_round element, which holds the objective as a JSON value and the number of the round out of how many. The number is that of the source. The fixed sentences of the text are not compared. Before 08-05 a breach is a warning. What the text is in generations after 1 is not known: nothing is said of it there.",
		How:    "The event was edited, or a plugin rewrote the message.",
		Advice: "Compare with the goal: what the model was told about it is this text and nothing else.",
		Types:  []string{"user/message"},
		New:    stateless(checkRound),
	},
}

type goalChecker struct {
	known     bool // what follows is known; otherwise the next event that says so is believed
	started   bool
	exists    bool
	id        []byte
	revision  int64
	stage     string // "" when unknown
	rounds    int64  // -1 when unknown
	most      int64  // rounds it may have, 0 when unknown
	created   []byte
	updated   []byte
	reason    []byte
	ids       ledger[struct{}]
	lost      int64
	inherited bool // the last event was
}

func (g *goalChecker) Event(c *Context, e *logfmt.Event) {
	inherited := c.Inherited(e)
	if !g.started {
		// Builds that kept goals on messages may have written what comes before.
		g.started, g.known, g.inherited = true, c.events == 1, inherited
		if !g.known {
			g.known = c.ranges[0].Since(buildReact) && len(c.lost) == 0
		}
	}
	if c.unsettled(&g.lost) || g.inherited && !inherited {
		g.known = false // whether a child goes on with a goal of its parent is not said
	}
	g.inherited = inherited
	if e.Type == "user/message" {
		g.round(c, e)
		return
	}
	if !c.Builds.Since(buildReact) {
		return
	}
	if v := jsjson.Get(e.Data, "version"); jsjson.KindOf(v) == jsjson.Number && string(v) != "1" {
		c.Report(e, "data.version", "version of goal/change is %s, expected 1", show(v))
		return
	}
	op, _ := jsjson.Str(jsjson.Get(e.Data, "operation"))
	switch op {
	case "clear":
		g.clear(c, e)
	case "create", "edit", "pause", "resume", "complete", "block":
		g.change(c, e, op)
	}
}

func (g *goalChecker) End(*Context) {}

func (g *goalChecker) clear(c *Context, e *logfmt.Event) {
	if extra := keysBut(e.Data, "kind", "version", "operation", "cleared", "clearedAt"); extra != "" {
		c.Report(e, "data", "clear of goal/change has the further key %s", extra)
	}
	what := jsjson.Get(e.Data, "cleared")
	if extra := keysBut(what, "id", "revision"); extra != "" {
		c.Report(e, "data.cleared", "cleared of goal/change has the further key %s, expected exactly id and revision", extra)
	}
	g.next(c, e, "clear", "data.cleared", what)
	g.exists, g.known = false, true
}

// next checks that an operation names the goal at hand and its next revision.
func (g *goalChecker) next(c *Context, e *logfmt.Event, op, path string, goal []byte) bool {
	if !g.known {
		return true
	}
	id := jsjson.Get(goal, "id")
	n, ok := jsjson.SafeInt(jsjson.Get(goal, "revision"))
	switch {
	case !g.exists:
		c.Report(e, "data.operation", "%s of goal %s, but there is no goal", op, show(id))
		return false
	case jsjson.KindOf(id) == jsjson.String && !jsjson.Equal(id, g.id):
		c.Report(e, path+".id", "%s of goal %s, expected the goal at hand, %s", op, show(id), show(g.id))
		return false
	case ok && n != g.revision+1:
		c.Report(e, path+".revision", "revision of the goal is %d, expected %d", n, g.revision+1)
	}
	return true
}

func (g *goalChecker) change(c *Context, e *logfmt.Event, op string) {
	d := e.Data
	if extra := keysBut(d, "kind", "version", "operation", "goal", "roundsStarted", "createdAt", "updatedAt"); extra != "" {
		c.Report(e, "data", "%s of goal/change has the further key %s", op, extra)
	}
	goal := jsjson.Get(d, "goal")
	id := jsjson.Get(goal, "id")
	n, counted := jsjson.SafeInt(jsjson.Get(goal, "revision"))
	rounds, whole := jsjson.SafeInt(jsjson.Get(d, "roundsStarted"))
	if !whole {
		rounds = -1
	}
	stage := stages[op]
	if stage == "" {
		stage = g.stage
		if !g.known {
			stage = "" // edited in a stage that is not known
		}
	}
	follows := true
	if op == "create" {
		g.create(c, e, id, n, counted, rounds)
	} else if follows = g.next(c, e, op, "data.goal", goal); follows && g.known {
		g.keeps(c, e, op, rounds)
	}
	if phase, ok := jsjson.Str(jsjson.Get(goal, "phase")); ok && stageName[phase] {
		if stage != "" && follows && phase != stage {
			c.Report(e, "data.goal.phase", "phase of the goal is %s, expected %s after %s", phase, stage, op)
		}
		stage = phase
	}
	reason := jsjson.Get(goal, "reason")
	if code, ok := jsjson.Str(jsjson.Get(reason, "code")); ok && op == "block" && !lowerKebab.MatchString(code) {
		c.Report(e, "data.goal.reason.code", "reason code of the goal is %s, expected lower case words joined by hyphens", quoted(code))
	}
	if op == "edit" && g.known && follows && !jsjson.Equal(reason, g.reason) {
		c.Report(e, "data.goal.reason", "reason of the goal is %s, expected the one before, %s: an edit keeps it", show(reason), show(g.reason))
	}
	if !counted || jsjson.KindOf(id) != jsjson.String || !follows {
		g.known = false // the next operation that says what it is about is believed
		return
	}
	most, _ := jsjson.SafeInt(jsjson.Get(goal, "maxRounds"))
	g.exists, g.known = true, true
	g.id, g.revision, g.stage, g.rounds, g.most = clone(id), n, stage, rounds, most
	g.created, g.updated = clone(jsjson.Get(d, "createdAt")), clone(jsjson.Get(d, "updatedAt"))
	g.reason = clone(reason)
	if key, ok := idOf(id); ok {
		g.ids.put(key, struct{}{})
	}
}

var (
	stages     = map[string]string{"create": "active", "resume": "active", "pause": "paused", "block": "blocked", "complete": "complete"}
	stageName  = map[string]bool{"active": true, "paused": true, "blocked": true, "complete": true}
	lowerKebab = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
)

func (g *goalChecker) create(c *Context, e *logfmt.Event, id []byte, n int64, counted bool, rounds int64) {
	if g.known && g.exists && g.stage != "" && g.stage != "complete" {
		c.Report(e, "data.operation", "goal %s is created while goal %s is unfinished", show(id), show(g.id))
	}
	if key, ok := idOf(id); ok {
		if _, used := g.ids.get(key); used {
			c.Report(e, "data.goal.id", "id of the new goal is %s, which another goal had before", show(id))
		}
	}
	if counted && n != 1 {
		c.Report(e, "data.goal.revision", "revision of the new goal is %d, expected 1", n)
	}
	if rounds > 0 {
		c.Report(e, "data.roundsStarted", "roundsStarted of the new goal is %d, expected 0", rounds)
	}
}

// keeps checks what an operation leaves as it was, and the stage it applies to.
func (g *goalChecker) keeps(c *Context, e *logfmt.Event, op string, rounds int64) {
	fits := true
	switch op {
	case "pause", "block":
		fits = g.stage == "active"
	case "resume", "complete":
		fits = g.stage != "complete"
	}
	if !fits && g.stage != "" {
		c.Report(e, "data.operation", "%s of goal %s, which is %s", op, show(g.id), g.stage)
	}
	created, updated := jsjson.Get(e.Data, "createdAt"), jsjson.Get(e.Data, "updatedAt")
	if created != nil && g.created != nil && !jsjson.Equal(created, g.created) {
		c.Report(e, "data.createdAt", "createdAt of the goal is %s, expected the one before, %s", show(created), show(g.created))
	}
	if rounds >= 0 && g.rounds >= 0 && rounds != g.rounds {
		c.Report(e, "data.roundsStarted", "roundsStarted of the goal is %d, expected the rounds so far, %d", rounds, g.rounds)
	}
	a, ok := jsjson.Float(g.updated)
	b, is := jsjson.Float(updated)
	x, was := instant(g.updated)
	y, now := instant(updated)
	if ok && is && b < a || was && now && y.Before(x) {
		c.Report(e, "data.updatedAt", "updatedAt of the goal is %s, expected none before the last one, %s", show(updated), show(g.updated))
	}
}

// round follows the rounds of the goal.
func (g *goalChecker) round(c *Context, e *logfmt.Event) {
	src, kind := sourceKind(e)
	if kind != "goal" || isReplace(e) {
		return
	}
	if jsjson.Get(src, "change") != nil || !c.Builds.Since(buildReact) {
		g.known = false // goals of earlier builds
		return
	}
	n, ok := jsjson.SafeInt(jsjson.Get(src, "round"))
	revision, is := jsjson.SafeInt(jsjson.Get(src, "revision"))
	id := jsjson.Get(src, "goalId")
	if !ok || !is || jsjson.KindOf(id) != jsjson.String {
		return
	}
	if !g.known {
		g.rounds = -1
		return
	}
	switch {
	case !g.exists:
		c.Report(e, "data.source.goalId", "a round of goal %s, but there is no goal", show(id))
		return
	case !jsjson.Equal(id, g.id):
		c.Report(e, "data.source.goalId", "a round of goal %s, expected the goal at hand, %s", show(id), show(g.id))
		return
	case revision != g.revision:
		c.Report(e, "data.source.revision", "a round of revision %d of the goal, expected the revision at hand, %d", revision, g.revision)
	case g.stage != "" && g.stage != "active":
		c.Report(e, "data.source", "a round of goal %s, which is %s", show(id), g.stage)
	case g.rounds >= 0 && n != g.rounds+1:
		c.Report(e, "data.source.round", "round %d of the goal, expected the next one, %d", n, g.rounds+1)
	case g.most > 0 && n > g.most:
		c.Report(e, "data.source.round", "round %d of the goal, expected at most %d", n, g.most)
	}
	g.rounds = n
}

func checkRound(c *Context, e *logfmt.Event) {
	src, kind := sourceKind(e)
	round, ok := jsjson.SafeInt(jsjson.Get(src, "round"))
	content := jsjson.Get(e.Data, "content")
	if kind != "goal" || !ok || isReplace(e) || jsjson.Get(src, "change") != nil || jsjson.KindOf(content) != jsjson.Array {
		return
	}
	block := jsjson.Index(content, 0)
	text, isText := jsjson.Str(jsjson.Get(block, "text"))
	if jsjson.Len(content) != 1 || !isText {
		c.weigh(c.Report(e, "data.content", "content of a round is %s, expected one text", show(content)), buildReact)
		return
	}
	report := func(format string, args ...any) {
		c.weigh(c.Report(e, "data.content[0].text", format, args...), buildReact)
	}
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "<goal_round>") || !strings.HasSuffix(text, "</goal_round>") {
		report("the text of a round begins %s, expected it to stand in <goal_round> and </goal_round>", quoted(text))
		return
	}
	_, objective, found := strings.Cut(text, "Objective:")
	objective, _, _ = strings.Cut(strings.TrimLeft(objective, " "), "\n")
	if _, err := jsjson.Check([]byte(strings.TrimRight(objective, " \r"))); !found || err != nil {
		report("the text of a round names no objective, expected a line with Objective and a JSON value")
		return
	}
	m := roundLine.FindStringSubmatch(text)
	if m == nil {
		report("the text of a round names no round, expected a line with Round, its number and how many there may be")
		return
	}
	told, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || told != round {
		report("the text says round %s, expected that of the source, %d", m[1], round)
	} else if most, err := strconv.ParseInt(m[2], 10, 64); err == nil && told > most {
		report("the text says round %d of at most %d", told, most)
	}
}

var roundLine = regexp.MustCompile(`Round: *(\d+) */ *([^\s]+)`)
