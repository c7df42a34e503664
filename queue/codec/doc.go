// Package codec compresses documents one by one, with or without a dictionary that they
// share.
//
//	c, err := codec.ByName("s2")
//	dictionary, err := c.Train(sample, 64<<10)
//	encoder, err := c.NewEncoder(dictionary)
//	stored, ok := encoder.Encode(nil, document)
//	decoder, err := c.NewDecoder(dictionary)
//	document, err = decoder.Decode(nil, stored, len(document))
//
// Encoders and decoders are safe for concurrent use. A decoder accepts any bytes: the result
// is a document of the stated length or an error, and its memory is bounded by a small
// multiple of that length.
//
// The package links into every client of package docservice. It must not know segments, the
// files that hold them, or how the writer chooses samples.
//
// Limits: a document has at most [MaxDocumentBytes], a dictionary [MaxDictionaryBytes].
package codec
