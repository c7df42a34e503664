package livepage

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Listing is a page of the ids of a collection, in their order.
type Listing struct {
	Collection, Prefix string
	IDs                []string
	More               bool   // ids follow the last one
	Problem            string // why there are no ids
	Status             int    // the HTTP status of a problem

	after string   // the id before this page; empty: it is the first
	back  []string // after of the pages before this one, the nearest last
}

// maxBack limits the pages that "Previous page" returns to.
const maxBack = 50

// Last returns the last id.
func (l Listing) Last() string { return l.IDs[len(l.IDs)-1] }

// First returns the URL of the first page, empty on it.
func (l Listing) First() string {
	if l.after == "" {
		return ""
	}
	return l.url("", nil)
}

// Previous returns the URL of the page from which this one was reached, empty if it is unknown.
func (l Listing) Previous() string {
	if len(l.back) == 0 {
		return ""
	}
	last := len(l.back) - 1
	return l.url(l.back[last], l.back[:last])
}

// Next returns the URL of the next page.
func (l Listing) Next() string {
	back := append(slices.Clone(l.back), l.after)
	return l.url(l.Last(), back[max(0, len(back)-maxBack):])
}

func (l Listing) url(after string, back []string) string {
	query := url.Values{"collection": {l.Collection}}
	if l.Prefix != "" {
		query.Set("prefix", l.Prefix)
	}
	if after != "" {
		query.Set("after", after)
	}
	if len(back) > 0 {
		query["back"] = back
	}
	return "/browse?" + query.Encode()
}

func (p *Page) serveBrowse(w http.ResponseWriter, r *http.Request) {
	if !p.lookUps {
		http.Error(w, noLookUps, http.StatusForbidden)
		return
	}
	query := r.URL.Query()
	// The form of lookups sends the prefix as an id.
	listing := Listing{Collection: query.Get("collection"), Prefix: cmp.Or(query.Get("prefix"), query.Get("id")), Status: http.StatusOK}
	if r.Method != http.MethodHead {
		listing = p.source.Browse(r.Context(), listing.Collection, listing.Prefix, query.Get("after"))
		listing.after, listing.back = query.Get("after"), query["back"][max(0, len(query["back"])-maxBack):]
	}
	v := p.view()
	v.Listing = &listing
	p.serveTemplate(w, "browse-page", v, listing.Status)
}

// shownID returns an id as text; one that is not UTF-8 is quoted.
func shownID(id string) string {
	if utf8.ValidString(id) {
		return id
	}
	return strconv.Quote(id)
}

// maxIndent is the depth of the deepest JSON that the page indents: the indented text may be
// longer by this factor.
const maxIndent = 16

// indented returns a document indented if it is JSON, and otherwise as it is.
func indented(document string) string {
	var b bytes.Buffer
	if nesting(document) > maxIndent || json.Indent(&b, []byte(document), "", "  ") != nil {
		return document
	}
	return b.String()
}

// nesting returns the depth of the most deeply nested value of a JSON text.
func nesting(text string) (deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}
