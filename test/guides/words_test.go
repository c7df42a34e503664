package guides

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// commandsIn splits a script into simple commands and words, without quotes, comments,
// redirections and leading assignments. It supports the shell syntax that guides use.
func commandsIn(script string) (commands [][]string) {
	var words []string
	var word strings.Builder
	within := false // inside a word
	endWord := func() {
		if within {
			words = append(words, word.String())
		}
		word.Reset()
		within = false
	}
	endCommand := func() {
		endWord()
		for len(words) > 0 && strings.Contains(words[0], "=") {
			words = words[1:]
		}
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words = nil
	}
	script = strings.ReplaceAll(script, "\\\n", " ")
	for i := 0; i < len(script); i++ {
		switch c := script[i]; {
		case c == '\'' || c == '"':
			length := strings.IndexByte(script[i+1:], c)
			if length < 0 {
				length = len(script) - i - 1
			}
			word.WriteString(script[i+1 : i+1+length])
			within = true
			i += length + 1
		case c == '#' && !within:
			if end := strings.IndexByte(script[i:], '\n'); end >= 0 {
				i += end - 1
			} else {
				i = len(script)
			}
		case c == ' ' || c == '\t':
			endWord()
		case strings.IndexByte("\n|;&", c) >= 0:
			endCommand()
		case c == '>' || c == '<':
			if within && strings.Trim(word.String(), "0123456789") == "" { // a file descriptor
				word.Reset()
				within = false
			}
			endWord()
			i = skipRedirection(script, i)
		default:
			word.WriteByte(c)
			within = true
		}
	}
	endCommand()
	return commands
}

// skipRedirection returns the end of the file name of a redirection at i.
func skipRedirection(script string, i int) int {
	for i+1 < len(script) && strings.IndexByte(">&< ", script[i+1]) >= 0 {
		i++
	}
	for i+1 < len(script) && strings.IndexByte(" \n|;&", script[i+1]) < 0 {
		i++
	}
	return i
}

func TestCommandsIn(t *testing.T) {
	require.Equal(t, [][]string{
		{"docserviced", "serve", "--data", "a b", "--collection", "jobs=q"},
		{"tail", "-n", "1"},
		{"cd", "bench"}, {"go", "run", "./dbbench", "-num", "1"},
		{"sleep", "1"}, {"echo", "it's # no", "comment#"},
	}, commandsIn("A=1 docserviced serve --data 'a b' \\\n  --collection jobs=q > log 2>&1 | tail -n 1 # the last\ncd bench && go run ./dbbench -num 1 <in\n# whole line\nsleep 1 & echo \"it's # no\" comment#\n"))
}
