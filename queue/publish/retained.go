package publish

import (
	"context"
	"math"
	"slices"

	"docstore/queue"
	"docstore/queue/bucket"
)

// RetainedState is the end of a manifest in each shard.
type RetainedState struct {
	Number uint64
	Sealed []queue.SegmentID // the last segment, by shard; 0: the shard was empty
}

// RetainedEnds returns the ends of states in the queue of a shard, as maintain.Compact needs
// them.
func RetainedEnds(states []RetainedState, shard int) []queue.SegmentID {
	var ends []queue.SegmentID
	for _, s := range states {
		if end := s.Sealed[shard]; end > 0 {
			ends = append(ends, end)
		}
	}
	return slices.Compact(ends)
}

// RetainedStates returns the manifests whose content a compaction of the queue in dir keeps,
// in ascending order: those that are announced, validated, pinned, retained or canaries,
// those after the announced one, and the newest ones, keep of them. ErrRefused: the bucket
// holds another queue.
func RetainedStates(ctx context.Context, b bucket.Bucket, dir string, keep uint64, opts *Options) ([]RetainedState, error) {
	options := opts.withDefaults()
	log, err := OpenLog(ctx, b, options.Now)
	if err != nil {
		return nil, err
	}
	record, err := log.Load(ctx)
	if err != nil {
		return nil, err
	}
	if record.Head.Number == 0 {
		return nil, refused("the bucket has no manifests: check the URL")
	}
	if err := checkID(ctx, b, dir, record, options); err != nil {
		return nil, err
	}
	used, oldest := record.stays(keep)
	var states []RetainedState
	for m, err := range Manifests(ctx, b, record) {
		if err != nil {
			return nil, err
		}
		if m.Number < oldest || !record.SameQueue(m.Number, record.Head.Number) {
			break
		}
		if used(m.Number) {
			states = append(states, RetainedState{m.Number, m.ends()})
		}
	}
	slices.Reverse(states)
	return states, nil
}

// stays reports whether a compaction keeps the content of a manifest, and the oldest such one.
func (r Record) stays(keep uint64) (stays func(number uint64) bool, oldest uint64) {
	newest := r.Head.Number - min(keep, r.Head.Number) + 1
	if r.Announced.Number > 0 {
		newest = min(newest, r.Announced.Number)
	}
	inUse := r.keptBefore(math.MaxUint64)
	oldest = newest
	for _, ref := range inUse {
		oldest = min(oldest, ref.Number)
	}
	return func(number uint64) bool {
		named := slices.ContainsFunc(inUse, func(ref Ref) bool { return ref.Number == number })
		return named || number >= newest && !r.IsBad(number)
	}, oldest
}
