package discovery

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
)

// nameServer is a DNS server on the loopback address that answers every query with the
// same records.
type nameServer struct {
	conn net.PacketConn
	mu   struct {
		sync.Mutex
		answers []dnsmessage.Resource
		failing bool
		broken  dnsmessage.Type // queries of this type fail
	}
	refused chan struct{} // receives a value for each failed query
	done    sync.WaitGroup
}

func newNameServer(t *testing.T) *nameServer {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &nameServer{conn: conn, refused: make(chan struct{}, 1)}
	s.done.Go(s.serve)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		s.done.Wait()
	})
	return s
}

func (s *nameServer) serve() {
	buffer := make([]byte, 512)
	for {
		n, from, err := s.conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buffer[:n]) != nil {
			continue
		}
		answer, err := s.answer(m).Pack()
		if err != nil {
			panic(err)
		}
		_, _ = s.conn.WriteTo(answer, from) // the client repeats a query whose answer is lost
	}
}

func (s *nameServer) answer(m dnsmessage.Message) *dnsmessage.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	if s.mu.failing {
		m.RCode = dnsmessage.RCodeNameError
		return &m
	}
	if s.mu.broken == m.Questions[0].Type {
		m.RCode = dnsmessage.RCodeServerFailure
		select {
		case s.refused <- struct{}{}:
		default:
		}
		return &m
	}
	for _, answer := range s.mu.answers {
		if answer.Header.Type = recordType(answer.Body); answer.Header.Type == m.Questions[0].Type {
			answer.Header.Name, answer.Header.Class = m.Questions[0].Name, dnsmessage.ClassINET
			m.Answers = append(m.Answers, answer)
		}
	}
	return &m
}

func recordType(body dnsmessage.ResourceBody) dnsmessage.Type {
	switch body.(type) {
	case *dnsmessage.AResource:
		return dnsmessage.TypeA
	case *dnsmessage.AAAAResource:
		return dnsmessage.TypeAAAA
	case *dnsmessage.TXTResource:
		return dnsmessage.TypeTXT
	}
	return dnsmessage.TypeSRV
}

func (s *nameServer) set(failing bool, answers ...dnsmessage.ResourceBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.failing, s.mu.answers = failing, nil
	for _, body := range answers {
		s.mu.answers = append(s.mu.answers, dnsmessage.Resource{Body: body})
	}
}

func (s *nameServer) breakFor(question dnsmessage.Type) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.broken = question
}

func (s *nameServer) options() *DNSOptions { return optionsFor(s.conn.LocalAddr().String()) }

// optionsFor returns the default options with another server and a short interval.
func optionsFor(server string) *DNSOptions {
	return &DNSOptions{Interval: time.Millisecond, Resolver: &net.Resolver{
		PreferGo: true, StrictErrors: strictResolver.StrictErrors,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, server)
		},
	}}
}

func a(last byte) dnsmessage.ResourceBody { return &dnsmessage.AResource{A: [4]byte{10, 0, 0, last}} }

func srv(target string, port, priority, weight uint16) dnsmessage.ResourceBody {
	return &dnsmessage.SRVResource{Target: dnsmessage.MustNewName(target), Port: port, Priority: priority, Weight: weight}
}

// watching is a watched source.
type watching struct {
	*testing.T
	updates chan Snapshot
}

func watchDNS(t *testing.T, s Source) *watching {
	ctx, cancel := context.WithCancel(t.Context())
	w := &watching{t, make(chan Snapshot)}
	ended := make(chan error)
	go func() {
		ended <- s.Watch(ctx, func(s Snapshot) {
			select {
			case w.updates <- s:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
	return w
}

func (w *watching) expect(numbers int, servers ...Server) {
	w.Helper()
	require.Equal(w, Snapshot{Servers: servers, Numbers: numbers, Self: -1}, <-w.updates)
}

func TestDNS(t *testing.T) {
	names := newNameServer(t)
	names.set(false, a(3), a(1))
	w := watchDNS(t, DNS("search.example.com:7070", names.options()))
	one, three := Server{0, "10.0.0.1:7070", 0, ""}, Server{1, "10.0.0.3:7070", 0, ""}
	w.expect(2, one, three)

	names.set(false, a(3), a(2), a(4))
	w.expect(3, Server{0, "10.0.0.2:7070", 0, ""}, three, Server{2, "10.0.0.4:7070", 0, ""}) // remaining servers keep their numbers
	names.set(true)
	names.set(false)
	names.set(false, a(3))
	w.expect(2, three) // the failure and the empty answer were not reported
}

// A failure of one of the two queries must not remove servers from the set.
func TestDNSThatAnswersOneOfTwoQuestions(t *testing.T) {
	require.Equal(t, strictResolver, newDNS(nil, nil).(dns).resolver)
	names := newNameServer(t)
	names.set(false, a(1), &dnsmessage.AAAAResource{AAAA: [16]byte{0xfd, 15: 1}})
	w := watchDNS(t, DNS("search.example.com:7070", names.options()))
	one, two, six := Server{0, "10.0.0.1:7070", 0, ""}, Server{2, "10.0.0.2:7070", 0, ""}, Server{1, "[fd00::1]:7070", 0, ""}
	w.expect(2, one, six)
	names.breakFor(dnsmessage.TypeAAAA)
	for range 5 { // attempts of at least two queries
		<-names.refused
	}
	names.set(false, a(1), a(2), &dnsmessage.AAAAResource{AAAA: [16]byte{0xfd, 15: 1}})
	names.breakFor(0)
	w.expect(3, one, two, six)
}

func TestSRV(t *testing.T) {
	names := newNameServer(t)
	names.set(false, srv("be-1.search.", 7071, 0, 5), srv("be-0.search.", 7070, 0, 1), srv("spare-9.search.", 7070, 1, 1))
	w := watchDNS(t, SRV("_boxcar._tcp.search.example.com.", names.options()))
	w.expect(2, Server{0, "be-0.search:7070", 1, ""}, Server{1, "be-1.search:7071", 5, ""})
	names.set(false, srv("be-1.search.", 7071, 0, 5), srv("be-7.search.", 7070, 0, 0))
	w.expect(8, Server{1, "be-1.search:7071", 5, ""}, Server{7, "be-7.search:7070", 0, ""})
	// Records that differ only in weight are one server with the larger weight.
	names.set(false, srv("be-1.search.", 7071, 0, 5), srv("be-1.search.", 7071, 0, 6))
	w.expect(2, Server{1, "be-1.search:7071", 6, ""})
	// Two ports of one host, or a name without a number: no ordinals are used.
	names.set(false, srv("be-1.search.", 7071, 0, 5), srv("be-1.search.", 7072, 0, 5))
	w.expect(2, Server{1, "be-1.search:7071", 5, ""}, Server{0, "be-1.search:7072", 5, ""})
	names.set(false, srv("be-1.search.", 7071, 0, 5), srv("search.", 7072, 0, 5))
	w.expect(2, Server{1, "be-1.search:7071", 5, ""}, Server{0, "search:7072", 5, ""})
}

func txt(text string) dnsmessage.ResourceBody { return &dnsmessage.TXTResource{TXT: []string{text}} }

// TXT records of the service give zones. Without an answer about them those of the last answer
// remain, and the servers are found also if there never was one.
func TestSRVZones(t *testing.T) {
	names := newNameServer(t)
	be0, be1 := srv("be-0.search.", 7070, 0, 1), srv("be-1.search.", 7070, 0, 1)
	names.set(false, be0, be1, txt("v=spf1 -all"), txt("BE-0.search. zone=eu-1a"), txt("be-1.search zone=no/zone"), txt("be-2.search zone=eu-1b"))
	w := watchDNS(t, SRV("_boxcar._tcp.search.example.com.", names.options()))
	w.expect(2, Server{0, "be-0.search:7070", 1, "eu-1a"}, Server{1, "be-1.search:7070", 1, ""})
	names.breakFor(dnsmessage.TypeTXT)
	names.set(false, be0)
	w.expect(1, Server{0, "be-0.search:7070", 1, "eu-1a"})
	never := watchDNS(t, SRV("_boxcar._tcp.search.example.com.", names.options()))
	never.expect(1, Server{0, "be-0.search:7070", 1, ""})
	names.set(false, be0, be1, txt("be-0.search zone=eu-1a"), txt("be-1.search zone=eu-1b"))
	names.breakFor(0)
	w.expect(2, Server{0, "be-0.search:7070", 1, "eu-1a"}, Server{1, "be-1.search:7070", 1, "eu-1b"})
}

func TestDNSThatNeverWorked(t *testing.T) {
	names := newNameServer(t)
	names.set(true)
	require.ErrorContains(t, DNS("search.example.com:7070", names.options()).Watch(t.Context(), nil), "no such host")
	require.ErrorContains(t, SRV("_boxcar._tcp.search.example.com.", names.options()).Watch(t.Context(), nil), "no such host")
	require.ErrorContains(t, DNS("search.example.com", nil).Watch(t.Context(), nil), "missing port")
}

func TestOrdinal(t *testing.T) {
	for host, want := range map[string]int{"be-7": 7, "be-007.search.svc": 7, "a-b-12.x-3": 12, "be-1048575": MaxNumber} {
		got, ok := Ordinal(host)
		require.True(t, ok, host)
		require.Equal(t, want, got)
	}
	for _, host := range []string{"", "be", "-7", "be-", "be-x", "be-+7", "be--7x", "be.search-7", "be-2147483647", "7"} {
		_, ok := Ordinal(host)
		require.False(t, ok, host)
	}
}

func TestWithSelf(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	require.ErrorIs(t, WithSelf(Static("a:1"), 3, 10).Watch(ctx, func(s Snapshot) {
		require.Equal(t, Snapshot{Servers: []Server{{0, "a:1", 0, ""}}, Numbers: 1, Self: 3, Frontends: 10}, s)
		cancel()
	}), context.Canceled)
}

// A date at the end of host names is rejected as a number.
func TestAnSRVRecordWithANumberThatIsTooHigh(t *testing.T) {
	names := newNameServer(t)
	source := SRV("_boxcar._tcp.search.example.com.", names.options())
	names.set(false, srv("be-0.search.", 7070, 0, 1), srv("node-20251121.search.", 7071, 0, 1))
	var tooHigh *NumberError
	require.ErrorAs(t, source.Watch(t.Context(), func(Snapshot) { t.Error("a snapshot") }), &tooHigh)
	require.Equal(t, &NumberError{
		Source: "SRV record of _boxcar._tcp.search.example.com. for node-20251121.search:7071", Number: 20251121, Limit: MaxNumber + 1,
	}, tooHigh)

	names.set(false, srv("be-0.search.", 7070, 0, 1))
	err := source.Watch(t.Context(), func(s Snapshot) {
		require.Equal(t, 1, s.Numbers)
		names.set(false, srv("be-0.search.", 7070, 0, 1), srv("node-20251121.search.", 7071, 0, 1))
	})
	require.ErrorAs(t, err, &tooHigh, "also after a good answer")

	names.set(false, srv("other.search.", 7070, 0, 1), srv("node-20251121.search.", 7071, 0, 1))
	watchDNS(t, source).expect(2, Server{0, "node-20251121.search:7071", 1, ""}, Server{1, "other.search:7070", 1, ""})
}
