package publish

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCheckFindsEachDamage changes or removes each object in turn.
func TestCheckFindsEachDamage(t *testing.T) {
	b, s := newBucket(t), newSource()
	for _, document := range []string{"1", "2"} {
		s.write(t, true, [2]string{"a", document})
		publish(t, b, s)
	}
	report, err := Check(t.Context(), b)
	require.NoError(t, err)
	require.Empty(t, report.Problems)
	require.Equal(t, Checked{Commits: 4, Manifests: 2, Files: 2, Bytes: report.Bytes}, report)
	var names []string
	for info, err := range b.List(t.Context(), "", "") {
		require.NoError(t, err)
		names = append(names, info.Name)
	}
	require.Len(t, names, 8)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			changed := func(s string) string { return s[:len(s)-1] + " " + s[len(s)-1:] }
			last := name == commitObject(4)
			if !last { // nothing holds the digest of the newest commit
				replaceObject(t, b, name, changed)
				report, err := Check(t.Context(), b)
				require.NoError(t, err)
				require.NotEmpty(t, report.Problems)
				for _, p := range report.Problems {
					require.ErrorIs(t, p, ErrCorrupt)
				}
				replaceObject(t, b, name, func(s string) string { return s[:len(s)-2] + s[len(s)-1:] })
			}
			content := ""
			replaceObject(t, b, name, func(s string) string { content = s; return "x" })
			require.NoError(t, b.Delete(t.Context(), name))
			report, err := Check(t.Context(), b)
			require.NoError(t, err)
			require.Equal(t, last, len(report.Problems) == 0, "an older state of the bucket is complete")
			require.NoError(t, b.Put(t.Context(), name, readerOf([]byte(content)), int64(len(content))))
		})
	}
	report, err = Check(t.Context(), b)
	require.NoError(t, err)
	require.Empty(t, report.Problems)
}

// TestCheckFindsTwoManifestsOfOneNumber, as two writers that both commit would make.
func TestCheckFindsTwoManifestsOfOneNumber(t *testing.T) {
	b := newBucket(t)
	for _, digest := range []Digest{{1}, {2}} {
		_, err := openLog(t, b).Update(t.Context(), func(r Record) (Record, error) {
			r.Format, r.Head = recordFormat, Ref{1, digest}
			return r, nil
		})
		require.NoError(t, err)
	}
	report, err := Check(t.Context(), b)
	require.NoError(t, err)
	require.ErrorContains(t, report.Problems[0], "names another manifest 1")
}
