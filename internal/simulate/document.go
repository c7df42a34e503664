package simulate

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// record returns the line of an entry in the log of the application. The document of an entry is
// its line: its bytes follow from id, version and expiry.
func (e entry) record() string {
	if e.deleted {
		return fmt.Sprintf(`{"id":%q,"_delete":true,"version":%d}`, e.id, e.version)
	}
	expires := ""
	if !e.expires.IsZero() {
		expires = fmt.Sprintf(`"_expires":%q,`, e.expires.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf(`{"id":%q,%s"version":%d,"secret":"secret-%s-%d-","text":%q}`, e.id, expires, e.version, e.id, e.version, text(e.id, e.version))
}

// text returns the text of a document: usually 20 bytes to 2 KiB, sometimes up to 64 KiB, partly
// repeated so that it can be compressed.
func text(id string, version int) string {
	h := uint64(version)*0x9e3779b97f4a7c15 + 1
	for _, c := range id {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h ^= h >> 29
	size := 20 + int(h%2000)
	if h>>32%64 == 0 {
		size *= 32
	}
	var b strings.Builder
	for b.Len() < size {
		h = h*6364136223846793005 + 1442695040888963407
		fmt.Fprintf(&b, "%s words of %x ", id, h>>40)
	}
	return b.String()[:size]
}

// parseDocument returns the version of a document of an id.
func parseDocument(id string, document []byte) (version int, err error) {
	var content struct {
		ID      json.RawMessage
		Version int
	}
	if err := json.Unmarshal(document, &content); err != nil {
		return 0, err
	}
	if string(content.ID) != strconv.Quote(id) {
		return 0, fmt.Errorf("it is that of %s", content.ID)
	}
	return content.Version, nil
}
