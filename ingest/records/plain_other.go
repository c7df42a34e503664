//go:build !amd64

package records

func plainBlocks(text []byte, at int) int { return plainWords(text, at) }
