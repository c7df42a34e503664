package main

import (
	"cmp"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"golang.org/x/time/rate"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/credentials"
	"docstore/boxcarrpc/discovery/byname"
	"docstore/cmd/internal/cli"
	"docstore/docservice/peers"
	"docstore/docservice/server"
	"docstore/internal/metric"
	"docstore/internal/units"
)

// peerOptions configure the transfer of files between the servers of a collection.
type peerOptions struct {
	target, ca, tokenFile string
	transfers             int
	rate                  units.Size // bytes per second; 0: no limit
}

func (o *peerOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.target, "peers", "", "servers of the same collections, to fetch files from before the object store, as boxcar --servers; empty: none")
	flags.StringVar(&o.ca, "peers-ca", "", "authorities (PEM) of the certificates of --peers; empty: --tls-client-ca; --tls-cert is the client certificate")
	flags.StringVar(&o.tokenFile, "peers-token-file", "", "file with the token for --peers")
	flags.IntVar(&o.transfers, "peer-transfers", peers.DefaultMaxTransfers, "maximum files that are sent to peers at the same time; 0: none")
	flags.Var(&o.rate, "peer-rate", "maximum bytes per second that are sent to peers; 0: no limit")
}

func (o *peerOptions) check(column bool) error {
	var problems []error
	if o.target != "" {
		if _, err := byname.Parse(o.target, slog.New(slog.DiscardHandler)); err != nil {
			problems = append(problems, cli.Usagef("--peers: %w", err))
		}
	} else if (o.ca != "" || o.tokenFile != "") && !column {
		problems = append(problems, cli.Usagef("--peers-ca and --peers-token-file need --peers or --column"))
	}
	if o.transfers < 0 || o.transfers > server.MaxLimit {
		problems = append(problems, cli.Usagef("--peer-transfers %d: must be between 0 and %d", o.transfers, server.MaxLimit))
	}
	return errors.Join(problems...)
}

// limiterOf returns a limiter of bytes per second, nil for no limit. Its burst is at least a
// message of a peer.
func limiterOf(bytes units.Size) *rate.Limiter {
	if bytes == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(bytes), max(int(bytes/8), peers.MessageBytes))
}

// servePeers sends the files of followers to the other servers.
func (r *remote) servePeers(o *boxcarrpc.ServerOptions) {
	transfers := r.options.peers.transfers
	if transfers == 0 {
		transfers = -1
	}
	r.files = peers.NewServer(func(collection string) (string, bool) {
		f := r.follower(collection)
		if f == nil {
			return "", false
		}
		return f.FilesDir(), true
	}, &peers.ServerOptions{MaxTransfers: transfers, Rate: limiterOf(r.options.peers.rate), Authorize: r.Authorize})
	o.Zone = r.options.registration.zone
	o.StreamHandler = r.files.Handle
	// A stream holds memory until it is refused.
	o.MaxStreams = peerStreams + 2*max(transfers, 0)
}

// peerStreams is the number of streams that may be refused at the same time.
const peerStreams = 64

// openPeers starts to watch the other servers, if there are any.
func (r *remote) openPeers() error {
	o := &r.options.peers
	if o.target == "" {
		return nil
	}
	pool, err := r.peerPool()
	if err != nil {
		return err
	}
	source, err := byname.Parse(o.target, r.Logger())
	if err != nil {
		return err
	}
	self, err := r.options.registration.address(r.BoxcarAddress())
	if err != nil {
		return err
	}
	r.peers = peers.NewClient(source, &peers.ClientOptions{Pool: pool, Self: self})
	return nil
}

// peerPool returns the options of connections to other servers of the same collections.
func (r *remote) peerPool() (pool boxcarrpc.PoolOptions, err error) {
	o, security := &r.options.peers, &r.options.Security
	pool = boxcarrpc.PoolOptions{Logger: r.Logger(), Insecure: security.Insecure, Zone: r.options.registration.zone}
	if ca := cmp.Or(o.ca, security.ClientCA); ca != "" {
		pool.TLS, err = credentials.ClientTLS(credentials.Files{CA: ca, Certificate: security.Certificate, Key: security.Key}, r.Logger())
		if err != nil {
			return pool, err
		}
	}
	if o.tokenFile != "" {
		pool.Token, err = credentials.Token(o.tokenFile, r.Logger())
	}
	return pool, err
}

var (
	peersKnown    = metric.Gauge("peers", "Known servers of --peers.")
	peerDamaged   = metric.Counter("peer_damaged_files_total", "Files with wrong bytes that peers have sent; they are not used.")
	peerSentBytes = metric.Counter("peer_sent_bytes_total", "Bytes of files sent to peers.")
	peerRefused   = metric.Counter("peer_refused_total", "Requests of peers refused above --peer-transfers.")
)

// peerCollector collects the metrics of transfers between servers.
type peerCollector struct{ *remote }

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
