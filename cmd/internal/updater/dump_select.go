package updater

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/spf13/pflag"

	"docstore/cmd/internal/cli"
	"docstore/internal/canary"
	"docstore/queue"
)

// liveMemory bounds the map of newest entries of dump --live: 4.0 million ids in a pass.
const (
	liveMemory     = 256 << 20
	liveBytesPerID = 67 // 16 bytes of hash and 12 of address, in tables half full
)

// selection holds the flags that select the entries of a dump. The zero value selects all.
type selection struct {
	ids     []string
	prefix  string
	segment uint32
	limit   int64
	until   string
	live    bool

	wanted map[string]bool // the ids; nil: all
	end    queue.Address   // the first address after the selection
}

func (s *selection) addFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&s.ids, "id", nil, "only entries with this id; repeatable")
	flags.StringVar(&s.prefix, "prefix", "", "only entries whose ids begin with it")
	flags.Uint32Var(&s.segment, "segment", 0, "only entries that were appended to this segment; 0: all")
	flags.Int64Var(&s.limit, "limit", 0, "at most this number of entries; 0: all")
	flags.StringVar(&s.until, "until", "", "only entries up to the end of a segment, or before a position; as truncate --to")
	flags.BoolVar(&s.live, "live", false, "only the newest document of each id, unless it was deleted or has expired")
}

// check completes the selection, and reports all invalid flags.
func (s *selection) check() error {
	var problems []error
	if len(s.ids) > 0 && s.prefix != "" {
		problems = append(problems, cli.Usagef("--id and --prefix exclude each other; give one of them"))
	}
	for _, id := range s.ids {
		if err := checkID(id); err != nil {
			problems = append(problems, fmt.Errorf("--id: %w", err))
		}
		if s.wanted == nil {
			s.wanted = make(map[string]bool)
		}
		s.wanted[id] = true
	}
	if len(s.prefix) > queue.MaxIDBytes {
		problems = append(problems, cli.Usagef("--prefix has %d bytes: an id has at most %d", len(s.prefix), queue.MaxIDBytes))
	}
	if s.limit < 0 {
		problems = append(problems, cli.Usagef("--limit %d: must not be negative; 0 means no limit", s.limit))
	}
	s.end = queue.Address{Segment: math.MaxUint32}
	if s.until != "" {
		var err error
		if s.end, err = parseEnd("--until", s.until); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// matches reports whether an id is selected. Canaries are if the flags name them.
func (s *selection) matches(id []byte) bool {
	if s.wanted != nil {
		return s.wanted[string(id)]
	}
	return bytes.HasPrefix(id, []byte(s.prefix)) && (!canary.Is(id) || canary.Is([]byte(s.prefix)))
}

// errSelected ends a scan after the selected entries.
var errSelected = errors.New("the selection ends")

// scan calls fn for the selected entries, except that it knows no limit. The entries of all
// segments are needed to learn which ones are live.
func (s *selection) scan(ctx context.Context, reader *queue.Reader, allSegments bool, fn func(queue.Entry) error) error {
	err := reader.Scan(ctx, queue.Position{}, func(e queue.Entry) error {
		switch at := e.Address; {
		case at.Compare(s.end) >= 0, !allSegments && s.segment > 0 && uint32(at.Segment) > s.segment:
			return errSelected
		case !allSegments && s.segment > 0 && uint32(at.Segment) < s.segment, !s.matches(e.ID):
			return nil
		}
		return fn(e)
	})
	if errors.Is(err, errSelected) {
		return nil
	}
	return err
}

// checkSegment reports a segment that the queue does not have.
func (s *selection) checkSegment(segments []queue.SegmentInfo) error {
	if s.segment == 0 {
		return nil
	}
	for _, info := range segments {
		if uint32(info.ID) <= s.segment && s.segment <= uint32(info.Last) {
			return nil
		}
	}
	return fmt.Errorf("--segment %d: the queue has no such segment; see docstore-updater stats", s.segment)
}

// selected writes the selected entries.
func (d *dumper) selected(ctx context.Context) error {
	segments, err := d.reader.Segments()
	if err != nil {
		return err
	}
	if err := d.checkSegment(segments); err != nil {
		return err
	}
	if !d.live {
		return d.scan(ctx, d.reader, false, d.entry)
	}
	var entries int64
	for _, info := range segments {
		entries += info.Entries
	}
	passes := uint32(min(entries*liveBytesPerID/d.liveMemory+1, math.MaxUint32))
	for pass := range passes {
		if err := d.livePass(ctx, pass, passes); err != nil {
			return err
		}
	}
	return nil
}

// idHash identifies an id: a part of its SHA-256, so that collisions are infeasible.
type idHash [16]byte

// livePass writes the live documents of the ids whose hash belongs to a pass, in the order
// of the queue. It reads the tables of the queue twice.
func (d *dumper) livePass(ctx context.Context, pass, passes uint32) error {
	inPass := func(id []byte) (idHash, bool) {
		sum := sha256.Sum256(id)
		return idHash(sum[:16]), binary.LittleEndian.Uint32(sum[16:])%passes == pass
	}
	newest := make(map[idHash]queue.Address)
	var end queue.Address // entries that are appended meanwhile are not part of the dump
	err := d.scan(ctx, d.reader, true, func(e queue.Entry) error {
		if hash, ok := inPass(e.ID); ok {
			newest[hash] = e.Address
		}
		end = e.Address
		return nil
	})
	if err != nil {
		return err
	}
	now := d.env.Now()
	return d.scan(ctx, d.reader, false, func(e queue.Entry) error {
		if e.Address.Compare(end) > 0 {
			return errSelected
		}
		hash, ok := inPass(e.ID)
		if !ok || newest[hash] != e.Address || e.Deleted || !e.Expires.IsZero() && !e.Expires.After(now) {
			return nil
		}
		return d.entry(e)
	})
}
