package publish

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/shard"

	"github.com/cockroachdb/errors"
	"github.com/klauspost/compress/zstd"
)

// Limits of a manifest.
const (
	// MaxFiles bounds the files of a manifest.
	MaxFiles = 1_000_000
	// MaxManifestBytes bounds the encoded manifest.
	MaxManifestBytes = 64 << 20
	// maxDecodedBytes bounds the JSON of a manifest.
	maxDecodedBytes = 512 << 20

	// manifestFormat is the format of a manifest of one shard, and shardsFormat that of several.
	manifestFormat = 1
	shardsFormat   = 2

	filePrefix     = "file/"
	manifestPrefix = "manifest/"
)

// Manifest lists the sealed files of all shards of a collection at one moment. It never changes.
type Manifest struct {
	Number uint64
	// Previous is the manifest with the number before.
	Previous Ref
	// Parent is the manifest whose entries this one continues; nil: Previous; number 0: none.
	Parent *Ref
	Time   time.Time
	Layout shard.Layout
	// Heads state what the files of each shard hold. The last sealed segment identifies the
	// content, which later manifests continue. The head of an empty shard has a time only.
	Heads []queue.Head
	Files []File // sorted by name
}

// File is a sealed segment, or a rewrite of a range of segments, as queue.SealedFile
// describes it.
type File struct {
	Name      string `json:"name"` // in the collection's directory: shard-0007/NAME in a shard
	Size      int64  `json:"size"` // bytes
	Digest    Digest `json:"digest"`
	Epoch     uint64 `json:"epoch"` // of the publisher that uploaded the object
	Footer    Hex16  `json:"footer"`
	Follows   Hex16  `json:"follows"`
	Ends      Hex16  `json:"ends"`
	Documents int64  `json:"documents"`
	Deletes   int64  `json:"deletes"`
}

// describe returns the fields of a file that its footer and header determine.
func describe(f queue.SealedFile) File {
	return File{
		Name: f.Name, Size: f.Size, Footer: Hex16(f.Footer), Follows: Hex16(f.Follows), Ends: Hex16(f.Ends),
		Documents: f.Documents, Deletes: f.Deletes,
	}
}

// object returns the name of the file's object. Publishers of later epochs use the object
// only if the head lists it, so that one which no manifest lists can be deleted.
func (f File) object() string { return fmt.Sprintf("%s%010d-%s", filePrefix, f.Epoch, f.Digest) }

// parseFileObject returns the epoch in the name of a file's object.
func parseFileObject(name string) (epoch uint64, ok bool) {
	var f File
	number, digest, _ := strings.Cut(strings.TrimPrefix(name, filePrefix), "-")
	epoch, err := strconv.ParseUint(number, 10, 64)
	f.Epoch = epoch
	return epoch, err == nil && f.Digest.UnmarshalText([]byte(digest)) == nil && f.object() == name
}

// is reports whether a file of a queue has this content.
func (f File) is(other queue.SealedFile) bool {
	return f.Size == other.Size && f.Footer == Hex16(other.Footer)
}

// Continues returns the manifest whose entries this one continues; number 0: none.
func (m *Manifest) Continues() Ref {
	if m.Parent != nil {
		return *m.Parent
	}
	return m.Previous
}

// find returns the index of the first file whose name is not before name.
func (m *Manifest) find(name string) int {
	i, _ := slices.BinarySearchFunc(m.Files, name, func(f File, name string) int { return strings.Compare(f.Name, name) })
	return i
}

// byName returns the files by their names.
func (m *Manifest) byName() map[string]File {
	files := make(map[string]File, len(m.Files))
	for _, f := range m.Files {
		files[f.Name] = f
	}
	return files
}

// Bytes returns the size of all files.
func (m *Manifest) Bytes() int64 { return m.sum(func(f File) int64 { return f.Size }) }

// Documents returns the number of documents in all files.
func (m *Manifest) Documents() int64 { return m.sum(func(f File) int64 { return f.Documents }) }

// Deletes returns the number of deletes in all files.
func (m *Manifest) Deletes() int64 { return m.sum(func(f File) int64 { return f.Deletes }) }

func (m *Manifest) sum(value func(File) int64) int64 {
	var sum int64
	for _, f := range m.Files {
		sum += value(f)
	}
	return sum
}

// validate returns an error unless the fields are within their limits.
func (m *Manifest) validate() error {
	if err := m.Layout.Check(); err != nil {
		return corrupt("manifest %d: %v", m.Number, err)
	}
	switch {
	case m.Number == 0 || m.Previous.Number != m.Number-1:
		return corrupt("manifest %d follows manifest %d", m.Number, m.Previous.Number)
	case len(m.Heads) != m.Layout.Shards:
		return corrupt("manifest %d has %d heads of %d shards", m.Number, len(m.Heads), m.Layout.Shards)
	case len(m.Files) > MaxFiles:
		return corrupt("manifest %d has %d files, more than %d", m.Number, len(m.Files), MaxFiles)
	}
	last := ""
	for _, f := range m.Files {
		if _, name, ok := m.parseName(f.Name); !ok || !name.Sealed || f.Name <= last {
			return corrupt("manifest %d lists %q after %q: want names of sealed files in ascending order", m.Number, f.Name, last)
		}
		if f.Size <= 0 || f.Size > queue.MaxSegmentBytes || f.Documents < 0 || f.Deletes < 0 {
			return corrupt("manifest %d lists %s with %d bytes, %d documents and %d deletes", m.Number, f.Name, f.Size, f.Documents, f.Deletes)
		}
		last = f.Name
	}
	return m.validateHeads()
}

// object returns the name of the manifest's object.
func (r Ref) object() string { return fmt.Sprintf("%s%010d-%s", manifestPrefix, r.Number, r.Digest) }

// parseManifestObject is the inverse of Ref.object.
func parseManifestObject(name string) (ref Ref, ok bool) {
	number, digest, _ := strings.Cut(strings.TrimPrefix(name, manifestPrefix), "-")
	var err error
	ref.Number, err = strconv.ParseUint(number, 10, 64)
	return ref, err == nil && ref.Digest.UnmarshalText([]byte(digest)) == nil && ref.object() == name
}

// encoder compresses manifests. Making one takes longer than compressing a small manifest.
var encoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err) // the options are invalid
	}
	return e
})

// storedManifest is the JSON of a manifest.
type storedManifest struct {
	Format   int        `json:"format"`
	Number   uint64     `json:"number"`
	Previous Ref        `json:"previous"`
	Parent   *Ref       `json:"parent,omitempty"`
	Time     time.Time  `json:"time"`
	Head     queue.Head `json:"head,omitzero"` // of the only shard
	Files    []File     `json:"files"`
	// Layout and Heads are those of several shards.
	Layout *shard.Layout `json:"layout,omitempty"`
	Heads  []queue.Head  `json:"heads,omitempty"`
}

func (m *Manifest) stored() *storedManifest {
	s := &storedManifest{Format: manifestFormat, Number: m.Number, Previous: m.Previous, Parent: m.Parent, Time: m.Time, Files: m.Files}
	if m.Layout.Shards == 1 {
		s.Head = m.Heads[0]
	} else {
		s.Format, s.Layout, s.Heads = shardsFormat, &m.Layout, m.Heads
	}
	return s
}

// manifest is the inverse of stored, for any content.
func (s *storedManifest) manifest() (*Manifest, error) {
	m := &Manifest{Number: s.Number, Previous: s.Previous, Parent: s.Parent, Time: s.Time, Files: s.Files}
	switch {
	case s.Format > shardsFormat:
		return nil, errors.Wrapf(ErrNewerVersion, "manifest %d has format %d", s.Number, s.Format)
	case s.Format == manifestFormat && s.Layout == nil && s.Heads == nil:
		m.Layout, m.Heads = shard.Layout{Shards: 1}, []queue.Head{s.Head}
	case s.Format == shardsFormat && s.Layout != nil && s.Layout.Shards != 1 && s.Head.Sealed == 0:
		m.Layout, m.Heads = *s.Layout, s.Heads
	default:
		return nil, corrupt("manifest %d has format %d, which does not fit its layout and heads", s.Number, s.Format)
	}
	return m, m.validate()
}

// encode returns the manifest's object and a reference to it.
func (m *Manifest) encode() ([]byte, Ref, error) {
	if err := m.validate(); err != nil {
		return nil, Ref{}, err
	}
	text, err := json.Marshal(m.stored())
	if err != nil {
		return nil, Ref{}, err
	}
	data := encoder().EncodeAll(text, nil)
	if len(data) > MaxManifestBytes {
		return nil, Ref{}, refused("the manifest of %d files would have %d bytes, more than %d: use larger segments", len(m.Files), len(data), MaxManifestBytes)
	}
	return data, Ref{m.Number, sha256.Sum256(data)}, nil
}

// decodeManifest is the inverse of encode.
func decodeManifest(data []byte, ref Ref) (*Manifest, error) {
	if digest := Digest(sha256.Sum256(data)); digest != ref.Digest {
		return nil, corrupt("manifest %d has the digest %s, want %s", ref.Number, digest, ref.Digest)
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxDecodedBytes))
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	text, err := decoder.DecodeAll(data, nil)
	if err != nil {
		return nil, corrupt("manifest %d: %v", ref.Number, err)
	}
	s := new(storedManifest)
	if err := json.Unmarshal(text, s); err != nil {
		return nil, corrupt("manifest %d: %v", ref.Number, err)
	}
	if s.Number != ref.Number {
		return nil, corrupt("the object of manifest %d holds manifest %d", ref.Number, s.Number)
	}
	return s.manifest()
}

// ReadManifest reads a manifest of a bucket. ErrCorrupt: its digest is not that of ref.
func ReadManifest(ctx context.Context, b bucket.Bucket, ref Ref) (*Manifest, error) {
	data, err := bucket.ReadAll(ctx, b, ref.object(), MaxManifestBytes)
	if err != nil {
		return nil, err
	}
	return decodeManifest(data, ref)
}

// putManifest stores a manifest. The object's name depends on its content, so one that
// exists is the same.
func putManifest(ctx context.Context, b bucket.Bucket, data []byte, ref Ref) error {
	err := b.Put(ctx, ref.object(), bytes.NewReader(data), int64(len(data)))
	if errors.Is(err, bucket.ErrExist) {
		return nil
	}
	return err
}

// Manifests iterates over the manifests of a record that were not collected, newest first.
func Manifests(ctx context.Context, b bucket.Bucket, r Record) iter.Seq2[*Manifest, error] {
	return func(yield func(*Manifest, error) bool) {
		refs := []Ref{r.Head}
		for len(refs) > 0 && refs[0].Number > 0 {
			m, err := ReadManifest(ctx, b, refs[0])
			if !yield(m, err) || err != nil {
				return
			}
			switch {
			case m.Previous.Number >= r.Oldest:
				refs = []Ref{m.Previous}
			case m.Number >= r.Oldest:
				refs = r.keptBefore(r.Oldest)
			default:
				refs = refs[1:]
			}
		}
	}
}

// FindManifest returns the manifest with a number, or the newest one for 0.
func FindManifest(ctx context.Context, b bucket.Bucket, number uint64, now func() time.Time) (*Manifest, Ref, error) {
	log, err := OpenLog(ctx, b, now)
	if err != nil {
		return nil, Ref{}, err
	}
	record, err := log.Load(ctx)
	if err != nil {
		return nil, Ref{}, err
	}
	if record.Head.Number == 0 {
		return nil, Ref{}, refused("the bucket has no manifests: check the URL, or publish a queue to it")
	}
	if number == 0 {
		number = record.Head.Number
	}
	if err := record.known(number); err != nil {
		return nil, Ref{}, err
	}
	for _, ref := range append(record.keptBefore(math.MaxUint64), record.Head) {
		if ref.Number == number {
			m, err := ReadManifest(ctx, b, ref)
			return m, ref, err
		}
	}
	for ref := record.Head; ref.Number > 0; {
		m, err := ReadManifest(ctx, b, ref)
		if err != nil || m.Number == number {
			return m, ref, err
		}
		ref = m.Previous
	}
	return nil, Ref{}, corrupt("the chain of manifests ends before number %d", number)
}
