// Package atomics counts the atomic writes of an operation: in a build with coverage counters, the
// number of times that each statement runs times the atomic writes in it. Where processors write the
// same cache line, each write waits for the line, so these counts decide how reads and calls scale.
//
//	go test ./test/atomics -v
package atomics

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/packages"
)

// executions is that of ops.
const executions = 64 * 200

// limits are the greatest numbers of atomic writes that operations may need: of an index, a document,
// and of a call, on both sides together. Calls of 64 callers are gathered, more or fewer at a time.
var limits = []struct {
	operation       string
	shared, striped float64
}{
	{"get", 0.1, 3},
	{"miss", 0.2, 3.1},
	{"multiget", 0.1, 1.1},
	{"call", 60, 0},
	{"calls", 44, 0},
}

// striped matches writes to a cache line that few processors use.
var striped = regexp.MustCompile(`^docstore/internal/stripe\.|^docstore/bloom\.(probe|ask|Missed) c\.`)

// TestAtomicWrites keeps the number of atomic writes. With -v it prints the statements.
func TestAtomicWrites(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a program: run without -short")
	}
	const counted = "docstore/lsm/...,docstore/bloom,docstore/boxcarrpc/...,docstore/internal/..."
	program := filepath.Join(t.TempDir(), "ops")
	command(t, "go", "build", "-cover", "-covermode", "atomic", "-coverpkg", counted+",docstore/test/atomics/ops", "-o", program, "./ops")
	writes := atomicWrites(t, strings.Split(counted, ","))
	for _, l := range limits {
		t.Run(l.operation, func(t *testing.T) {
			dir := t.TempDir()
			command(t, program, l.operation, dir)
			profile := command(t, "go", "tool", "covdata", "textfmt", "-i", dir, "-o", "/dev/stdout")
			var sums [2]float64
			for _, w := range executed(t, profile, writes) {
				kind := 0
				if striped.MatchString(w.function + " " + w.what) {
					kind = 1
				}
				sums[kind] += w.times
				t.Logf("%6.3f  %s  %s  %s:%d", w.times, w.function, w.what, filepath.Base(w.at.Filename), w.at.Line)
			}
			t.Logf("%6.3f shared, %.3f striped", sums[0], sums[1])
			require.LessOrEqual(t, sums[0], l.shared)
			require.LessOrEqual(t, sums[1], l.striped)
		})
	}
}

func command(t *testing.T, name string, args ...string) string {
	cmd := exec.CommandContext(t.Context(), name, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%v: %s", cmd, &stderr)
	return string(out)
}

// A write is an expression that writes memory atomically.
type write struct {
	at       token.Position
	function string
	what     string
	weight   float64 // atomic writes
	times    float64 // of an execution
}

// atomicWrites finds the atomic writes in the source of packages: by file, as coverage names it.
func atomicWrites(t *testing.T, patterns []string) map[string][]write {
	fset := token.NewFileSet()
	all, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports,
		Fset: fset, Dir: "../..",
	}, patterns...)
	require.NoError(t, err)
	writes := map[string][]write{}
	for _, p := range all {
		require.Empty(t, p.Errors)
		for _, file := range p.Syntax {
			for _, d := range file.Decls {
				function, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				ast.Inspect(function, func(n ast.Node) bool {
					what, weight := atomicWrite(p.TypesInfo, n)
					if weight > 0 {
						at := fset.Position(n.Pos())
						name := p.PkgPath + "/" + filepath.Base(at.Filename)
						writes[name] = append(writes[name], write{at: at, function: p.PkgPath + "." + function.Name.Name, what: what, weight: weight})
					}
					return true
				})
			}
		}
	}
	return writes
}

// atomicWrite describes a node that writes memory atomically, and how often.
func atomicWrite(info *types.Info, n ast.Node) (what string, weight float64) {
	switch n := n.(type) {
	case *ast.SendStmt:
		return "channel send", 2 // its lock
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			return "channel receive", 2
		}
	case *ast.CallExpr:
		selector, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr)
		if !ok {
			return "", 0
		}
		f, ok := info.Uses[selector.Sel].(*types.Func)
		if !ok || f.Pkg() == nil {
			return "", 0
		}
		switch name := f.Name(); f.Pkg().Path() {
		case "sync/atomic":
			if !strings.HasPrefix(name, "Load") {
				return types.ExprString(n.Fun), 1
			}
		case "sync":
			switch name {
			case "Lock", "Unlock", "TryLock", "RLock", "RUnlock", "Done", "Add", "Go":
				return types.ExprString(n.Fun), 1
			}
		}
	}
	return "", 0
}

// executed returns the atomic writes that were executed, with their number an execution, the most
// frequent ones first. One on the right of && or || counts as executed with its statement. Each line of
// a profile has a block and how often it ran: file.go:line.column,line.column statements count.
func executed(t *testing.T, profile string, writes map[string][]write) (list []write) {
	for line := range strings.Lines(profile) {
		file, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || file == "mode" {
			continue
		}
		var from, to position
		var statements, count int
		_, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &from.line, &from.column, &to.line, &to.column, &statements, &count)
		require.NoError(t, err, line)
		for _, w := range writes[file] {
			at := position{w.at.Line, w.at.Column}
			if count > 0 && !at.before(from) && at.before(to) {
				w.times = float64(count) * w.weight / executions
				list = append(list, w)
			}
		}
	}
	slices.SortFunc(list, func(a, b write) int { return cmp.Compare(b.times, a.times) })
	require.NotEmpty(t, list)
	return list
}

type position struct{ line, column int }

func (p position) before(q position) bool {
	return p.line < q.line || p.line == q.line && p.column < q.column
}
