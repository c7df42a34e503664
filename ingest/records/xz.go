package records

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"

	"github.com/ulikunitz/xz/lzma"

	"docstore/internal/eof"
)

// maxXzDictionary limits the memory of an xz stream: xz -9 uses 64 MiB.
const maxXzDictionary = 64 << 20

var (
	xzMagic       = []byte{0xfd, '7', 'z', 'X', 'Z', 0}
	xzFooterMagic = []byte("YZ")
	crc64Table    = crc64.MakeTable(crc64.ECMA)
)

// Sizes of parts of an xz stream, in bytes.
const (
	xzHeaderBytes = 12
	xzFooterBytes = 12
	xzAlignment   = 4
	xzFilterLZMA2 = 0x21
	xzMaxVarint   = 9 // bytes
)

// xzReader decompresses an xz file of any number of streams and blocks, which must have the
// LZMA2 filter alone. It parses the container and uses the LZMA2 decoder of ulikunitz/xz, whose
// reader of files (of 0.5.17) has no limit for the dictionary that each block states, and
// accepts a file that ends in front of a block or within its header.
type xzReader struct {
	in      *bufio.Reader
	check   byte      // kind of checksum of the blocks
	hash    hash.Hash // of the block; nil: none
	block   io.Reader // nil: between blocks
	counter *byteCounter
	header  int64 // bytes of the block's header
	size    int64 // decompressed bytes of the block
	index   xzIndex
	within  bool // a stream
}

// xzIndex sums up the blocks of a stream, to be compared with its index.
type xzIndex struct{ records, unpadded, uncompressed uint64 }

func newXzReader(in *bufio.Reader) (*xzReader, error) {
	x := &xzReader{in: in}
	return x, x.startStream()
}

// errXz: the stream is damaged, or of a kind that this reader does not support.
func errXz(format string, args ...any) error { return fmt.Errorf("xz: "+format, args...) }

// Read implements io.Reader.
func (x *xzReader) Read(p []byte) (int, error) {
	for {
		if x.block == nil {
			if err := x.next(); err != nil {
				if x.within {
					err = eof.Unexpected(err)
				}
				return 0, err
			}
			continue
		}
		n, err := x.block.Read(p)
		x.size += int64(n)
		if x.hash != nil {
			x.hash.Write(p[:n])
		}
		if eof.Is(err) {
			err = eof.Unexpected(x.endBlock())
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// next starts the next block, or ends the stream and starts the next one.
func (x *xzReader) next() error {
	if !x.within {
		return x.startStream()
	}
	size, err := x.in.ReadByte()
	if err != nil {
		return err
	}
	if size == 0 {
		return x.endStream()
	}
	return x.startBlock(size)
}

func (x *xzReader) startStream() error {
	// Zeros may follow a stream, in multiples of four.
	for {
		pad, err := x.in.Peek(xzAlignment)
		if len(pad) == 0 {
			return err
		}
		if !bytes.Equal(pad, make([]byte, xzAlignment)) {
			break
		}
		_, _ = x.in.Discard(xzAlignment) // they are buffered
	}
	var header [xzHeaderBytes]byte
	if _, err := io.ReadFull(x.in, header[:]); err != nil {
		return eof.Unexpected(err)
	}
	if !bytes.HasPrefix(header[:], xzMagic) {
		return errXz("data that is not a stream follows a stream")
	}
	if crc32.ChecksumIEEE(header[6:8]) != binary.LittleEndian.Uint32(header[8:]) || header[6] != 0 || header[7] > 0x0f {
		return errXz("the header of a stream is damaged")
	}
	x.check, x.within, x.index = header[7], true, xzIndex{}
	switch x.check {
	case 0:
		x.hash = nil
	case 1:
		x.hash = crc32.NewIEEE()
	case 4:
		x.hash = crc64.New(crc64Table)
	case 10:
		x.hash = sha256.New()
	default:
		return errXz("unknown kind of checksum %d", x.check)
	}
	return nil
}

// startBlock reads the header of a block, after its first byte.
func (x *xzReader) startBlock(size byte) error {
	header := make([]byte, (int(size)+1)*xzAlignment)
	header[0] = size
	if _, err := io.ReadFull(x.in, header[1:]); err != nil {
		return err
	}
	end := len(header) - 4
	if crc32.ChecksumIEEE(header[:end]) != binary.LittleEndian.Uint32(header[end:]) {
		return errXz("the header of a block is damaged")
	}
	flags, rest := header[1], header[2:end]
	if flags&0x3c != 0 || flags&0x03 != 0 {
		return errXz("a block has other filters than LZMA2")
	}
	for _, present := range []byte{0x40, 0x80} { // sizes, which the index has too
		if flags&present != 0 {
			_, n := binary.Uvarint(rest)
			if n <= 0 || n > xzMaxVarint {
				return errXz("the header of a block is damaged")
			}
			rest = rest[n:]
		}
	}
	if len(rest) < 3 || rest[0] != xzFilterLZMA2 || rest[1] != 1 {
		return errXz("a block has other filters than LZMA2")
	}
	dictionary, err := lzma.DecodeDictCap(rest[2])
	if err != nil {
		return errXz("the header of a block is damaged")
	}
	if dictionary > maxXzDictionary {
		return errXz("a block needs a dictionary of %d bytes, more than the limit of %d; compress with xz -9 or less", dictionary, maxXzDictionary)
	}
	x.counter = &byteCounter{in: x.in}
	x.block, err = lzma.Reader2Config{DictCap: int(dictionary)}.NewReader2(x.counter)
	if err != nil {
		return errXz("%w", err)
	}
	if x.hash != nil {
		x.hash.Reset()
	}
	x.header, x.size = int64(len(header)), 0
	return nil
}

// byteCounter counts the bytes that are read. It reads no more than it is asked for.
type byteCounter struct {
	in   *bufio.Reader
	read int64
}

func (c *byteCounter) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.read += int64(n)
	return n, err
}

// ReadByte implements io.ByteReader.
func (c *byteCounter) ReadByte() (byte, error) {
	b, err := c.in.ReadByte()
	if err == nil {
		c.read++
	}
	return b, err
}

// endBlock reads the padding and the checksum of a block.
func (x *xzReader) endBlock() error {
	x.block = nil
	if err := x.zeros(-x.counter.read); err != nil {
		return err
	}
	unpadded := x.header + x.counter.read
	if x.hash != nil {
		sum := make([]byte, x.hash.Size())
		if _, err := io.ReadFull(x.in, sum); err != nil {
			return err
		}
		unpadded += int64(len(sum))
		want := x.hash.Sum(nil)
		if x.check != 10 { // the others are numbers, stored little-endian
			for i, j := 0, len(want)-1; i < j; i, j = i+1, j-1 {
				want[i], want[j] = want[j], want[i]
			}
		}
		if !bytes.Equal(sum, want) {
			return errXz("the checksum of a block is wrong")
		}
	}
	x.index.add(uint64(unpadded), uint64(x.size))
	return nil
}

func (i *xzIndex) add(unpadded, uncompressed uint64) {
	i.records++
	i.unpadded += unpadded
	i.uncompressed += uncompressed
}

// zeros reads zeros up to the alignment; the remainder of n is their number.
func (x *xzReader) zeros(n int64) error {
	for range (n%xzAlignment + xzAlignment) % xzAlignment {
		b, err := x.in.ReadByte()
		if err != nil {
			return err
		}
		if b != 0 {
			return errXz("the padding is not zero")
		}
	}
	return nil
}

// endStream reads the index, after its first byte, and the footer.
func (x *xzReader) endStream() error {
	sum := crc32.NewIEEE()
	sum.Write([]byte{0})
	read := int64(1)
	number := func() (uint64, error) {
		var encoded [xzMaxVarint]byte
		for i := range encoded {
			b, err := x.in.ReadByte()
			if err != nil {
				return 0, err
			}
			encoded[i] = b
			read++
			if b < 0x80 {
				sum.Write(encoded[:i+1])
				n, _ := binary.Uvarint(encoded[:i+1])
				return n, nil
			}
		}
		return 0, errXz("the index is damaged")
	}
	records, err := number()
	if err != nil {
		return err
	}
	if records != x.index.records {
		return errXz("the index has %d blocks, the stream has %d", records, x.index.records)
	}
	var index xzIndex
	for range records {
		unpadded, err := number()
		if err != nil {
			return err
		}
		uncompressed, err := number()
		if err != nil {
			return err
		}
		index.add(unpadded, uncompressed)
	}
	if index != x.index {
		return errXz("the index does not match the blocks")
	}
	padding := (xzAlignment - read%xzAlignment) % xzAlignment
	sum.Write(make([]byte, padding))
	if err := x.zeros(padding); err != nil {
		return err
	}
	var end [4 + xzFooterBytes]byte
	if _, err := io.ReadFull(x.in, end[:]); err != nil {
		return err
	}
	footer := end[4:]
	if sum.Sum32() != binary.LittleEndian.Uint32(end[:4]) ||
		crc32.ChecksumIEEE(footer[4:10]) != binary.LittleEndian.Uint32(footer) || footer[9] != x.check || !bytes.Equal(footer[10:], xzFooterMagic) {
		return errXz("the end of a stream is damaged")
	}
	x.within = false
	return nil
}
