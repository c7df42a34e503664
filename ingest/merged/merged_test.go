package merged

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/ingest"
	"docstore/internal/testseed"
	"docstore/internal/virtualtime"
	"docstore/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counter is a source of the numbers up to its value; its cursors are the numbers.
type counter struct {
	upTo    int
	padding string // of the cursors
	failure error  // behind the last number; nil: io.EOF
	waits   bool   // for ever behind the last number
}

func number(cursor []byte) int {
	n, _ := strconv.Atoi(strings.TrimRight(string(cursor), "x"))
	return n
}

func (c counter) Open(_ context.Context, cursor []byte) (ingest.Source, error) {
	if c.upTo < 0 {
		return nil, errors.New("not here")
	}
	return &counting{counter: c, at: number(cursor)}, nil
}

func (c counter) Position(cursor []byte) (ingest.Position, error) { return number(cursor), nil }

func (c counter) Ends() bool { return !c.waits }

func (c counter) Earliest(cursors [][]byte) ([]byte, error) {
	first := cursors[0]
	for _, d := range cursors {
		if number(d) < number(first) {
			first = d
		}
	}
	return first, nil
}

type counting struct {
	counter
	at      int
	durable int
}

func (c *counting) Next(ctx context.Context) (*ingest.Batch, error) {
	if c.at == c.upTo {
		if c.waits {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		if c.failure != nil {
			return nil, c.failure
		}
		return nil, io.EOF
	}
	first := c.at + 1
	b := &ingest.Batch{
		AppendCursor: func(dst []byte, i int) []byte { return append(fmt.Append(dst, first+i), c.padding...) },
		Included:     func(p ingest.Position, i int) bool { return first+i <= p.(int) },
		Place:        func(i int) string { return fmt.Sprint(first + i) },
		Ends:         !c.waits,
	}
	for len(b.Records) < 3 && c.at < c.upTo {
		c.at++
		b.Records = append(b.Records, ingest.Record{ID: fmt.Append(nil, c.at)})
	}
	return b, nil
}

func (c *counting) Durable(cursor []byte) { c.durable = number(cursor) }
func (c *counting) Lag() (int64, string)  { return int64(c.upTo - c.at), "numbers" }
func (c *counting) Close() error          { return nil }

// TestResumes stops at random records; each source's records arrive once and in order.
func TestResumes(t *testing.T) {
	random := testseed.Rand(t)
	for range 50 {
		sources := []Named{{Name: "a", Opener: counter{upTo: random.IntN(20)}}, {Name: "b", Opener: counter{upTo: random.IntN(20)}}, {Name: "c", Opener: counter{upTo: random.IntN(20)}}}
		o, err := New(sources, nil)
		require.NoError(t, err)
		next := map[string]int{}
		var cursor []byte
		for ended := false; !ended; {
			at, err := o.Position(cursor)
			require.NoError(t, err)
			s, err := o.Open(t.Context(), cursor)
			require.NoError(t, err)
			for stop := random.IntN(15); stop > 0 && !ended; {
				b, err := s.Next(t.Context())
				if ended = errors.Is(err, io.EOF); ended {
					break
				}
				require.NoError(t, err)
				require.True(t, b.Ends)
				for i, r := range b.Records {
					if stop--; stop < 0 {
						break
					}
					require.False(t, b.Included(at, i))
					name, place, _ := strings.Cut(b.Place(i), ": ")
					next[name]++
					require.Equal(t, fmt.Sprint(next[name]), place)
					require.Equal(t, place, string(r.ID))
					cursor = b.AppendCursor(nil, i)
					now, err := o.Position(cursor)
					require.NoError(t, err)
					require.True(t, b.Included(now, i))
				}
			}
			require.NoError(t, s.Close())
		}
		for _, named := range sources {
			require.Equal(t, named.Opener.(counter).upTo, next[named.Name])
		}
	}
}

func TestCombineIsThatOfEachSource(t *testing.T) {
	o, err := New([]Named{{Name: "a", Opener: counter{}}, {Name: "b", Opener: counter{}}}, nil)
	require.NoError(t, err)
	cursor := func(a, b string) []byte { return o.encode([][]byte{[]byte(a), []byte(b)}) }
	for _, test := range []struct {
		a, b, want []byte
		within     bool
	}{
		{cursor("1", "5"), cursor("2", "4"), cursor("2", "5"), false},
		{cursor("2", "5"), cursor("2", "4"), cursor("2", "5"), true},
		{cursor("2", ""), cursor("", "4"), cursor("2", "4"), false},
		{cursor("2", "4"), nil, cursor("2", "4"), true},
		{nil, cursor("2", "4"), cursor("2", "4"), false},
	} {
		got, within, err := o.Combine(test.a, test.b)
		require.NoError(t, err)
		require.Equal(t, string(test.want), string(got))
		require.Equal(t, test.within, within)
	}
	_, _, err = o.Combine(cursor("1", "1"), []byte("x"))
	require.ErrorContains(t, err, "not that of several sources")
}

func TestEarliestIsThatOfEachSource(t *testing.T) {
	o, err := New([]Named{{Name: "a", Opener: counter{}}, {Name: "b", Opener: counter{}}}, []string{"old"})
	require.NoError(t, err)
	cursor := func(a, b string) []byte { return o.encode([][]byte{[]byte(a), []byte(b)}) }
	for _, test := range []struct{ one, other, want []byte }{
		{cursor("1", "5"), cursor("2", "4"), cursor("1", "4")},
		{cursor("1", ""), cursor("2", "4"), cursor("1", "")},
		{nil, cursor("2", "4"), cursor("", "")},
	} {
		got, err := o.Earliest([][]byte{test.one, test.other})
		require.NoError(t, err)
		require.Equal(t, string(test.want), string(got))
	}
	p, err := o.Position(cursor("3", ""))
	require.NoError(t, err)
	require.Equal(t, "a: 3", fmt.Sprint(p))
}

func TestErrors(t *testing.T) {
	for _, test := range []struct {
		sources []Named
		removed []string
		want    string
	}{
		{nil, nil, "want 1 to 64 sources, not 0"},
		{[]Named{{Opener: counter{}}}, nil, "has 1 to 64 bytes, not 0"},
		{[]Named{{Name: strings.Repeat("x", 65), Opener: counter{}}}, nil, "has 1 to 64 bytes, not 65"},
		{[]Named{{Name: "a", Opener: counter{}}, {Name: "a", Opener: counter{}}}, nil, `two sources have the name "a"`},
		{[]Named{{Name: "a", Opener: counter{}}}, []string{"a"}, `source "a" is among the removed sources`},
	} {
		_, err := New(test.sources, test.removed)
		require.ErrorContains(t, err, test.want)
	}
	o, err := New([]Named{{Name: "a", Opener: counter{upTo: 1}}, {Name: "b", Opener: counter{upTo: -1}}}, []string{"old"})
	require.NoError(t, err)
	_, err = o.Open(t.Context(), nil)
	require.EqualError(t, err, "source b: not here")
	for cursor, want := range map[string]string{
		"DSUC\x00":                     "is not that of several sources",
		"DSUM":                         "is damaged",
		"DSUM\x01":                     "of version 1, newer than this program",
		"DSUM\x00\x01":                 "is damaged",
		"DSUM\x00\x01a":                "is damaged",
		"DSUM\x00\x01a\x00":            "is damaged",
		"DSUM\x00\x01a\x011\x01a\x012": "is damaged",
		"DSUM\x00\x01z\x011":           `the queue has records of a source "z", which is not among the sources: restore its entry, or list it under "removed"`,
		"DSUM\x00\x03old\x011":         "",
	} {
		_, err := o.Position([]byte(cursor))
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

func TestAFailureIsFinal(t *testing.T) {
	for _, failure := range []error{errors.New("broken"), fmt.Errorf("broken: %w", io.EOF)} { // not the end
		o, err := New([]Named{{Name: "a", Opener: counter{waits: true}}, {Name: "b", Opener: counter{failure: failure}}}, nil)
		require.NoError(t, err)
		require.False(t, o.Ends())
		s, err := o.Open(t.Context(), nil)
		require.NoError(t, err)
		for range 2 {
			_, err = s.Next(t.Context())
			require.EqualError(t, err, "source b: "+failure.Error())
		}
		require.NoError(t, s.Close())
	}
}

// TestUnreadRecordsOfASource: the other sources are read to their ends, then the error follows.
func TestUnreadRecordsOfASource(t *testing.T) {
	unread := fmt.Errorf("%w: one was added", ingest.ErrUnread)
	o, err := New([]Named{{Name: "a", Opener: counter{upTo: 2, failure: unread}}, {Name: "b", Opener: counter{upTo: 500}}}, nil)
	require.NoError(t, err)
	s, err := o.Open(t.Context(), nil)
	require.NoError(t, err)
	defer s.Close()
	records := 0
	for {
		b, err := s.Next(t.Context())
		if err != nil {
			require.ErrorIs(t, err, ingest.ErrUnread)
			require.EqualError(t, err, "source a: not all records were read: one was added")
			break
		}
		records += len(b.Records)
	}
	require.Equal(t, 502, records)
}

func TestEndlessSources(t *testing.T) {
	o, err := New([]Named{{Name: "a", Opener: counter{waits: true}}, {Name: "b", Opener: counter{upTo: 1}}}, nil)
	require.NoError(t, err)
	s, err := o.Open(t.Context(), nil)
	require.NoError(t, err)
	b, err := s.Next(t.Context())
	require.NoError(t, err)
	require.False(t, b.Ends, "the other one may never end")
	s.Durable(b.AppendCursor(nil, 0))
	require.Equal(t, 1, s.(*Source).sources[1].(*counting).durable)
	n, unit := s.Lag()
	require.Equal(t, "numbers", unit)
	require.Zero(t, n)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Next(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, s.Close())
}

func TestCursorsOfAllSourcesAreBounded(t *testing.T) {
	padding := strings.Repeat("x", queue.MaxCursorBytes/2)
	o, err := New([]Named{{Name: "a", Opener: counter{upTo: 1, padding: padding}}, {Name: "b", Opener: counter{upTo: 1, padding: padding}}}, nil)
	require.NoError(t, err)
	s, err := o.Open(t.Context(), nil)
	require.NoError(t, err)
	_, err = s.Next(t.Context())
	require.NoError(t, err)
	_, err = s.Next(t.Context())
	require.ErrorContains(t, err, "the cursors of the 2 sources have 4")
	require.NoError(t, s.Close())
}

func FuzzPosition(f *testing.F) {
	o, err := New([]Named{{Name: "a", Opener: counter{}}, {Name: "b", Opener: counter{}}}, nil)
	require.NoError(f, err)
	f.Add(o.encode([][]byte{[]byte("1"), []byte("2")}))
	f.Fuzz(func(t *testing.T, cursor []byte) {
		cursors, err := o.parse(cursor)
		if err != nil || len(cursor) == 0 {
			return
		}
		again, err := o.parse(o.encode(cursors))
		require.NoError(t, err)
		require.Equal(t, cursors, again)
	})
}

// TestRate: a source with a rate is read no faster, and does not slow down the other one.
func TestRate(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		o, err := New([]Named{{Name: "slow", Opener: counter{upTo: 5}, Rate: 2}, {Name: "fast", Opener: counter{upTo: 5}}}, nil)
		require.NoError(t, err)
		s, err := o.Open(t.Context(), nil)
		require.NoError(t, err)
		begun, records, ends := time.Now(), [2]int{}, [2]time.Duration{}
		for {
			b, err := s.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			records[b.Source] += len(b.Records)
			ends[b.Source] = time.Since(begun)
		}
		require.Equal(t, [2]int{5, 5}, records)
		require.Equal(t, [2]time.Duration{1500 * time.Millisecond, 0}, ends)
		require.Equal(t, []NamedLag{{"slow", 0, "numbers"}, {"fast", 0, "numbers"}}, s.(*Source).Lags())
		require.NoError(t, s.Close())
	})
}
