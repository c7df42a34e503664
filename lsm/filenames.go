package lsm

import (
	"fmt"
	"strconv"
	"strings"
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

// parseName parses the results of tableName, logName and spoolName.
func parseName(name, suffix string) (number uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) < numberDigits {
		return 0, false
	}
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, err == nil
}
