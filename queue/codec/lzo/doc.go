// Package lzo adds the codec lzo, LZO1X, to package codec: the original document store used
// it. A program that reads or writes such documents imports it for its side effect, as package
// queue does; clients do not, and get such documents decoded.
//
// It uses github.com/rasky/go-lzo, which is under the GPL: the build tag nolzo leaves it out.
// The defects of that library are contained:
//
//   - it decodes at least one valid stream wrongly, so every encoded document is decoded
//     and compared before it is used;
//   - it has no output limit, and each input byte can decode to 255, so the length of the
//     output is computed first;
//   - it panics on some damaged streams, so a panic is an error, and a document that it
//     cannot encode is stored uncompressed;
//   - it fails on readers that return less than requested, so it reads from memory.
package lzo
