package wire

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// oneOfEach is the frames of a conversation, one of each type.
func oneOfEach() [][]byte {
	return [][]byte{
		AppendHello(nil, Hello{
			Version: 0, OldestVersion: 0, Features: 0x8000000000000001, MaxLanes: 1024,
			MaxRequest: 17 << 20, MaxResponse: 1, MaxStreams: 3, Name: "host/program", Token: "s3cret",
		}),
		AppendSlot(nil, TypeLease, 3, NoSlot),
		AppendSlot(nil, TypeGrant, 3, 0),
		AppendSlot(nil, TypeDeny, 65535, 7),
		AppendRelease(nil, 3),
		AppendRequest(nil, 3, Request{Sequence: 1, Total: 5, Budget: time.Second}, "Get", []byte("docu")),
		AppendData(nil, 3, 1, []byte("m")),
		AppendCancel(nil, 3, 1),
		AppendResponse(nil, 3, FlagProcessed|FlagSlotLost, Response{Sequence: 1, Total: 2, Lowest: 4, Code: 5}, []byte("no")),
		AppendReason(nil, TypeGoAway, "closing time"),
		AppendPing(nil, TypePing, 1<<63),
		AppendPing(nil, TypePong, 1),
		AppendOpen(nil, 9, Open{Sequence: 1, Budget: time.Second}, "Watch", pair("who", "me")),
		AppendHeader(nil, 9, 1, pair("since", "")),
		AppendMessage(nil, 9, 1, FlagMore, []byte("a change")),
		AppendCredit(nil, 9, 1, 5),
		AppendSequence(nil, TypeEnd, 9, 1),
		AppendSequence(nil, TypeReset, 65535, 1),
		AppendStatus(nil, 9, FlagProcessed, Status{Sequence: 1, Code: 5, Message: "gone"}, pair("until", "then")),
		AppendReason(nil, TypeDrain, "to be upgraded"),
		AppendReason(nil, TypeUndrain, ""),
	}
}

// withMetadata is frames that may have some, and then do.
func withMetadata() [][]byte {
	r := Response{Sequence: 1, Total: 2, Lowest: 4}
	return [][]byte{
		AppendRequestWith(nil, 3, Request{Sequence: 1, Total: 5}, "Get", pair("k", "v"), []byte("docu")),
		AppendResponseWith(nil, 3, FlagProcessed, r, pair("k", "v"), nil, []byte("no")),
		AppendResponseWith(nil, 3, 0, r, nil, pair("k", "v"), []byte("n")),
		AppendResponseWith(nil, 3, FlagSlotLost, r, pair("k", "v"), AppendPair(pair("l", ""), "l", "w"), nil),
	}
}

func pair(key, value string) []byte { return AppendPair(nil, key, value) }

// again parses a frame and appends what it says.
func again(t testing.TB, frame []byte) []byte {
	f, n, err := ParseFrame(frame)
	require.NoError(t, err)
	require.Equal(t, len(frame), n)
	out, err := rewrite(f)
	require.NoError(t, err)
	return out
}

// rewrite parses a frame's payload by its type and appends the frame again.
func rewrite(f Frame) ([]byte, error) {
	switch f.Type {
	case TypeHello:
		h, err := f.Hello()
		return AppendHello(nil, h), err
	case TypeLease, TypeGrant, TypeDeny:
		slot, err := f.Slot()
		return AppendSlot(nil, f.Type, f.Lane, slot), err
	case TypeRelease:
		return AppendRelease(nil, f.Lane), nil
	case TypeRequest:
		r, method, data, err := f.Request()
		if err != nil {
			return nil, err
		}
		return AppendRequestWith(nil, f.Lane, r, string(method), f.RequestMetadata(), data), nil
	case TypeData:
		sequence, data, err := f.Data()
		return AppendData(nil, f.Lane, sequence, data), err
	case TypeCancel:
		sequence, err := f.Cancel()
		return AppendCancel(nil, f.Lane, sequence), err
	case TypeResponse:
		r, data, err := f.Response()
		if err != nil {
			return nil, err
		}
		header, trailer := f.ResponseMetadata()
		return AppendResponseWith(nil, f.Lane, f.Flags, r, header, trailer, data), nil
	case TypeGoAway, TypeDrain, TypeUndrain:
		reason, err := f.Reason()
		return AppendReason(nil, f.Type, reason), err
	case TypeOpen:
		o, method, metadata, err := f.Open()
		return AppendOpen(nil, f.Lane, o, string(method), metadata), err
	case TypeHeader:
		sequence, metadata, err := f.Header()
		return AppendHeader(nil, f.Lane, sequence, metadata), err
	case TypeMessage:
		sequence, data, err := f.Message()
		return AppendMessage(nil, f.Lane, sequence, f.Flags, data), err
	case TypeCredit:
		sequence, n, err := f.Credit()
		return AppendCredit(nil, f.Lane, sequence, n), err
	case TypeEnd, TypeReset:
		sequence, err := f.Sequence()
		return AppendSequence(nil, f.Type, f.Lane, sequence), err
	case TypeStatus:
		status, trailer, err := f.Status()
		return AppendStatus(nil, f.Lane, f.Flags, status, trailer), err
	}
	token, err := f.Ping()
	return AppendPing(nil, f.Type, token), err
}

func TestWhatIsAppendedIsParsed(t *testing.T) {
	for i, frame := range oneOfEach() {
		f, _, err := ParseFrame(frame)
		require.NoError(t, err)
		require.Equal(t, Type(i+1), f.Type)
		require.Equal(t, frame, again(t, frame), "%v", f.Type)
	}
	for _, frame := range withMetadata() {
		require.Equal(t, frame, again(t, frame))
	}
	f, _, _ := ParseFrame(oneOfEach()[5])
	r, method, data, err := f.Request()
	require.NoError(t, err)
	require.Equal(t, Request{Sequence: 1, Total: 5, Budget: time.Second}, r)
	require.Equal(t, "Get", string(method))
	require.Equal(t, "docu", string(data))
}

// The worked exchange of docs/format/boxcar.md, byte for byte.
func TestWorkedExchange(t *testing.T) {
	page, err := os.ReadFile("../../../docs/format/boxcar.md")
	require.NoError(t, err)
	_, exchange, ok := strings.Cut(string(page), "## A worked exchange")
	require.True(t, ok)
	var drawn []byte
	for _, line := range regexp.MustCompile(`(?m)^(?:[CS] |  ) ((?:[0-9a-f]{2,} )+)`).FindAllStringSubmatch(exchange, -1) {
		b, err := hex.DecodeString(strings.ReplaceAll(line[1], " ", ""))
		require.NoError(t, err)
		drawn = append(drawn, b...)
	}
	frames := [][]byte{
		AppendHello(nil, Hello{MaxResponse: 32 << 20, Name: "fe-1", Token: "s3cret"}),
		AppendHello(nil, Hello{MaxLanes: 1024, MaxRequest: 17 << 20, MaxStreams: 1024, Name: "be-7"}),
		AppendSlot(nil, TypeLease, 2, NoSlot),
		AppendSlot(nil, TypeGrant, 2, 4),
		AppendRequest(nil, 2, Request{Sequence: 1, Total: 4, Budget: 250 * time.Millisecond}, "Get", []byte("id-7")),
		AppendResponse(nil, 2, FlagProcessed, Response{Sequence: 1, Total: 3, Lowest: 5, Code: 0}, []byte("doc")),
		AppendRelease(nil, 2),
		AppendOpen(nil, 0, Open{Sequence: 1}, "Tail", pair("k", "v")),
		AppendMessage(nil, 0, 1, 0, []byte("x")),
		AppendSequence(nil, TypeEnd, 0, 1),
		AppendHeader(nil, 0, 1, nil),
		AppendMessage(nil, 0, 1, 0, []byte("y")),
		AppendStatus(nil, 0, FlagProcessed, Status{Sequence: 1}, nil),
	}
	require.Equal(t, hex.EncodeToString(bytes.Join(frames, nil)), hex.EncodeToString(drawn))
}

func TestEveryByteFlippedIsFound(t *testing.T) {
	for _, frame := range append(oneOfEach(), withMetadata()...) {
		for i := range frame {
			for bit := range 8 {
				bad := bytes.Clone(frame)
				bad[i] ^= 1 << bit
				f, n, err := ParseFrame(bad)
				require.False(t, err == nil && n > 0, "byte %d bit %d of %v goes unnoticed", i, bit, f.Type)
				if err != nil {
					require.ErrorIs(t, err, ErrMalformed)
				} else {
					require.True(t, i >= 4 && i < 8, "only a wrong length may ask for more")
				}
			}
		}
	}
}

func TestEveryTruncationNeedsMore(t *testing.T) {
	for _, frame := range append(oneOfEach(), withMetadata()...) {
		for n := range frame {
			_, taken, err := ParseFrame(frame[:n])
			require.NoError(t, err)
			require.Zero(t, taken)
		}
	}
}

// sealed makes a frame of a payload that no Append function makes.
func sealed(t Type, flags uint8, lane uint32, payload string) []byte {
	frame, start := begin(nil, t, flags, lane)
	return seal(append(frame, payload...), start)
}

func TestMalformedFrames(t *testing.T) {
	for name, frame := range map[string][]byte{
		"type 0":               sealed(0, 0, 0, ""),
		"unknown type":         sealed(TypeUndrain+1, 0, 0, ""),
		"unknown flag":         sealed(TypeResponse, 8, 0, strings.Repeat("\x00", 16)),
		"flag without meaning": sealed(TypeData, 1, 0, "1234"),
		"lane too high":        sealed(TypeRelease, 0, MaxLanes, ""),
		"lane of a PING":       sealed(TypePing, 0, 1, "12345678"),
		"too long":             sealed(TypeData, 0, 0, strings.Repeat("x", MaxPayload+1)),
		"http":                 []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"tls":                  {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 9, 9, 9, 9, 9, 9},
		"reserved":             func() []byte { f := sealed(TypeRelease, 0, 0, ""); f[14] = 1; return f }(),
	} {
		_, _, err := ParseFrame(frame)
		require.ErrorIs(t, err, ErrMalformed, name)
	}
}

func TestMalformedPayloads(t *testing.T) {
	hello := AppendHello(nil, Hello{Name: "abc"})[HeaderSize:]
	token := AppendHello(nil, Hello{Token: "abc"})[HeaderSize:]
	long := AppendHello(nil, Hello{Token: strings.Repeat("x", MaxTokenBytes+1)})[HeaderSize:]
	for name, frame := range map[string][]byte{
		"HELLO, short":             sealed(TypeHello, 0, 0, string(hello[:helloSize-1])),
		"HELLO, cut name":          sealed(TypeHello, 0, 0, string(hello[:len(hello)-1])),
		"HELLO, cut token":         sealed(TypeHello, 0, 0, string(token[:len(token)-1])),
		"HELLO, long token":        sealed(TypeHello, 0, 0, string(long)),
		"HELLO, magic":             sealed(TypeHello, 0, 0, "BOXC"+string(hello[4:])),
		"LEASE, short":             sealed(TypeLease, 0, 0, "123"),
		"LEASE, long":              sealed(TypeLease, 0, 0, "\x00\x00\x00\x00\x00"),
		"GRANT, slot too high":     sealed(TypeGrant, 0, 0, "\x00\x00\x00\x01"),
		"REQUEST, short":           sealed(TypeRequest, 0, 0, strings.Repeat("\x00", requestSize-1)),
		"REQUEST, method too big":  sealed(TypeRequest, 0, 0, strings.Repeat("\x00", requestSize-2)+"\x01\x04"+strings.Repeat("m", 2000)),
		"REQUEST, method cut":      sealed(TypeRequest, 0, 0, strings.Repeat("\x00", requestSize-2)+"\x04\x00abc"),
		"REQUEST, data over":       sealed(TypeRequest, 0, 0, strings.Repeat("\x00", requestSize)+"x"),
		"REQUEST, negative":        sealed(TypeRequest, 0, 0, strings.Repeat("\x00", 8)+strings.Repeat("\xff", 8)+"\x00\x00"),
		"REQUEST, metadata short":  sealed(TypeRequest, FlagMetadata, 0, strings.Repeat("\x00", requestSize)+"\x01"),
		"REQUEST, metadata cut":    sealed(TypeRequest, FlagMetadata, 0, strings.Repeat("\x00", requestSize)+"\x04\x00\x01k\x01"),
		"REQUEST, no metadata":     sealed(TypeRequest, FlagMetadata, 0, strings.Repeat("\x00", requestSize)+"\x00\x00"),
		"REQUEST, metadata long":   sealed(TypeRequest, FlagMetadata, 0, strings.Repeat("\x00", requestSize)+"\x01\x40\x01k\xfb\x7f"+strings.Repeat("v", 0x3ffb)+"..."),
		"REQUEST, no key":          sealed(TypeRequest, FlagMetadata, 0, strings.Repeat("\x00", requestSize)+"\x02\x00\x00\x00"),
		"REQUEST, half a pair":     sealed(TypeRequest, FlagMetadata, 0, strings.Repeat("\x00", requestSize)+"\x02\x00\x01k"),
		"REQUEST, long value":      sealed(TypeRequest, FlagMetadata, 0, strings.Repeat("\x00", requestSize)+"\x04\x00\x01k\x02v"),
		"REQUEST, huge value":      sealed(TypeRequest, FlagMetadata, 0, strings.Repeat("\x00", requestSize)+"\x0c\x00\x01k"+strings.Repeat("\xff", 9)+"\x01"),
		"DATA, short":              sealed(TypeData, 0, 0, "123"),
		"CANCEL, long":             sealed(TypeCancel, 0, 0, "12345"),
		"RESPONSE, short":          sealed(TypeResponse, 0, 0, strings.Repeat("\x00", 15)),
		"RESPONSE, slot too high":  sealed(TypeResponse, 0, 0, strings.Repeat("\xff", 16)),
		"RESPONSE, data over":      sealed(TypeResponse, 0, 0, strings.Repeat("\x00", 17)),
		"RESPONSE, metadata short": sealed(TypeResponse, FlagMetadata, 0, strings.Repeat("\x00", responseSize)+"\x00\x00\x00"),
		"RESPONSE, metadata cut":   sealed(TypeResponse, FlagMetadata, 0, strings.Repeat("\x00", responseSize)+"\x03\x00\x03\x00\x01k\x00\x01k"),
		"RESPONSE, no metadata":    sealed(TypeResponse, FlagMetadata, 0, strings.Repeat("\x00", responseSize)+"\x00\x00\x00\x00"),
		"RESPONSE, metadata long":  sealed(TypeResponse, FlagMetadata, 0, strings.Repeat("\x00", responseSize)+"\x00\x20\x01\x20"+strings.Repeat("v", 16385)),
		"RESPONSE, bad header":     sealed(TypeResponse, FlagMetadata, 0, strings.Repeat("\x00", responseSize)+"\x01\x00\x03\x00\x01\x01k\x00"),
		"RESPONSE, bad trailer":    sealed(TypeResponse, FlagMetadata, 0, strings.Repeat("\x00", responseSize)+"\x03\x00\x01\x00\x01k\x00\x01"),
		"GOAWAY, long":             sealed(TypeGoAway, 0, 0, strings.Repeat("x", 256)),
		"DRAIN, long":              sealed(TypeDrain, 0, 0, strings.Repeat("x", 256)),
		"PING, short":              sealed(TypePing, 0, 0, "1234567"),
		"OPEN, short":              sealed(TypeOpen, 0, 0, strings.Repeat("\x00", openSize-1)),
		"OPEN, method too big":     sealed(TypeOpen, 0, 0, strings.Repeat("\x00", openSize-2)+"\x01\x04"+strings.Repeat("m", 2000)),
		"OPEN, method cut":         sealed(TypeOpen, 0, 0, strings.Repeat("\x00", openSize-2)+"\x04\x00abc"),
		"OPEN, negative":           sealed(TypeOpen, 0, 0, "1234"+strings.Repeat("\xff", 8)+"\x00\x00"),
		"OPEN, metadata too long":  sealed(TypeOpen, 0, 0, strings.Repeat("\x00", openSize+MaxMetadataBytes+1)),
		"HEADER, short":            sealed(TypeHeader, 0, 0, "123"),
		"OPEN, bad metadata":       sealed(TypeOpen, 0, 0, strings.Repeat("\x00", openSize)+"\x03k=v"),
		"HEADER, bad metadata":     sealed(TypeHeader, 0, 0, "1234k=v"),
		"STATUS, bad metadata":     sealed(TypeStatus, 0, 0, strings.Repeat("\x00", statusSize)+"k=v"),
		"HEADER, long":             sealed(TypeHeader, 0, 0, strings.Repeat("x", 4+MaxMetadataBytes+1)),
		"MESSAGE, short":           sealed(TypeMessage, 0, 0, "123"),
		"CREDIT, long":             sealed(TypeCredit, 0, 0, "123456789"),
		"CREDIT, of nothing":       sealed(TypeCredit, 0, 0, "1234\x00\x00\x00\x00"),
		"CREDIT, over the window":  sealed(TypeCredit, 0, 0, "1234\x01\x00\x04\x00"),
		"END, short":               sealed(TypeEnd, 0, 0, "123"),
		"RESET, long":              sealed(TypeReset, 0, 0, "12345"),
		"STATUS, short":            sealed(TypeStatus, 0, 0, strings.Repeat("\x00", statusSize-1)),
		"STATUS, message cut":      sealed(TypeStatus, 0, 0, strings.Repeat("\x00", statusSize-2)+"\x04\x00abc"),
		"STATUS, message too big":  sealed(TypeStatus, 0, 0, strings.Repeat("\x00", statusSize-2)+"\x01\x10"+strings.Repeat("m", 9000)),
		"STATUS, trailer too big":  sealed(TypeStatus, 0, 0, strings.Repeat("\x00", statusSize+MaxMetadataBytes+1)),
	} {
		f, n, err := ParseFrame(frame)
		require.NoError(t, err, name)
		require.Equal(t, len(frame), n)
		_, err = rewrite(f)
		require.ErrorIs(t, err, ErrMalformed, name)
	}
}

func TestANewerHelloIsUnderstood(t *testing.T) {
	want := Hello{Version: 9, OldestVersion: 0, Name: "newer", Token: "key"}
	f, _, err := ParseFrame(sealed(TypeHello, 0, 0, string(AppendHello(nil, want)[HeaderSize:])+"what comes later"))
	require.NoError(t, err)
	got, err := f.Hello()
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestNames(t *testing.T) {
	require.Equal(t, "RESPONSE", TypeResponse.String())
	require.Equal(t, "type 99", Type(99).String())
}

// FuzzParseFrame: whatever is parsed and read is what its fields, appended
// again, give, and the parser takes the same from any split of the bytes.
func FuzzParseFrame(f *testing.F) {
	var all []byte
	for _, frame := range append(oneOfEach(), withMetadata()...) {
		f.Add(frame, uint64(1))
		all = append(all, frame...)
	}
	f.Add(all, uint64(2))
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		f, n, err := ParseFrame(b)
		switch {
		case err != nil:
			require.ErrorIs(t, err, ErrMalformed)
			require.Zero(t, n)
			return
		case n == 0:
			return
		}
		require.LessOrEqual(t, n, min(len(b), MaxFrame))
		if out, err := rewrite(f); err == nil && f.Type != TypeHello { // a HELLO may end with a newer version's fields
			require.Equal(t, b[:n], out)
		}
		rng := rand.New(rand.NewPCG(seed, seed))
		cut := rng.IntN(n)
		_, taken, err := ParseFrame(b[:cut])
		require.NoError(t, err)
		require.Zero(t, taken)
	})
}

func TestCut(t *testing.T) {
	for _, test := range []struct {
		text  string
		limit int
		want  string
	}{
		{"", 0, ""}, {"abc", 3, "abc"}, {"abc", 2, "ab"}, {"abc", 0, ""},
		{"aäb", 2, "a"}, {"aäb", 3, "aä"}, {"a😀", 4, "a"}, {"a😀", 5, "a😀"}, {"😀", 3, ""},
		{"\x80\x80\x80\x80\x80\x80", 5, "\x80\x80\x80\x80\x80"},
	} {
		require.Equal(t, test.want, Cut(test.text, test.limit), "%q", test.text)
	}
}
