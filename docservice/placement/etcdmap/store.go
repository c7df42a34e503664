package etcdmap

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/errors"
	clientv3 "go.etcd.io/etcd/client/v3"

	"docstore/boxcarrpc/discovery/etcd"
	"docstore/docservice/placement"
	"docstore/internal/checksum"
	"docstore/internal/contact"
	"docstore/internal/ctxtime"
	"docstore/internal/vfs"
)

// Defaults of Options.
const (
	DefaultPrefix  = "docstore"
	DefaultTimeout = 5 * time.Second
	DefaultLease   = 10 * time.Second

	// readAgain is the pause after a failed watch.
	readAgain = 300 * time.Millisecond
	// checkPause is the time between two reads of the map while it is watched: after a restoration of
	// etcd from a backup, a watch is silent until etcd has reached its revision again.
	checkPause = 10 * time.Second
)

// Options configure a Store. Nil and zero values are the defaults.
type Options struct {
	// FS is the file system of File. The default is vfs.OS.
	FS vfs.FS
	// File keeps the last map, for restarts while etcd is unavailable. Programs may share it.
	// The default is none.
	File string
	// FileAfter is the time after which the map of File is used if etcd has not answered.
	// Clients set it: an old map names columns whose servers are gone. The default is 0: at
	// once.
	FileAfter time.Duration
	// Timeout bounds a request to etcd. The default is DefaultTimeout.
	Timeout time.Duration
	// Lease is the time after which a server or a placer that is dead or cut off is not
	// live, in whole seconds. The default is DefaultLease.
	Lease time.Duration
	// Dial connects to an endpoint. The default is that of gRPC.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Observe is that of etcd.Options. The default is none.
	Observe func(error)
	// Logger logs changes and failures. The default discards them.
	Logger *slog.Logger
}

// ErrNoMap is the error of an operation on a placement that was not created yet.
var ErrNoMap = errors.New("etcdmap: the collection has no placement")

// Store is the placement of one collection. It implements placement.Source.
type Store struct {
	placement.Current

	collection string
	prefix     string
	client     *clientv3.Client
	options    Options
	cancel     context.CancelFunc
	running    sync.WaitGroup
	cleaning   sync.WaitGroup // calls that end with the client, see inTurn
	setting    sync.Mutex     // of the current map and its file
	loading    *time.Timer    // of the map of the file; nil: none
}

var _ placement.Source = (*Store)(nil)

// Open returns the Store of a collection in the etcd at HOST:PORT[,HOST:PORT...], or at a
// target of package boxcarrpc/discovery/etcd. It starts to follow the map, and does not wait
// for etcd.
func Open(endpoints, collection string, opts *Options) (*Store, error) {
	target := endpoints
	if !strings.Contains(endpoints, "://") {
		target = "etcd://" + endpoints + "/" + DefaultPrefix
	}
	if collection == "" || strings.Contains(collection, "/") {
		return nil, fmt.Errorf("etcdmap: collection %q: the name must not be empty or contain a slash", collection)
	}
	s := &Store{collection: collection}
	if opts != nil {
		s.options = *opts
	}
	if s.options.Timeout == 0 {
		s.options.Timeout = DefaultTimeout
	}
	if s.options.Lease == 0 {
		s.options.Lease = DefaultLease
	}
	if s.options.Logger == nil {
		s.options.Logger = slog.New(slog.DiscardHandler)
	}
	if s.options.FS == nil {
		s.options.FS = vfs.OS
	}
	prefix, err := etcd.Prefix(target)
	if err != nil {
		return nil, err
	}
	s.prefix = prefix + "/" + collection + "/"
	last, err := s.load()
	if err != nil {
		return nil, err
	}
	if last != nil && s.options.FileAfter == 0 {
		s.Set(last)
	}
	if s.client, err = etcd.Connect(target, &etcd.Options{CallTimeout: s.options.Timeout, Dial: s.options.Dial, Observe: s.options.Observe}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	if last != nil && s.options.FileAfter > 0 {
		s.loading = time.AfterFunc(s.options.FileAfter, func() { s.useLast(last) })
	}
	s.running.Go(func() { s.follow(ctx) })
	return s, nil
}

// Close ends the connection. The last map stays in use.
func (s *Store) Close() error {
	s.cancel()
	if s.loading != nil {
		s.loading.Stop()
	}
	s.running.Wait()
	err := s.client.Close()
	s.cleaning.Wait()
	return err
}

// Column returns the registry of the servers of a column, which shares the connection of the
// Store: servers register with Backend, and its Source has the addresses for a Pool. The
// caller closes a registry that holds numbers, before the Store.
func (s *Store) Column(column string) (*etcd.Registry, error) {
	if err := CheckColumn(column); err != nil {
		return nil, err
	}
	return etcd.New(s.client, s.columnKey(column), &etcd.Options{CallTimeout: s.options.Timeout, Logger: s.options.Logger})
}

// columnName are the names of columns, which are parts of keys.
var columnName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// CheckColumn returns an error if a name cannot be that of a column.
func CheckColumn(column string) error {
	if !columnName.MatchString(column) {
		return fmt.Errorf("column %q: a name has 1 to 63 letters, digits, dots, dashes and underscores, and begins with a letter or digit", column)
	}
	return nil
}

func (s *Store) columnKey(column string) string { return s.prefix + "column/" + column }

func (s *Store) mapKey() string     { return s.prefix + "placement/map" }
func (s *Store) controlKey() string { return s.prefix + "placement/control" }
func (s *Store) sizesKey() string   { return s.prefix + "placement/sizes" }
func (s *Store) leaderKey() string  { return s.prefix + "placement/leader" }
func (s *Store) lockKey() string    { return s.prefix + "placement/lock" }
func (s *Store) statesKey() string  { return s.prefix + "state/" }
func (s *Store) zonesKey() string   { return s.prefix + "zones" }

// load reads the map of the last run, nil if there is none.
func (s *Store) load() (*placement.Map, error) {
	if s.options.File == "" {
		return nil, nil
	}
	content, err := vfs.ReadFile(s.options.FS, s.options.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, errors.Wrap(err, "etcdmap: reading the last placement")
	}
	if content, err = unsealed(content); err != nil {
		s.options.Logger.Warn("the last placement is damaged; waiting for etcd", "collection", s.collection, "file", s.options.File, "error", err)
		return nil, nil
	}
	m, err := s.parse(content)
	return m, errors.Wrapf(err, "etcdmap: %s: remove the file to wait for etcd instead", s.options.File)
}

// sumEnd is the end of Options.File: a field with the CRC-32C of the map without it, which earlier
// builds ignore. If a flipped bit changed the columns or the epoch, the file would be another map,
// and a greater epoch would hide the maps of etcd.
const sumEnd = `,"sum":"%08x"}`

// sealed returns a map, a JSON object, with its checksum.
func sealed(content []byte) []byte {
	content = bytes.TrimSpace(content)
	return fmt.Appendf(bytes.Clone(content[:len(content)-1]), sumEnd, checksum.Of(content))
}

// unsealed returns the map of a file. The files of earlier builds have no checksum.
func unsealed(file []byte) (content []byte, err error) {
	if at := len(file) - len(fmt.Sprintf(sumEnd, 0)); at > 0 && bytes.HasPrefix(file[at:], []byte(`,"sum":"`)) {
		content = append(bytes.Clone(file[:at]), '}')
		if string(file[at:]) != fmt.Sprintf(sumEnd, checksum.Of(content)) {
			return nil, errors.New("its checksum is wrong")
		}
		return content, nil
	}
	if !json.Valid(file) {
		return nil, errors.New("it is not valid JSON")
	}
	return file, nil
}

// useLast uses the map of the last run if etcd has not answered.
func (s *Store) useLast(m *placement.Map) {
	s.setting.Lock()
	defer s.setting.Unlock()
	if current, _ := s.Map(); current != nil {
		return
	}
	info, _ := s.options.FS.Stat(s.options.File) // only its age is missing
	s.options.Logger.Warn("etcd does not answer; using the last placement", "collection", s.collection, "epoch", m.Epoch, "changed", info.ModTime, "file", s.options.File)
	s.Set(m)
}

// parse decodes a map of this collection.
func (s *Store) parse(content []byte) (*placement.Map, error) {
	m := new(placement.Map)
	if err := json.Unmarshal(content, m); err != nil {
		return nil, fmt.Errorf("the placement is not valid JSON: %w", err)
	}
	if m.Collection != s.collection {
		return nil, fmt.Errorf("the placement is that of collection %q, want %q", m.Collection, s.collection)
	}
	return m, m.Check()
}

// follow uses each map of etcd until ctx ends.
func (s *Store) follow(ctx context.Context) {
	answers := contact.New("etcd (placement)", s.options.Logger.With("collection", s.collection))
	for ctx.Err() == nil {
		revision, err := s.read(ctx)
		if err == nil {
			answers.Observe(nil)
			err = s.watch(ctx, revision)
		}
		if ctx.Err() == nil {
			answers.Observe(err)
			ctxtime.Sleep(ctx, readAgain)
		}
	}
}

// read uses the map of etcd and returns the revision at which it was read.
func (s *Store) read(ctx context.Context) (revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	response, err := s.client.Get(ctx, s.mapKey())
	if err != nil {
		return 0, fmt.Errorf("etcdmap: %w", err)
	}
	for _, kv := range response.Kvs {
		s.use(kv.Value)
	}
	return response.Header.Revision, nil
}

// watch uses the changes after a revision until the watch ends.
func (s *Store) watch(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	changes := s.client.Watch(ctx, s.mapKey(), clientv3.WithRev(revision+1))
	check := time.NewTicker(checkPause)
	defer check.Stop()
	for {
		select {
		case response, ok := <-changes:
			if !ok {
				return errors.New("the watch has ended")
			}
			if err := response.Err(); err != nil {
				return err
			}
			for _, event := range response.Events {
				if event.Type == clientv3.EventTypePut {
					s.use(event.Kv.Value)
				}
			}
		case <-check.C:
			_, _ = s.read(ctx) // the watch reports that etcd is away
		}
	}
}

// use makes a map of etcd the current one, unless it is not valid or older. The map of a file or
// of an etcd that was restored can have the same epoch and differ.
func (s *Store) use(content []byte) {
	m, err := s.parse(content)
	if err != nil {
		s.options.Logger.Error("the placement in etcd cannot be used; the last one stays in use", "collection", s.collection, "error", err)
		return
	}
	s.setting.Lock()
	defer s.setting.Unlock()
	if last, _ := s.Map(); last != nil && last.Generation == m.Generation && (last.Epoch > m.Epoch || reflect.DeepEqual(last, m)) {
		return
	}
	s.Set(m)
	if s.options.File == "" {
		return
	}
	if err := vfs.WriteFileShared(s.options.FS, s.options.File, sealed(content)); err != nil {
		s.options.Logger.Warn("the placement is not kept for a restart without etcd", "collection", s.collection, "error", err)
	}
}

// Refresh implements placement.Source.
func (s *Store) Refresh(ctx context.Context, epoch uint64) error {
	if m, _ := s.Map(); m != nil && m.Epoch > epoch {
		return nil
	}
	_, err := s.read(ctx)
	return err
}

// Create makes the first map of a generation: no shard has a column. It succeeds if the
// collection has a map of this generation and layout. A map of another generation is
// replaced only if replace is true.
func (s *Store) Create(ctx context.Context, m *placement.Map, replace bool) error {
	if err := m.Check(); err != nil {
		return err
	}
	if m.Collection != s.collection {
		return fmt.Errorf("etcdmap: map of collection %q: want %q", m.Collection, s.collection)
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	response, err := s.client.Get(ctx, s.mapKey())
	if err != nil {
		return fmt.Errorf("etcdmap: %w", err)
	}
	var revision int64
	for _, kv := range response.Kvs {
		before, err := s.parse(kv.Value)
		if err == nil && before.Generation == m.Generation && before.Layout == m.Layout {
			return nil
		}
		if !replace {
			return fmt.Errorf("etcdmap: collection %q has the placement of another generation", s.collection)
		}
		revision = kv.ModRevision
	}
	content, err := json.Marshal(m)
	if err != nil {
		return err
	}
	done, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(s.mapKey()), "=", revision)).
		Then(clientv3.OpPut(s.mapKey(), string(content))).Commit()
	switch {
	case err != nil:
		return fmt.Errorf("etcdmap: %w", err)
	case !done.Succeeded:
		return errors.New("etcdmap: the placement has changed meanwhile; repeat the command")
	}
	_, err = s.read(ctx)
	return err
}

// States returns the states of the live servers, ordered by column and row.
func (s *Store) States(ctx context.Context) ([]placement.ServerState, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	response, err := s.client.Get(ctx, s.statesKey(), clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("etcdmap: %w", err)
	}
	var states []placement.ServerState
	for _, kv := range response.Kvs {
		var one placement.ServerState
		if err := json.Unmarshal(kv.Value, &one); err != nil {
			s.options.Logger.Warn("the state of a server is not valid", "key", string(kv.Key), "error", err)
			continue
		}
		states = append(states, one)
	}
	return states, nil
}

// Control returns the decisions of the operators.
func (s *Store) Control(ctx context.Context) (placement.Control, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	c, _, err := s.control(ctx)
	return c, err
}

// control returns the decisions and the revision of their last change.
func (s *Store) control(ctx context.Context) (c placement.Control, revision int64, err error) {
	response, err := s.client.Get(ctx, s.controlKey())
	if err != nil {
		return c, 0, fmt.Errorf("etcdmap: %w", err)
	}
	for _, kv := range response.Kvs {
		if err := json.Unmarshal(kv.Value, &c); err != nil {
			return c, 0, fmt.Errorf("etcdmap: %s: %w", kv.Key, err)
		}
		revision = kv.ModRevision
	}
	return c, revision, nil
}

// UpdateControl changes the decisions with compare-and-swap: edit is called again if another
// command has changed them meanwhile. Its error is returned.
func (s *Store) UpdateControl(ctx context.Context, edit func(*placement.Control) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	for {
		c, revision, err := s.control(ctx)
		if err != nil {
			return err
		}
		if err := edit(&c); err != nil {
			return err
		}
		content, err := json.Marshal(c)
		if err != nil {
			return err
		}
		done, err := s.client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(s.controlKey()), "=", revision)).
			Then(clientv3.OpPut(s.controlKey(), string(content))).Commit()
		if err != nil {
			return fmt.Errorf("etcdmap: %w", err)
		}
		if done.Succeeded {
			return nil
		}
	}
}
