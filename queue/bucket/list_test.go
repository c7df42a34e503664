package bucket_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/queue/bucket"
)

// page returns a list of objects "name size", and the token of the next page if there is one.
func page(token string, objects ...string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "<ListBucketResult><IsTruncated>%t</IsTruncated>", token != "")
	if token != "" {
		fmt.Fprintf(&text, "<NextContinuationToken>%s</NextContinuationToken>", token)
	}
	for _, object := range objects {
		name, size, _ := strings.Cut(object, " ")
		fmt.Fprintf(&text, "<Contents><Key>jobs/%s</Key><Size>%s</Size></Contents>", name, size)
	}
	return text.String() + "</ListBucketResult>"
}

// TestWrongLists: a list whose names do not ascend behind the start, or with a negative size, is
// an error that names the store, and does not repeat the request. The objects before it are returned.
func TestWrongLists(t *testing.T) {
	for name, test := range map[string]struct {
		pages  []string // the last one is repeated
		listed int
		want   string
	}{
		"unsorted":               {[]string{page("", "b 1", "d 1", "c 1")}, 2, "returned c behind d: it does not list in the order of the names, which docstore needs"},
		"start ignored":          {[]string{page("", "a 1", "b 1")}, 0, "returned a behind a: it does not list in the order of the names, which docstore needs"},
		"page repeated":          {[]string{page("x", "b 1", "c 1"), page("y", "b 1", "c 1")}, 2, "returned b behind c: it does not list in the order of the names, which docstore needs"},
		"token repeated":         {[]string{page("x", "b 1"), page("x", "c 1")}, 2, "answers with the same page again"},
		"empty page repeated":    {[]string{page("x")}, 0, "answers with the same page again"},
		"negative size":          {[]string{page("", "b -5")}, 0, "states a size of -5 bytes for b"},
		"name listed two times":  {[]string{page("", "b 1", "b 1")}, 1, "returned b behind b: it does not list in the order of the names, which docstore needs"},
		"pages of another order": {[]string{page("x", "d 1"), page("", "c 1")}, 1, "returned c behind d: it does not list in the order of the names, which docstore needs"},
	} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/xml")
				_, _ = fmt.Fprint(w, test.pages[min(requests, len(test.pages)-1)])
				requests++
			}))
			defer server.Close()
			b := openS3(t, server.URL, bucket.Options{})
			test.want = "bucket: list in s3://docs/jobs at " + server.URL + ": the store " + test.want
			listed := 0
			var last error
			for _, err := range b.List(t.Context(), "", "a") {
				if last = err; err == nil {
					listed++
				}
			}
			require.EqualError(t, last, test.want)
			require.Equal(t, test.listed, listed)
			require.LessOrEqual(t, requests, 2, "the error is not temporary")
		})
	}
}

// TestBucketOfAnotherRegion: the error has the region of a redirect.
func TestBucketOfAnotherRegion(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Amz-Bucket-Region", "eu-central-1")
		w.WriteHeader(http.StatusMovedPermanently)
	}))
	defer server.Close()
	_, err := openS3(t, server.URL, bucket.Options{}).Head(t.Context(), "a")
	require.ErrorContains(t, err, "set AWS_REGION=eu-central-1")
}
