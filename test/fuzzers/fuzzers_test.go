package fuzzers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// targets names the fuzz target in the same directory that reaches each decoder.
var targets = map[string]string{
	"bloom.decodeEntry":                               "FuzzOpen",
	"bloom.decodeIndex":                               "FuzzOpen",
	"bloom.decodePage":                                "FuzzOpen",
	"bloom.decodeScores":                              "FuzzRestore",
	"bloom.decodeTrailer":                             "FuzzOpen",
	"boxcarrpc/discovery.parseServer":                 "FuzzFile",
	"docservice/follow.parseCurrent":                  "FuzzCurrent",
	"boxcarrpc/internal/wire.ParseFrame":              "FuzzParseFrame",
	"docservice/internal/wire.DecodeAnswer":           "FuzzDecodeResponse",
	"docservice/internal/wire.DecodeBatchGetRequest":  "FuzzDecodeRequest",
	"docservice/internal/wire.DecodeBatchGetResponse": "FuzzDecodeResponse",
	"docservice/internal/wire.DecodeGetRequest":       "FuzzDecodeRequest",
	"docservice/collection.decodeIndexEntry":          "FuzzIndexEntry",
	"docservice/server/internal/httpapi.ParseIDs":     "FuzzParseIDs",
	"docservice/server/internal/httpapi.parseID":      "FuzzParseIDs",
	"docservice/server/internal/httpapi.parseObject":  "FuzzParseIDs",
	"docservice/internal/wire.decodeRequest":          "FuzzDecodeRequest",
	"docservice/collection.parseLookUp":               "FuzzIndexEntry",
	"docservice/collection.parseVerified":             "FuzzVerified",
	"ingest/files.parseCursor":                        "FuzzCursor",
	"ingest/kafka.parsePosition":                      "FuzzCursor",
	"ingest/nats.parsePosition":                       "FuzzPosition",
	"ingest/postgres.parseCursor":                     "FuzzCursor",
	"ingest/postgres.parseHistory":                    "FuzzHistory",
	"ingest/postgres.parseKey":                        "FuzzKey",
	"ingest/records.decode64":                         "FuzzParse",
	"ingest/records.parseDelete":                      "FuzzParse",
	"ingest/records.parseExpires":                     "FuzzParse",
	"ingest/records.parseString":                      "FuzzParse",
	"ingest/sources.parseList":                        "FuzzList",
	"lsm.decodeBatch":                                 "FuzzDecodeBatch",
	"lsm/internal/table.decodeFooter":                 "FuzzTable",
	"lsm.decodeManifest":                              "FuzzDecodeManifest",
	"lsm/internal/table.decodeProperties":             "FuzzTable",
	"lsm/internal/table.parseBlock":                   "FuzzBlock",
	"lsm/internal/table.parseIndex":                   "FuzzTable",
	"queue/stored.Parse":                              "FuzzParse",
	"queue/internal/segment.ParseBlockHeader":         "FuzzBlock",
	"queue/internal/segment.ParseEntry":               "FuzzBlock",
	"queue/internal/segment.ParseFooter":              "queue.FuzzSegment",
	"queue.parseHead":                                 "FuzzHead",
	"queue/internal/segment.ParseHeader":              "queue.FuzzSegment",
	"queue/internal/segment.ParseRelocations":         "queue/maintain.FuzzRewrite",
	"queue/codec/lzo.decodedBytes":                    "FuzzDecode",
	"queue/digests.parse":                             "FuzzParse",
	"queue/shardset.parseFile":                        "FuzzFile",
	"queue/publish.decodeCommit":                      "FuzzCommit",
	"queue/publish.decodeIncrement":                   "FuzzIncrement",
	"queue/publish.decodeManifest":                    "FuzzManifest",
	"queue/publish.parseHex":                          "FuzzManifest",
	"queue/shard.parseLayout":                         "FuzzLayout",
	"wal.decodeHeader":                                "FuzzReplay",
	"wal.decodeMark":                                  "FuzzReplay",
}

// wrappers call one decoder of another package, which has a fuzz target, or of the standard
// library.
var wrappers = []string{"docservice.parseStored", "queue/publish/etcdlog.parseNumber"}

// elsewhere are the directories without decoders of files and peers, and the commands, whose
// parsers read the input of the user.
var elsewhere = []string{"bench", "clients", "cmd", "examples", "internal", "test"}

var decoder = regexp.MustCompile(`^(?i:parse|decode)`)

// Each function that parses or decodes bytes has a fuzz target, so that a new decoder does not
// go without.
func TestEachDecoderHasAFuzzTarget(t *testing.T) {
	root := filepath.Join("..", "..")
	decoders := map[string]bool{}
	fuzzed := map[string]bool{} // directory.target
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (slices.Contains(elsewhere, path) || path != "." && strings.HasPrefix(entry.Name(), ".")):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, declared := range file.Decls {
			function, ok := declared.(*ast.FuncDecl)
			if !ok || function.Recv != nil {
				continue
			}
			name := filepath.ToSlash(filepath.Dir(path)) + "." + function.Name.Name
			switch {
			case strings.HasSuffix(path, "_test.go"):
				fuzzed[name] = strings.HasPrefix(function.Name.Name, "Fuzz")
			case decoder.MatchString(function.Name.Name) && takesBytes(function):
				decoders[name] = true
			}
		}
		return nil
	}))
	for name, target := range targets {
		require.Contains(t, decoders, name, "remove it from targets")
		if !strings.Contains(target, ".") { // in the same directory
			target = name[:strings.LastIndexByte(name, '.')+1] + target
		}
		require.True(t, fuzzed[target], "%s of %s", target, name)
	}
	for _, name := range slices.Sorted(maps.Keys(decoders)) {
		if !slices.Contains(wrappers, name) {
			require.Contains(t, targets, name, "write a fuzz target seeded with valid input, and list it")
		}
	}
}

// takesBytes reports whether a function has a parameter []byte or [][]byte.
func takesBytes(function *ast.FuncDecl) bool {
	for _, parameter := range function.Type.Params.List {
		list := parameter.Type
		for array, ok := list.(*ast.ArrayType); ok && array.Len == nil; array, ok = list.(*ast.ArrayType) {
			list = array.Elt
		}
		if name, ok := list.(*ast.Ident); ok && name.Name == "byte" && list != parameter.Type {
			return true
		}
	}
	return false
}
