package zframe

import (
	"github.com/klauspost/compress/zstd"
)

// An Encoder writes frames with the parameters that the harness uses: level 3,
// checksum, no content size, a window of 2 MiB. The compressed bytes are not
// those of the reference encoder, which differ between its own versions; the
// plain text is what identifies a frame (PHYSICAL §3.1).
type Encoder struct {
	z *zstd.Encoder
}

// header is the beginning of every frame written.
var header = []byte{0x28, 0xB5, 0x2F, 0xFD, 0x04, 0x58}

// emptyBody is the last block and the checksum of a frame without content.
var emptyBody = []byte{0x01, 0x00, 0x00, 0x99, 0xE9, 0xD8, 0x51}

// NewEncoder returns an encoder.
func NewEncoder() *Encoder {
	z, err := zstd.NewWriter(nil,
		zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(3)),
		zstd.WithWindowSize(2<<20),
		zstd.WithSingleSegment(false),
		zstd.WithEncoderCRC(true),
	)
	if err != nil {
		panic(err) // the options are constants
	}
	return &Encoder{z}
}

// Append appends one frame with the whole of text to dst.
func (e *Encoder) Append(dst, text []byte) []byte {
	if len(text) == 0 {
		return append(append(dst, header...), emptyBody...)
	}
	k := len(dst)
	dst = e.z.EncodeAll(text, dst)
	// The library records the content size and a window fitted to it. Blocks
	// do not depend on either, so the header is replaced; the stored one is
	// never shorter.
	window, dict, content := headerSizes(dst[k+4])
	old := 5 + window + dict + content
	n := copy(dst[k+len(header):], dst[k+old:])
	copy(dst[k:], header)
	return dst[:k+len(header)+n]
}
