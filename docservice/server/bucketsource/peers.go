package bucketsource

import (
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"docstore/boxcarrpc"
	"docstore/docservice/peers"
	"docstore/docservice/server/internal/metric"
)

// limiterOf returns a limiter of bytes per second, nil for no limit. Its burst is at least a
// message of a peer.
func limiterOf(bytes int64) *rate.Limiter {
	if bytes == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(bytes), max(int(bytes/8), peers.MessageBytes))
}

// servePeers sends the files of followers to the other servers.
func (s *Source) servePeers(o *boxcarrpc.ServerOptions) {
	transfers := s.options.PeerTransfers
	if transfers == 0 {
		transfers = -1
	}
	s.files = peers.NewServer(func(collection string) (string, bool) {
		f := s.follower(collection)
		if f == nil {
			return "", false
		}
		return f.FilesDir(), true
	}, &peers.ServerOptions{MaxTransfers: transfers, Rate: limiterOf(s.options.PeerRate), Authorize: s.Authorize, FS: s.Options().Host.FS})
	o.Zone = s.options.Zone
	o.StreamHandler = s.files.Handle
	// A stream holds memory until it is refused.
	o.MaxStreams = peerStreams + 2*max(transfers, 0)
}

// peerStreams is the number of streams that may be refused at the same time.
const peerStreams = 64

// openPeers starts to watch the other servers, if there are any.
func (s *Source) openPeers() error {
	if s.options.Peers == nil {
		return nil
	}
	self, err := s.AdvertisedAddress(s.options.Advertise)
	if err != nil {
		return err
	}
	s.peers = peers.NewClient(s.options.Peers, &peers.ClientOptions{Pool: s.pool(), Self: self})
	return nil
}

// pool returns the options of connections to other servers of the same collections.
func (s *Source) pool() boxcarrpc.PoolOptions {
	pool := s.options.Pool
	pool.Logger, pool.Zone = s.Logger(), s.options.Zone
	return pool
}

var (
	peersKnown    = metric.Gauge("peers", "Known servers of --peers.")
	peerDamaged   = metric.Counter("peer_damaged_files_total", "Files with wrong bytes that peers have sent; they are not used.")
	peerSentBytes = metric.Counter("peer_sent_bytes_total", "Bytes of files sent to peers.")
	peerRefused   = metric.Counter("peer_refused_total", "Requests of peers refused above --peer-transfers.")
)

// peerCollector collects the metrics of transfers between servers.
type peerCollector struct{ *Source }

func (c peerCollector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range []metric.Metric{peersKnown, peerDamaged, peerSentBytes, peerRefused} {
		to <- m.Desc
	}
}

func (c peerCollector) Collect(to chan<- prometheus.Metric) {
	sent := c.files.Stats()
	peerSentBytes.Send(to, float64(sent.SentBytes))
	peerRefused.Send(to, float64(sent.Refused))
	if c.peers != nil {
		received := c.peers.Stats()
		peersKnown.Send(to, float64(received.Peers))
		peerDamaged.Send(to, float64(received.Damaged))
	}
}
