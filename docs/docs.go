// Package docs contains the guides, which docserviced serves to readers of its page.
package docs

import "embed"

// Guides has the guides as Markdown.
//
//go:embed *.md
var Guides embed.FS
