package queue

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/checksum"
)

// testHead is the example of docs/format/head.md.
func testHead(t *testing.T) Head {
	queue := [16]byte([]byte("0123456789abcdef"))
	return Head{
		Queue: queue, Highest: 2, Sealed: 1, Digest: [32]byte(mustHex(t, "a13e9dbf70b505557933d3e080669dfb2490067e3b58fdc4ecc32b76a1f5c567")),
		End: Position{
			Queue: queue, Next: Address{Segment: 2, Block: 188},
			Proof: Proof{Footer: FooterDigest(mustHex(t, "a13e9dbf70b505557933d3e080669dfb")), Chain: 0x1ea1cfbb},
		},
		Time: testStart,
	}
}

func TestHead(t *testing.T) {
	head := testHead(t)
	for _, h := range []Head{head, {Time: testStart}, {Queue: head.Queue, Highest: 1<<32 - 1, Time: time.UnixMilli(-1)}} {
		mem := memWith(t, map[string][]byte{HeadName: h.append(nil)})
		got, err := ReadHead(mem, queueDir)
		require.NoError(t, err)
		require.Equal(t, h, got)
	}
	_, err := ReadHead(newMem(t), queueDir)
	require.ErrorIs(t, err, fs.ErrNotExist)

	page, err := os.ReadFile("../docs/format/head.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "```\n"+string(head.append(nil))+"```\n")
}

// TestEveryByteOfTheHeadDamaged: no damage makes another head.
func TestEveryByteOfTheHeadDamaged(t *testing.T) {
	head := testHead(t)
	whole := head.append(nil)
	require.Less(t, len(whole), maxHeadBytes/4)
	refuse := func(content []byte, how string) {
		_, err := ReadHead(memWith(t, map[string][]byte{HeadName: content}), queueDir)
		var corruption *CorruptionError
		require.ErrorAs(t, err, &corruption, how)
		require.Equal(t, "/queue/"+HeadName, corruption.Path)
	}
	for at := range whole {
		for bit := range 8 {
			flipped := bytes.Clone(whole)
			flipped[at] ^= 1 << bit
			refuse(flipped, fmt.Sprintf("byte %d, bit %d", at, bit))
		}
		refuse(whole[:at], fmt.Sprint("cut at ", at))
	}
	refuse(append(bytes.Clone(whole), '\n'), "a byte more")
	refuse(append(bytes.Clone(whole), whole...), "twice")
	refuse(bytes.Repeat([]byte("\n"), maxHeadBytes+1), "too long")

	// A checksum that is right proves no more than the bytes: the form is checked, too.
	resum := func(s string) []byte { return fmt.Appendf(nil, "%s"+headCRC, s, checksum.Update(0, []byte(s))) }
	fields, _, _ := strings.Cut(string(whole), "crc")
	for _, change := range [][2]string{
		{"highest 2", "highest 02"}, {"highest 2", "highest -2"}, {"highest 2", "highest 4294967296"}, {"queue 30", "queue "},
		{"sealed 1\n", ""}, {"time ", "more 1\ntime "}, {"chain 1e", "chain 1E"}, {"version 0", "version x"}, {"footer a1", "footer a1a1"},
	} {
		refuse(resum(strings.Replace(fields, change[0], change[1], 1)), fmt.Sprint(change))
	}
	refuse(resum(""), "a checksum alone")
	newer := resum(strings.Replace(fields, "version 0", "version 1", 1) + "another field\n")
	_, err := ReadHead(memWith(t, map[string][]byte{HeadName: newer}), queueDir)
	require.ErrorIs(t, err, ErrNewerVersion)
	require.NotErrorIs(t, err, ErrCorrupt)
}
