package codec

// Helpers of the tests of all codecs.
var (
	Posting     = posting
	RandomBytes = randomBytes
)
