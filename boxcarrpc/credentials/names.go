package credentials

import (
	"errors"
	"strconv"
	"strings"
	"unicode"

	"docstore/boxcarrpc"
)

var (
	errQuoted    = errors.New(`a quoted name must be "NAME" with \" and \\ for quotes and backslashes, and a blank after it`)
	errHasQuotes = errors.New("a name with quotes must be quoted as a whole")
)

// isComment reports whether a line of a file has nothing to read.
func isComment(line string) bool {
	line = strings.TrimSpace(line)
	return line == "" || line[0] == '#'
}

// cutName returns the name of a client at the beginning of a line, and the rest of the line.
// A name with blanks is quoted, as in Go.
func cutName(line string) (name, rest string, err error) {
	line = strings.TrimSpace(line)
	end := strings.IndexFunc(line, unicode.IsSpace)
	if end < 0 {
		end = len(line)
	}
	if name = line[:end]; strings.HasPrefix(line, `"`) {
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			return "", "", errQuoted
		}
		end = len(quoted)
		if name, err = strconv.Unquote(quoted); err != nil {
			return "", "", errQuoted
		}
	} else if strings.Contains(name, `"`) {
		return "", "", errHasQuotes
	}
	rest = line[end:]
	if trimmed := strings.TrimLeftFunc(rest, unicode.IsSpace); rest != "" && trimmed == rest {
		return "", "", errQuoted
	}
	return name, rest, boxcarrpc.CheckIdentityName(name)
}
