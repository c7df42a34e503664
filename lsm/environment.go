package lsm

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"docstore/lsm/internal/table"
)

// Files of a store:
//
//	LOCK              locked by the writing DB, and names it
//	MANIFEST          the tables and logs of the store
//	FILTERS           scores of filter pages; optional
//	0000000007.table  a table
//	0000000008.log    a log
//	0000000009.spool  index and filter of a table that is being written
//
// Tables and logs share one sequence of numbers. No number is used twice.
const (
	lockName     = "LOCK"
	manifestName = "MANIFEST"
	filtersName  = "FILTERS"

	tableSuffix = ".table"
	logSuffix   = ".log"
	spoolSuffix = ".spool"
	tmpSuffix   = ".tmp"

	numberDigits = 10
)

func tableName(number uint64) string { return fmt.Sprintf("%0*d%s", numberDigits, number, tableSuffix) }
func logName(number uint64) string   { return fmt.Sprintf("%0*d%s", numberDigits, number, logSuffix) }
func spoolName(number uint64) string { return fmt.Sprintf("%0*d%s", numberDigits, number, spoolSuffix) }

// parseName parses the results of tableName, logName and spoolName. The suffix of another
// name is empty.
func parseName(name string) (suffix string, number uint64) {
	suffix = filepath.Ext(name)
	digits := strings.TrimSuffix(name, suffix)
	number, err := strconv.ParseUint(digits, 10, 64)
	known := suffix == tableSuffix || suffix == logSuffix || suffix == spoolSuffix
	if !known || len(digits) < numberDigits || err != nil {
		return "", 0
	}
	return suffix, number
}

// environment describes the store's location. It is immutable once the store is open.
type environment struct {
	table.Env
	dir string
}

// newEnvironment returns an environment whose tables count to a budget, or nil.
func newEnvironment(dir string, o Options, budget *Budget) environment {
	tags := &table.TagLimit{Bytes: o.FilterBytes}
	if budget != nil {
		tags = &budget.tags
	}
	return environment{dir: dir, Env: table.Env{
		FS: o.FS, FalsePositiveRate: o.FalsePositiveRate, Logger: o.Logger,
		CountIndex: budget.table, CountBuffer: budget.merge, Tags: tags,
	}}
}

func (e *environment) path(name string) string { return filepath.Join(e.dir, name) }

// openTable opens a table for lookups.
func (e *environment) openTable(facts table.Facts) (*table.Reader, error) {
	return table.Open(&e.Env, e.path(tableName(facts.Number)), facts)
}

// openSource opens a table for one pass over its entries, apart from lookups.
func (e *environment) openSource(facts table.Facts) (*table.Source, error) {
	return table.OpenSource(&e.Env, e.path(tableName(facts.Number)), facts)
}

// createTable creates a table; lasting means that it will not be merged soon.
func (e *environment) createTable(number uint64, lasting bool) (*table.Writer, error) {
	return table.Create(&e.Env, e.path(tableName(number)), e.path(spoolName(number)), number, lasting)
}
