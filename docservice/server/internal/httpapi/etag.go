package httpapi

import (
	"iter"
	"strings"
)

// ETag returns the entity tag of a version of a document in a coding. The tags of the
// codings differ, because a strong tag identifies the bytes of the response.
func ETag(version string, c Coding) string {
	if c != Identity {
		version += "-" + string(c)
	}
	return `"` + version + `"`
}

// MatchETag reports whether the values of If-None-Match contain a tag of the version, in
// any coding, and returns that tag. For "*" it returns the tag of Identity. An empty version
// has no tag: only "*" matches.
func MatchETag(values []string, version string) (tag string, ok bool) {
	for item := range tags(values) {
		item = strings.TrimPrefix(item, "W/")
		if item == "*" {
			return ETag(version, Identity), true
		}
		for _, c := range []Coding{Identity, Gzip, Zstd} {
			if version != "" && item == ETag(version, c) {
				return item, true
			}
		}
	}
	return "", false
}

// AllowsMatch reports whether the values of If-Match permit a response with this tag: they
// contain it, or "*". A weak tag permits none.
func AllowsMatch(values []string, tag string) bool {
	for item := range tags(values) {
		if item == "*" || item == tag {
			return true
		}
	}
	return false
}

// tags iterates over the entity tags of the values of a header.
func tags(values []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, value := range values {
			for item := range strings.SplitSeq(value, ",") {
				if item = strings.TrimSpace(item); item != "" && !yield(item) {
					return
				}
			}
		}
	}
}
