package docserviced

import (
	"cmp"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"docstore/boxcarrpc/credentials"
	"docstore/boxcarrpc/discovery/byname"
	"docstore/cmd/internal/cli"
	"docstore/docservice/column"
	"docstore/docservice/peers"
	"docstore/docservice/placement/etcdmap"
	"docstore/docservice/server"
	"docstore/docservice/server/bucketsource"
	"docstore/internal/contact"
	"docstore/internal/units"
	"docstore/queue/publish"
	"docstore/queue/publish/etcdlog"
)

// sourceOptions configure collections that are fetched from an object store, and shards.
type sourceOptions struct {
	bucketsource.Options
	peers, peersCA, peersTokenFile string
}

// maxDownloads bounds --downloads.
const maxDownloads = 1000

func (o *sourceOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Group, "group", "", "group of this server, for docstore-updater pin --group")
	flags.StringVar(&o.Store.Endpoint, "s3-endpoint", "", "URL of an S3-compatible store other than AWS")
	flags.StringVar(&o.Etcd, "etcd", "", "etcd that reports changes of collections in an object store at once: "+
		"HOST:PORT[,...] or etcd://HOST:PORT[,...]/PREFIX[?ca=FILE&cert=FILE&key=FILE&user=NAME&password-file=FILE]")
	flags.BoolVar(&o.Store.PathStyle, "s3-path-style", false, "put the bucket's name into the path of requests")
	flags.Var((*units.Size)(&o.MaxDisk), "max-disk", "maximum size of --data, with checkpoints and downloads; a manifest that does not fit is not fetched; 0: no limit")
	flags.Var((*units.Size)(&o.DownloadRate), "download-rate", "maximum bytes per second that are fetched from the object store and from peers; 0: no limit")
	flags.IntVar(&o.Downloads, "downloads", publish.DefaultConcurrency, "maximum files of a collection that are fetched at the same time")
	flags.StringVar(&o.peers, "peers", "", "servers of the same collections, to fetch files from before the object store, as boxcar --servers; empty: none")
	flags.StringVar(&o.peersCA, "peers-ca", "", "authorities (PEM) of the certificates of --peers; empty: --tls-client-ca; --tls-cert is the client certificate")
	flags.StringVar(&o.peersTokenFile, "peers-token-file", "", "file with the token for --peers")
	flags.IntVar(&o.PeerTransfers, "peer-transfers", peers.DefaultMaxTransfers, "maximum files that are sent to peers at the same time; 0: none")
	flags.Var((*units.Size)(&o.PeerRate), "peer-rate", "maximum bytes per second that are sent to peers; 0: no limit")
	flags.StringVar(&o.Column, "column", "", "hold the shards of this column; auto: of the column with the fewest servers")
	flags.DurationVar(&o.Rejoin, "rejoin", column.DefaultRejoin, "time for which the row of a stopped server is kept for its address, with --column")
	flags.DurationVar(&o.KeepMoved, "keep-moved", column.DefaultKeepMoved, "time for which a shard that has moved to another column is still served, and its files are kept")
}

// check reports all invalid options.
func (o *sourceOptions) check() error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, cli.Usagef(format, args...)) }
	if o.Downloads < 1 || o.Downloads > maxDownloads {
		problem("--downloads %d: must be between 1 and %d", o.Downloads, maxDownloads)
	}
	if o.Etcd != "" {
		if err := etcdlog.Check(o.Etcd); err != nil {
			problem("--etcd: %w", err)
		}
	}
	if o.peers != "" {
		if _, err := byname.Parse(o.peers, slog.New(slog.DiscardHandler)); err != nil {
			problem("--peers: %w", err)
		}
	} else if (o.peersCA != "" || o.peersTokenFile != "") && o.Column == "" {
		problem("--peers-ca and --peers-token-file need --peers or --column")
	}
	if o.PeerTransfers < 0 || o.PeerTransfers > server.MaxLimit {
		problem("--peer-transfers %d: must be between 0 and %d", o.PeerTransfers, server.MaxLimit)
	}
	for _, one := range []struct {
		flag  string
		value time.Duration
	}{{"--rejoin", o.Rejoin}, {"--keep-moved", o.KeepMoved}} {
		if one.value <= 0 || one.value > column.MaxKeepMoved {
			problem("%s %s: must be more than 0 and at most %s", one.flag, one.value, column.MaxKeepMoved)
		}
	}
	return errors.Join(problems...)
}

// checkColumn reports options that --column excludes or needs.
func (o *serveOptions) checkColumn() error {
	if o.source.Column == "" {
		return nil
	}
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, cli.Usagef(format, args...)) }
	if err := etcdmap.CheckColumn(o.source.Column); err != nil {
		problem("--column: %w", err)
	}
	if o.source.Etcd == "" {
		problem("--column needs --etcd, which has the placement of the shards")
	}
	if o.registration.discovery != "" {
		problem("--column registers this server in the etcd of --etcd; leave out --discovery")
	}
	for _, c := range o.Collections {
		if !c.IsURL() {
			problem("--collection %s=%s: with --column, give the URL where the collection is published", c.Name, c.Source)
		}
	}
	return errors.Join(problems...)
}

// openSource returns the options of the source. It reads the credentials for other servers.
func (o *serveOptions) openSource(log *slog.Logger) (_ bucketsource.Options, err error) {
	s, security := o.source.Options, &o.Security
	s.Advertise, s.Weight, s.Zone = o.registration.advertise, o.registration.weight, o.registration.zone
	s.Pool.Insecure = security.Insecure
	if ca := cmp.Or(o.source.peersCA, security.ClientCA); ca != "" {
		s.Pool.TLS, err = credentials.ClientTLS(credentials.Files{CA: ca, Certificate: security.Certificate, Key: security.Key}, log)
		if err != nil {
			return s, err
		}
	}
	if o.source.peersTokenFile != "" {
		if s.Pool.Token, err = credentials.Token(o.source.peersTokenFile, log); err != nil {
			return s, err
		}
	}
	if o.source.peers != "" {
		options := byname.Options{Logger: log}
		if strings.HasPrefix(o.source.peers, "etcd:") {
			s.PeersEtcd = contact.New("etcd", log.With("peers", o.source.peers))
			options.Observe = s.PeersEtcd.Observe
		}
		s.Peers, err = options.Parse(o.source.peers)
	}
	return s, err
}
