package command

import (
	"flag"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLists(t *testing.T) {
	var words []string
	var numbers []int
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	Words(flags, &words, "words", "a", "words", "a", "b")
	Numbers(flags, &numbers, "numbers", "1,64", 1, 100, "numbers")
	require.Equal(t, []string{"a"}, words)
	require.NoError(t, Parse(flags, []string{"-words", "b,a"}))
	require.Equal(t, []string{"b", "a"}, words)
	require.Equal(t, []int{1, 64}, numbers)
	for _, args := range [][]string{{"-words", "c"}, {"-words", ""}, {"-numbers", "0"}, {"-numbers", "1,101"}, {"-numbers", "x"}} {
		require.ErrorContains(t, Parse(flags, args), "must be", args)
	}
	require.ErrorContains(t, Parse(flags, []string{"more"}), "unexpected argument")
}
