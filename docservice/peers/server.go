package peers

import (
	"context"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/errors"
	"golang.org/x/time/rate"

	"docstore/boxcarrpc"
	"docstore/internal/vfs"
	"docstore/queue"
)

const (
	// Method is the stream that sends a file.
	Method = "/docstore.v1.Files/Get"
	// MaxTransferTime bounds the deadline of a transfer.
	MaxTransferTime = 10 * time.Minute
	// DefaultMaxTransfers is the default of ServerOptions.MaxTransfers.
	DefaultMaxTransfers = 8
	// MessageBytes is the maximum size of a message, and the minimum burst of a Rate.
	MessageBytes = 128 << 10

	// Keys of the metadata.
	keyCollection = "collection"
	keyFile       = "file"
	keySize       = "size"
	keyFooter     = "footer"
)

// ServerOptions configure a Server. Nil and zero values are the defaults.
type ServerOptions struct {
	// MaxTransfers is the number of files that are sent at the same time. Negative: none.
	// The default is DefaultMaxTransfers.
	MaxTransfers int
	// Rate limits the bytes per second of all transfers. Its burst is at least
	// MessageBytes. The default is no limit.
	Rate *rate.Limiter
	// Authorize returns an error if the client of ctx may not have files of a collection.
	// The default allows everything.
	Authorize func(ctx context.Context, collection string) error
	// FS is the file system of the files. The default is vfs.OS.
	FS vfs.FS
}

// Server sends files to the other servers of a collection.
type Server struct {
	dirOf   func(collection string) (dir string, ok bool)
	options ServerOptions

	transfers     atomic.Int64
	sent, refused atomic.Uint64
}

// ServerStats are the statistics of a Server.
type ServerStats struct {
	Transfers int64  // in progress
	SentBytes uint64 // of files
	Refused   uint64 // requests above MaxTransfers
}

// NewServer returns a Server of the files in the directories that dirOf returns.
func NewServer(dirOf func(collection string) (dir string, ok bool), opts *ServerOptions) *Server {
	s := &Server{dirOf: dirOf}
	if opts != nil {
		s.options = *opts
	}
	if s.options.MaxTransfers == 0 {
		s.options.MaxTransfers = DefaultMaxTransfers
	}
	if s.options.FS == nil {
		s.options.FS = vfs.OS
	}
	return s
}

// Stats returns the current statistics.
func (s *Server) Stats() ServerStats {
	return ServerStats{Transfers: s.transfers.Load(), SentBytes: s.sent.Load(), Refused: s.refused.Load()}
}

// Handle is a boxcarrpc.StreamHandler.
func (s *Server) Handle(ctx context.Context, method string, stream *boxcarrpc.ServerStream) error {
	if method != Method {
		return &boxcarrpc.Error{Code: boxcarrpc.CodeUnimplemented, Message: "no stream " + method}
	}
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > MaxTransferTime+time.Second {
		return &boxcarrpc.Error{Code: boxcarrpc.CodeInvalidArgument, Message: fmt.Sprintf("a transfer needs a deadline of at most %v", MaxTransferTime)}
	}
	defer s.transfers.Add(-1)
	if s.transfers.Add(1) > int64(s.options.MaxTransfers) {
		s.refused.Add(1)
		return boxcarrpc.NotProcessed(&boxcarrpc.Error{
			Code: boxcarrpc.CodeResourceExhausted, Message: fmt.Sprintf("busy: %d transfers are in progress", s.options.MaxTransfers),
		})
	}
	if allow := s.options.Authorize; allow != nil {
		collection, _ := stream.Metadata().Get(keyCollection)
		if err := allow(ctx, collection); err != nil {
			return &boxcarrpc.Error{Code: boxcarrpc.CodePermissionDenied, Message: err.Error()}
		}
	}
	file, size, err := s.open(stream.Metadata())
	if err != nil {
		return err
	}
	defer file.Close()
	return s.send(ctx, stream, file, size)
}

// open opens the file that a request names.
func (s *Server) open(request boxcarrpc.Metadata) (vfs.File, int64, error) {
	collection, _ := request.Get(keyCollection)
	name, _ := request.Get(keyFile)
	parsed, ok := queue.ParseFileName(name)
	dir, served := s.dirOf(collection)
	if !ok || !parsed.Sealed || !served {
		return nil, 0, notFound(collection, name)
	}
	path := filepath.Join(dir, name)
	there, err := queue.DescribeSealed(s.options.FS, path)
	if err != nil { // absent, or damaged and about to be quarantined
		return nil, 0, notFound(collection, name)
	}
	size, _ := request.Get(keySize)
	footer, _ := request.Get(keyFooter)
	if size != strconv.FormatInt(there.Size, 10) || footer != hex.EncodeToString(there.Footer[:]) {
		return nil, 0, notFound(collection, name)
	}
	file, err := s.options.FS.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, notFound(collection, name)
	}
	if err != nil {
		return nil, 0, &boxcarrpc.Error{Code: boxcarrpc.CodeUnavailable, Message: err.Error()}
	}
	return file, there.Size, nil
}

func notFound(collection, name string) error {
	return &boxcarrpc.Error{Code: boxcarrpc.CodeNotFound, Message: fmt.Sprintf("collection %.100q has no file %.100q with this content here", collection, name)}
}

func (s *Server) send(ctx context.Context, stream *boxcarrpc.ServerStream, file vfs.File, size int64) error {
	buffer := make([]byte, min(size, MessageBytes))
	for offset := int64(0); offset < size; {
		n := int(min(size-offset, MessageBytes))
		if s.options.Rate != nil {
			if err := s.options.Rate.WaitN(ctx, n); err != nil {
				return err
			}
		}
		if _, err := file.ReadAt(buffer[:n], offset); err != nil {
			return &boxcarrpc.Error{Code: boxcarrpc.CodeUnavailable, Message: err.Error()}
		}
		if err := stream.Send(buffer[:n]); err != nil {
			return err
		}
		s.sent.Add(uint64(n))
		offset += int64(n)
	}
	return nil
}
