package simulate

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// record returns the line of an entry in the log of the application. The document of an entry is
// its line: its bytes follow from id, version and expiry.
func (e entry) record() string {
	if e.line != "" {
		return e.line
	}
	if e.deleted {
		return fmt.Sprintf(`{"id":%q,"_delete":true,"version":%d}`, e.id, e.version)
	}
	expires := ""
	if !e.expires.IsZero() {
		expires = fmt.Sprintf(`"_expires":%q,`, e.expires.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf(`{"id":"%s",%s"version":%d,"secret":"secret-%s-%d-","text":"%s"}`, e.id, expires, e.version, e.id, e.version, text(e.id, e.version, e.large))
}

// text returns the text of a document: usually 20 bytes to 2 KiB, or to 16 KiB if it is large, sometimes up
// to 64 KiB, partly repeated so that it can be compressed.
func text(id string, version int, large bool) string {
	h := uint64(version)*0x9e3779b97f4a7c15 + 1
	for _, c := range id {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h ^= h >> 29
	size := 20 + int(h%2000)
	switch {
	case h>>32%64 == 0:
		size *= 32
	case large:
		size *= 8
	}
	b := make([]byte, 0, size+64)
	for len(b) < size {
		h = h*6364136223846793005 + 1442695040888963407
		b = append(b, id...)
		b = append(b, " words of "...)
		b = strconv.AppendUint(b, h>>40, 16)
		b = append(b, ' ')
	}
	return string(b[:size])
}

// parseDocument returns the version that a document of an id says it is. The caller compares the
// rest with the record of that version.
func parseDocument(id string, document []byte) (version int, err error) {
	if !bytes.HasPrefix(document, []byte(`{"id":"`+id+`",`)) {
		return 0, fmt.Errorf("it is another one: %.60q", document)
	}
	_, after, found := bytes.Cut(document, []byte(`"version":`))
	digits, _, ended := bytes.Cut(after, []byte{','})
	if !found || !ended {
		return 0, errors.New("it has no version")
	}
	return strconv.Atoi(string(digits))
}
