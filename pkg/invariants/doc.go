// Package invariants judges session logs: it holds the rules a log keeps, looks
// for breaches in one pass, and draws one verdict. It implements SEMANTICS §1,
// §3.3, §5.4, §6, §8, §9, §10 and PHYSICAL §2, §6, §7.
//
// # Rules
//
// A Rule has a stable id, a severity, the builds that held to it, and texts that
// say what it means, how a log comes to break it and what to do. A rule speaks
// only where every build that may have written the event held to it; which those
// are is read off the shapes in the log, event by event, because one file may
// have been appended to by several builds. A rule that is broken where not all
// of them held to it is silent, or, where that says so, a warning.
//
// # Findings
//
// A Finding names the rule, the physical line, the byte offset and the seq, and
// says what was found and what was expected. Damage that the reader found has
// the same shape; its Class says what it makes of the log. Findings come in the
// order of their places. Of each rule only so many are kept, the rest counted,
// so that no log can exhaust memory.
//
// One cause is one finding as far as that can be told: when a number is wrong
// the next one may continue from it or from what it should have been, and what
// depends on lost or faulty events is not held against the events that follow.
//
// # Witnesses
//
// A log says many things twice, and a check is worth something where two records
// were made apart: chunks and the message made of them, calls and the blocks that
// ask for them, a header and the one before, usage in the stream and in the
// message, a child's first events and its parent's (Options.Parent). Results
// count what was compared. The fold itself is held against a second one that
// starts afresh for each request (Options.Paranoid), and each request against the
// one before, which it must extend.
//
// What harms a session without being a fault of its log is a note, or a warning
// where the log has no excuse for it: ids that repeat, calls without a result,
// caches that were not read.
//
// # Verdicts
//
//	ok           no error, no warning
//	warn         warnings only
//	open         sound, but ends inside a turn
//	torn         the tail was cut; the kept prefix is sound
//	violations   readable, and breaks a rule of severity error
//	corrupt      damage in the committed region
//	unsupported  not judged: a format, or an event type without ignorable that no build wrote
//	unreadable   not read
//
// The worst of the first six wins. unsupported stands when no error does.
//
// # Growth
//
// A rule is a value in one of the rule files; adding one touches nothing else.
// Ids are never reused. Messages may change, ids, severities and places are what
// other programs may rely on.
package invariants
