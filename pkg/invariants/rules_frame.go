package invariants

// Rules about the frames of a Zstandard log, and the line that is too long for
// memory. All of them are found by the reader.
var frameRules = []*Rule{
	{
		ID: "FRAME-MAGIC", Severity: Error, Spec: "PHYSICAL §3.2",
		Title:  "a frame begins where the one before it ends",
		Text:   "A Zstandard log is a row of frames with nothing between them, each beginning with the bytes 28 b5 2f fd. The harness looks at the structure of the whole file first and refuses it for one wrong place, wherever it is; up to three stray bytes at the end pass for a torn frame.",
		How:    "Bytes were appended, lost or overwritten, a disk left zeros behind a crash, or plain text lies under a .zstd name.",
		Advice: "The frames around the place are sound and are read. Cut junk at the end off at the byte named; otherwise restore the file from a copy.",
	},
	{
		ID: "FRAME-RESERVED", Severity: Error, Spec: "PHYSICAL §3.2",
		Title:  "a frame sets no reserved bit and has no block of the reserved type",
		Text:   "Two bits of the frame descriptor and one block type are reserved. No encoder writes them, so the header of the frame or of the block is damaged.",
		How:    "A bit flipped in storage or in transfer.",
		Advice: "The records of this frame are lost, those of the others are read. Restore the file from a copy.",
	},
	{
		ID: "FRAME-SKIP", Severity: Error, Spec: "PHYSICAL §3.2",
		Title:  "a log holds no skippable frames",
		Text:   "Zstandard allows frames that decoders pass over. The harness never writes them and takes their magic for damage.",
		How:    "Another compressor, or a tool that pads or signs files, has rewritten the log.",
		Advice: "No record is touched. Remove the frame, or write the log anew from its text.",
	},
	{
		ID: "FRAME-DATA", Severity: Error, Spec: "PHYSICAL §3.1, §3.3",
		Title:  "a complete frame decodes and fits its checksum",
		Text:   "Each frame carries a checksum of its text. A frame that does not decode, does not fit its checksum, claims a size its blocks cannot hold, asks for a window above 128 MiB or for a dictionary is refused as a whole, and the log with it. A frame whose length runs past the end of the file while sound frames follow inside belongs here too: the harness takes it for a torn tail and would drop all of them.",
		How:    "A bit flipped in storage or in transfer, or the file was written by another program.",
		Advice: "The frames around it are read. If only the checksum is wrong, its records are shown as well, but nothing proves them. Keep a copy before a harness opens the log.",
	},
	{
		ID: "FRAME-HEADER", Severity: Error, Spec: "PHYSICAL §3.1, §3.3",
		Title:  "the first frame is exactly the header line",
		Text:   "The first frame of a log holds the header record, its line feed, and nothing else, so that a list of sessions can be made from first frames alone. The harness refuses a log whose first frame is empty, is cut, or holds more or less than that line.",
		How:    "The log was compressed by another program, in one piece, or the very first write was cut short.",
		Advice: "Write the log anew from its text, the header line as a frame of its own. A log cut in its first frame holds nothing to save.",
	},
	{
		ID: "FRAME-LINE", Severity: Error, Spec: "PHYSICAL §3.3",
		Title:  "the complete frames end with a whole line",
		Text:   "A record may run over several complete frames, but the last of them ends in a line feed. A batch is written whole, so that half a record in complete frames is no crash; the harness refuses the log.",
		How:    "A frame was removed from the end, or another program has split the text.",
		Advice: "Compare with a copy. The records before the half one are sound.",
	},
	{
		ID: "FRAME-TORN", Severity: Warning, Spec: "PHYSICAL §3.3, §3.4",
		Title:  "the last frame is complete",
		Text:   "A file that ends inside its last frame is a write that never finished. The harness recovers the whole lines of the blocks that are there, and cuts the file at the beginning of the frame when it continues the session.",
		How:    "The process was killed, the machine lost power, or the disk was full.",
		Advice: "Nothing to do. What stands before it is sound and the session can be continued.",
	},
	{
		ID: "LINE-LONG", Severity: Error, Spec: "PHYSICAL §2.1",
		Title:  "a line fits into memory",
		Text:   "Records are held in memory one at a time, of at most 128 MiB. A longer line is passed over: its record is not judged, and what depends on it cannot be.",
		How:    "A tool returned an enormous result, or a compressed file was made to burst.",
		Advice: "Look at the place with other means. If the line is meant, this check cannot judge the log.",
	},
}
