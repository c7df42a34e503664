// Package canary names the documents that boxcar probe writes and looks for, so that lists and
// counts can leave them out.
package canary

import "strings"

// Prefix begins the ids of canaries.
const Prefix = "docstore-canary"

// Is reports whether an id is that of a canary.
func Is(id []byte) bool { return strings.HasPrefix(string(id), Prefix) }
