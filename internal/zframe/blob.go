package zframe

import "github.com/klauspost/compress/zstd"

// A BlobEncoder writes single values as the harness stores them in databases: one
// frame that records its content size and has no checksum, the reverse of a log's
// frames (PHYSICAL §5.4).
type BlobEncoder struct{ z *zstd.Encoder }

// NewBlobEncoder returns an encoder. It holds no resources that need closing.
func NewBlobEncoder() *BlobEncoder {
	z, err := zstd.NewWriter(nil,
		zstd.WithEncoderLevel(zstd.SpeedDefault),
		zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false),
		zstd.WithWindowSize(2<<20),
		// Without it, text that only saves some bits a byte stays as it is.
		zstd.WithAllLitEntropyCompression(true),
	)
	if err != nil {
		panic(err) // the options are constants
	}
	return &BlobEncoder{z}
}

// Append appends the frame of a value to dst.
func (e *BlobEncoder) Append(dst, value []byte) []byte { return e.z.EncodeAll(value, dst) }
