// Package canary defines the documents that boxcar probe and docstore-updater append write to
// measure the time until documents are served. Lists, counts and dumps leave them out.
package canary

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

const (
	// Prefix begins the ids of canaries. It is the default id of boxcar probe.
	Prefix = "docstore-canary"
	// AppendPrefix begins the ids of the canaries of append, which probe does not write: it would
	// wait for a canary that append has replaced.
	AppendPrefix = Prefix + "-append-"
	// Life is the time until a canary expires.
	Life = 24 * time.Hour
)

// Is reports whether an id is that of a canary.
func Is(id []byte) bool { return strings.HasPrefix(string(id), Prefix) }

// IsOfAppend reports whether an id is that of a canary of append.
func IsOfAppend(id []byte) bool { return strings.HasPrefix(string(id), AppendPrefix) }

// IDs returns the id of append's canary in each shard; of is that of shard.Layout. It is the one
// with the least number after AppendPrefix.
func IDs(shards int, of func(id []byte) int) [][]byte {
	ids := make([][]byte, shards)
	for n, left := 0, shards; left > 0; n++ {
		id := strconv.AppendInt([]byte(AppendPrefix), int64(n), 10)
		if s := of(id); ids[s] == nil {
			ids[s] = id
			left--
		}
	}
	return ids
}

// Document is the content of a canary.
type Document struct {
	ID    string    `json:"id"`
	Nonce string    `json:"nonce,omitempty"` // of boxcar probe, which waits for it
	Sent  time.Time `json:"sent"`
	// SourceAgeSeconds is the age of the oldest event of the records that append read last, when
	// they were appended; 0: unknown.
	SourceAgeSeconds float64   `json:"source_age_seconds,omitempty"`
	Expires          time.Time `json:"_expires"`
}

// New returns a canary that is sent now.
func New(id string, now time.Time) Document {
	return Document{ID: id, Sent: now, Expires: now.Add(Life).UTC().Truncate(time.Second)}
}

// Encode returns the canary as a line of JSON without its end.
func (d *Document) Encode() ([]byte, error) { return json.Marshal(d) }

// maxSourceAge is the maximum of SourceAge; a duration has at most 292 years.
const maxSourceAge = 100 * 365 * 24 * time.Hour

// Decode decodes a canary. It returns false if the document is not a canary.
func Decode(document []byte) (d Document, ok bool) {
	if json.Unmarshal(document, &d) != nil || d.Sent.IsZero() {
		return Document{}, false
	}
	return d, d.SourceAgeSeconds >= 0 && d.SourceAgeSeconds <= maxSourceAge.Seconds()
}

// SourceAge returns SourceAgeSeconds as a duration.
func (d *Document) SourceAge() time.Duration {
	return time.Duration(d.SourceAgeSeconds * float64(time.Second))
}
