//go:build !nolzo

package lzo

import "docstore/queue/codec"

// decodedBytes returns the decoded length of an LZO1X stream without decoding it: it
// adds up the lengths of the instructions. False: the stream has no end, does not end
// with its last byte, or decodes to more than codec.MaxDocumentBytes.
//
// The instructions, by their first byte (from the Linux kernel's
// Documentation/staging/lzo.rst). In state 0 the previous instruction was not followed by
// literals:
//
//	0..15   in state 0: 3 + L literals; otherwise a match of 2 bytes, or of 3
//	        after a run of literals
//	16..31  a match of 2 + (3 bits) bytes, far away; at distance 0 the end
//	32..63  a match of 2 + (5 bits) bytes
//	64..255 a match of 3 to 8 bytes
//
// A length of 0 is extended: each zero byte that follows adds 255, and the first other
// byte ends the length. The last two bits of a match are the number of literals that
// follow it.
func decodedBytes(stream []byte) (int, bool) {
	p := parser{in: stream}
	if len(stream) > 0 && stream[0] > 17 {
		literals := int(p.byte()) - 17
		p.literals(literals)
		p.state = min(literals, longRun)
	}
	for !p.failed {
		if p.instruction(int(p.byte())) {
			return p.out, !p.failed && len(p.in) == 0
		}
		if p.out > codec.MaxDocumentBytes {
			break
		}
	}
	return 0, false
}

// longRun is the state after a run of four literals or more.
const longRun = 4

type parser struct {
	in     []byte
	out    int
	state  int // number of literals that came last, at most longRun
	failed bool
}

// instruction reads the rest of the instruction that begins with op. It returns true at
// the end of the stream.
func (p *parser) instruction(op int) bool {
	var trailing, length int
	switch {
	case op >= 64:
		length = op>>5 + 1
		trailing = op & 3
		p.byte()
	case op >= 32:
		length = p.length(op&31, 31) + 2
		trailing = int(p.byte()) & 3
		p.byte()
	case op >= 16:
		length = p.length(op&7, 7) + 2
		low, high := p.byte(), p.byte()
		if op&8 == 0 && low>>2 == 0 && high == 0 {
			return true
		}
		trailing = int(low) & 3
	case p.state == 0:
		p.literals(p.length(op, 15) + 3)
		p.state = longRun
		return false
	default:
		length = 2
		if p.state == longRun {
			length = 3
		}
		trailing = op & 3
		p.byte()
	}
	p.out += length
	p.literals(trailing)
	p.state = trailing
	return false
}

// length reads the extension of a length whose field has a maximum of most.
func (p *parser) length(bits, most int) int {
	if bits != 0 {
		return bits
	}
	n := most
	for !p.failed && n <= codec.MaxDocumentBytes {
		b := p.byte()
		if b != 0 {
			return n + int(b)
		}
		n += 255
	}
	p.failed = true
	return n
}

func (p *parser) byte() byte {
	if len(p.in) == 0 {
		p.failed = true
		return 0
	}
	b := p.in[0]
	p.in = p.in[1:]
	return b
}

func (p *parser) literals(n int) {
	if n > len(p.in) {
		p.failed = true
		return
	}
	p.in = p.in[n:]
	p.out += n
}
