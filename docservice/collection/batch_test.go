package collection

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/internal/testseed"
	"docstore/queue"
)

func TestGetManyKeepsOrder(t *testing.T) {
	random := testseed.Rand(t)
	f := newMemFixture(t)
	f.putMany("a", 1500)
	f.seal()
	f.putMany("b", 1500)
	c := f.ready()
	ids := [][]byte{{}, []byte(strings.Repeat("x", queue.MaxIDBytes+1)), []byte("none"), []byte("a-1"), []byte("a-1")}
	for i := range 1500 {
		ids = append(ids, []byte(fmt.Sprintf("a-%d", i)), []byte(fmt.Sprintf("b-%d", i)))
	}
	random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })

	result, answers, err := c.GetMany([]byte("before"), ids, 1<<30)
	require.NoError(t, err)
	require.Equal(t, "before", string(result[:6]))
	require.Len(t, answers, len(ids))
	for i, answer := range answers {
		switch id := string(ids[i]); {
		case id == "none":
			assert.ErrorIs(t, answer.Err, docservice.ErrNotFound)
		case id == "" || len(id) > queue.MaxIDBytes:
			assert.ErrorIs(t, answer.Err, docservice.ErrBadID)
		default:
			require.NoError(t, answer.Err)
			require.Equal(t, documentOf(id), string(answer.Document))
		}
	}

	_, answers, err = c.GetMany(nil, nil, 0)
	require.NoError(t, err)
	assert.Empty(t, answers)
	_, _, err = c.GetMany(nil, make([][]byte, docservice.MaxBatchIDs+1), 1<<30)
	require.ErrorIs(t, err, docservice.ErrBatchTooLarge)
}

// With any limit, the answers are those for the first ids, and at least one.
func TestGetManyLeavesOutTheLast(t *testing.T) {
	f := newMemFixture(t)
	f.putMany("a", 3000)
	c := f.ready()
	var ids [][]byte
	for i := range 3000 {
		ids = append(ids, []byte(fmt.Sprintf("a-%d", 2999-i))) // reverse of the order on disk
	}
	size := len(documentOf("a-2999"))
	for _, test := range []struct{ maxBytes, want int }{
		{0, 1},
		{size - 1, 1},
		{size, 1},
		{2*size - 1, 1},
		{2 * size, 2},
		{100 * size, 100},
		{1100 * size, 1100},
		{1 << 30, 3000},
	} {
		result, answers, err := c.GetMany(nil, ids, test.maxBytes)
		require.NoError(t, err)
		require.Len(t, answers, test.want, "maxBytes=%d", test.maxBytes)
		total := 0
		for i, answer := range answers {
			require.Equal(t, documentOf(string(ids[i])), string(answer.Document))
			total += len(answer.Document)
		}
		assert.Equal(t, total, len(result))
	}
}
