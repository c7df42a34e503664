package publish

import (
	"context"

	"docstore/queue/bucket"
)

// Collected is the result of Collect.
type Collected struct {
	Oldest     uint64 // the first manifest of those that are kept by age
	Manifests  int    // deleted
	Files      int    // deleted
	Increments int    // deleted
	Bytes      int64  // of the deleted files and increments
}

// Collect drops all manifests but the newest keep ones and those that are announced,
// validated, pinned or retained, and deletes the objects that no other manifest lists.
// With dryRun it only counts them. Publishers and servers may be running.
//
// First it commits which manifests are dropped; from then on none of them can be pinned or
// retained. A file is deleted if no manifest lists it and its epoch has ended: its
// publisher cannot commit a manifest any more, and later publishers use objects of other
// epochs only if the head lists them. So nothing that is deleted can be listed later.
func Collect(ctx context.Context, b bucket.Bucket, log *Log, keep uint64, dryRun bool) (Collected, error) {
	record, err := log.Load(ctx)
	if err == nil {
		record, err = record.collect(keep)
	}
	if err == nil && !dryRun {
		record, err = log.Update(ctx, func(r Record) (Record, error) { return r.collect(keep) })
	}
	if err != nil {
		return Collected{}, err
	}
	if record.Head.Number == 0 {
		return Collected{}, refused("the bucket has no manifests: check the URL")
	}
	manifests, files := map[string]bool{}, map[string]bool{}
	for m, err := range Manifests(ctx, b, record) {
		if err != nil {
			return Collected{}, err
		}
		for _, f := range m.Files {
			files[f.object()] = true
		}
	}
	for _, ref := range record.keptBefore(record.Oldest) {
		manifests[ref.object()] = true
	}
	result := Collected{Oldest: record.Oldest}
	for info, err := range b.List(ctx, filePrefix, "") {
		if err != nil {
			return result, err
		}
		epoch, ok := parseFileObject(info.Name)
		if !ok || files[info.Name] || epoch >= record.Epoch {
			continue
		}
		if err := remove(ctx, b, info.Name, dryRun); err != nil {
			return result, err
		}
		result.Files++
		result.Bytes += info.Size
	}
	for info, err := range b.List(ctx, manifestPrefix, "") {
		if err != nil {
			return result, err
		}
		ref, ok := parseManifestObject(info.Name)
		if !ok || manifests[info.Name] || ref.Number >= record.Oldest {
			continue
		}
		if err := remove(ctx, b, info.Name, dryRun); err != nil {
			return result, err
		}
		result.Manifests++
	}
	err = collectIncrements(ctx, b, record, &result, dryRun)
	return result, err
}

// collectIncrements deletes the increments of manifests before the announced one: no server
// adds them any more, and the manifests after them have their entries.
func collectIncrements(ctx context.Context, b bucket.Bucket, record Record, result *Collected, dryRun bool) error {
	for info, err := range b.List(ctx, incrementPrefix, "") {
		if err != nil {
			return err
		}
		base, ok := parseIncrementName(info.Name)
		if !ok || base >= record.Announced.Number {
			continue
		}
		if err := remove(ctx, b, info.Name, dryRun); err != nil {
			return err
		}
		result.Increments++
		result.Bytes += info.Size
	}
	return nil
}

func remove(ctx context.Context, b bucket.Bucket, name string, dryRun bool) error {
	if dryRun {
		return nil
	}
	return b.Delete(ctx, name)
}
