package httpapi

import "strings"

// ETag returns the entity tag of a version of a document in a coding. The tags of the
// codings differ, because a strong tag identifies the bytes of the response.
func ETag(version string, c Coding) string {
	if c != Identity {
		version += "-" + string(c)
	}
	return `"` + version + `"`
}

// MatchETag reports whether the values of If-None-Match contain a tag of the version, in
// any coding, and returns that tag. For "*" it returns the tag of Identity.
func MatchETag(values []string, version string) (tag string, ok bool) {
	for _, value := range values {
		for item := range strings.SplitSeq(value, ",") {
			item = strings.TrimPrefix(strings.TrimSpace(item), "W/")
			if item == "*" {
				return ETag(version, Identity), true
			}
			for _, c := range []Coding{Identity, Gzip, Zstd} {
				if item == ETag(version, c) {
					return item, true
				}
			}
		}
	}
	return "", false
}
